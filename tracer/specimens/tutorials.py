"""The tutorials behind manyeyes: papers whose systems the page Papers tells one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from tracer.presets import preset
from tracer.specimens.paper import PaperRun
from tracer.specimens.paper_folder import PaperFolder, is_paper, load, shipped

Size = Literal["small", "published"]
TUTORIALS = {name: load(name) for name in ("one-head", "many-heads", "many-eyes", "one-matmul", "post-norm")}
"""Their folders, in the order of the story."""
SPECIMENS = {one.name: one for folder in TUTORIALS.values() for one in folder.paper.systems}
TUTORIAL = {one.name: name for name, folder in TUTORIALS.items() for one in folder.paper.systems}
"""The folder that a specimen is of."""
TRAINED = {name: run for folder in TUTORIALS.values() for name, run in folder.paper.runs.items()}
"""Those that there is something to train of."""
CLAIMS = tuple(claim for folder in TUTORIALS.values() for claim in folder.paper.claims)


def named(names: Iterable[str] = (), size: Size = "small", corpus: str | None = None) -> list[PaperFolder]:
    """The papers of these names, and of specimens those parts of theirs; all tutorials by default.

    ValueError for a name that is neither, and where a paper has no other `size` or `corpus` than its own.
    """
    parts: dict[str, list[str]] = {}
    for name in names or TUTORIALS:
        if not is_paper(name) and name not in TUTORIAL:
            raise ValueError(
                f"there is no specimen {name}; there are: {', '.join(SPECIMENS)}; papers: {', '.join(shipped())}, or a "
                f"folder of your own, as ./{name}"
            )
        parts.setdefault(name if is_paper(name) else TUTORIAL[name], []).append(name)
    return [_sized(folder if folder.name in of or home in of else _part(folder, of), size, corpus)
            for home, of in parts.items() for folder in [load(home)]]  # fmt: skip


def _part(folder: PaperFolder, names: list[str]) -> PaperFolder:
    """What a paper has of these systems alone."""
    paper = folder.paper
    runs = {name: run for name, run in paper.runs.items() if name in names}
    claims = tuple(claim for claim in paper.claims if set(claim.needs) <= set(runs))
    systems = tuple(one for one in paper.systems if one.name in names)
    return replace(folder, paper=replace(paper, runs=runs, claims=claims, systems=systems))


def _sized(folder: PaperFolder, size: Size, corpus: str | None) -> PaperFolder:
    if size == "small" and corpus is None:
        return folder
    if not all(run.preset for run in folder.paper.runs.values()):
        raise ValueError(f"--size and --corpus are of specimens; {folder.name} is a paper, which says its own")
    runs = {name: _run_of(run, size, corpus) for name, run in folder.paper.runs.items()}
    return replace(folder, paper=replace(folder.paper, runs=runs))


def _run_of(run: PaperRun, size: Size, corpus: str | None) -> PaperRun:
    name = run.preset.removesuffix("-small") if size == "published" else run.preset
    config = preset(name).config if size == "published" else run.config
    data = config.data if corpus is None else replace(config.data, corpus=corpus)
    return replace(run, config=replace(config, data=data), preset=name)
