"""The runs of a paper: trained where they are missing, gone on with where they were stopped, left alone where finished.

Runs are called PAPER-RUN under checkpoints/, with the seed behind where it is not 0, so that several seeds live there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tracer.config import TrainConfig
from tracer.data.own_source import made
from tracer.specimens.paper import PaperRun
from tracer.specimens.paper_folder import PaperFolder
from tracer.specimens.series import DONE, MEND, there, trained
from tracer.store import ROOT, Run, resolve

Say = Callable[[str], None]


def trained_runs(
    folder: PaperFolder, seeds: Sequence[int], names: Sequence[str] = (), train: bool = True,
    say: Say = lambda _: None,
) -> dict[int, dict[str, Run]]:  # fmt: skip
    """The runs that are done, by seed and name; those of `names` (all by default) are trained before, unless told not
    to. `say` hears what each training is for, and how it ended. Ctrl-C stops the run and the series: KeyboardInterrupt.
    ValueError where a directory holds a run of other settings, code or data.
    """
    found: dict[int, dict[str, Run]] = {}
    for seed in dict.fromkeys(seeds):
        found[seed] = {}
        for name, of in folder.paper.runs.items():
            config, directory = wanted(folder, name, seed)
            run = _known(config, of, directory)
            if train and name in (names or folder.paper.runs) and (run is None or run.status not in DONE):
                done = None if run is None else run.resume_step()
                said = f", on from step {done:,}" if done is not None else ""
                say(f"{directory.name}: {of.about}; {config.steps:,} steps{said}")
                run = trained(config, directory, run, quiet=True, preset=of.preset or None, **of.code)
                if run.status == "stopped":
                    raise KeyboardInterrupt
                say(f"  {run.status} after {seconds(run):.0f} s")
            if run is not None and run.status in DONE:
                found[seed][name] = run
    return found


def wanted(folder: PaperFolder, name: str, seed: int) -> tuple[TrainConfig, Path]:
    """The configuration of a paper's run, and where it goes."""
    from tracer.training.clamping import with_these
    from tracer.training.loop import on_corpus

    of = folder.paper.runs[name]
    called = (of.preset or f"{folder.name}-{name}".replace(" ", "-")) + (f"-{seed}" if seed else "")
    config = replace(of.config, seed=seed, run=called)
    config = with_these(on_corpus(config, of.code.get("corpus")), of.code.get("clamp", ()))
    return config, resolve(called, ROOT)


def _known(config: TrainConfig, of: PaperRun, directory: Path) -> Run | None:
    """The run of that directory; ValueError where another paper, or an earlier version of this one, trained it."""
    from tracer.training.extras import Extras

    run = there(config, directory)
    if run is None:
        return None
    given = Extras.given(of.code.get("measures", ()), of.code.get("probes"), of.code.get("scalars", ()),
                         of.code.get("loss"))  # fmt: skip
    try:
        given.check(run)
    except ValueError as error:
        raise ValueError(f"{directory} was trained with other code: {MEND} ({error})") from error
    if config.data.is_own and run.corpus_hash != made(config.data.corpus, config.model.n_ctx, config.seed).hash:
        raise ValueError(f"{directory} was trained on other rows than {config.data.corpus} gives now: {MEND}")
    return run


def seconds(run: Run) -> float:
    """How long a run trained, with its recording; nan where it does not say."""
    return float((run.meta.get("cost") or {}).get("seconds", "nan"))
