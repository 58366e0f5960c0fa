"""A paper in Python: what is missing is trained, each claim is judged, and the runs are there to go on with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.config.field_docs import fields_in_help
from tracer.specimens.paper import SeedRuns
from tracer.specimens.paper_folder import PaperFolder, load
from tracer.specimens.paper_runs import trained_runs
from tracer.specimens.paper_tables import as_markdown, as_text, facts
from tracer.specimens.paper_verdicts import ClaimAnswer, answers_of, exit_status

if TYPE_CHECKING:
    from tracer.specimens.toys import Toy


@fields_in_help
@dataclass(frozen=True)
class Reproduction:
    """A paper as it stands here; printed, it is what `tracer reproduce` prints."""

    folder: PaperFolder
    """Where it was read: `folder.paper`, its words, a digest of its Python."""
    runs: Mapping[int, SeedRuns]
    """The runs that are done, by seed and by their name in the paper."""
    claims: Sequence[ClaimAnswer]
    """Each claim, with its verdict and what every seed says of it."""

    @cached_property
    def told(self) -> dict[str, Any]:
        """All of it as plain values, as `tracer reproduce --json` prints it."""
        return facts(self.folder, self.runs, self.claims)

    @property
    def status(self) -> int:
        """0 where all claims hold, 1 where one fails or is weaker, 3 where one is open, or its code raised."""
        return exit_status(self.claims)

    @property
    def page(self) -> str:
        """The paper's words, then every claim and run as tables: Markdown."""
        return as_markdown(self.told, self.folder.words)

    def write(self, directory: str | Path) -> list[Toy]:
        """Its trained models for other libraries, with claims, cards and checksums: `tracer.specimens.toys`."""
        from tracer.specimens.toys import write_toys

        return write_toys(self.folder, self.runs, self.told, directory)

    def __str__(self) -> str:
        return as_text(self.told)


def reproduce(
    paper: str | Path | PaperFolder, seeds: Sequence[int] = (0,), *, quick: bool = False, train: bool = True,
    say: Callable[[str], None] | None = print,
) -> Reproduction:  # fmt: skip
    """A paper's runs, trained where they are missing and gone on with where they were stopped, and its claims judged.

    `paper` is the name of one that comes with manyeyes, or a folder of one's own, whose Python runs, or one that was
    read. Runs go under checkpoints/ of the working directory, a set for each of the `seeds`. `quick` trains no more of
    them than the paper says can be done in two minutes, `train=False` none; what that leaves open is "not tested".
    `say` hears of each training, None keeps quiet. ValueError where there is no such paper, or a directory holds a run
    of other settings; Ctrl-C stops the run and the series, which a second call goes on with: KeyboardInterrupt.
    """
    if isinstance(paper, Path):
        paper = str(paper.resolve())  # a Path forgets its ./
    folder = load(paper) if isinstance(paper, str) else paper
    names = folder.paper.quick if quick else ()
    found = trained_runs(folder, seeds, names, train, say or (lambda _: None))
    return Reproduction(folder, found, answers_of(folder.paper, found))
