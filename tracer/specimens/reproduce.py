"""`tracer reproduce`: train the specimens of the tutorials, run their exercises, and gather what came out.

What is finished stays, what was stopped goes on. `tracer.specimens.claims` judges the outcomes,
`tracer.specimens.tables` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tracer.config import TrainConfig
from tracer.presets import preset
from tracer.specimens import series
from tracer.specimens.claims import Outcome, outcome
from tracer.specimens.paper_folder import shipped
from tracer.specimens.series import DONE
from tracer.specimens.systems import SPECIMENS, Size
from tracer.store import ROOT, Run, resolve


def named(names: Iterable[str] = ()) -> list[str]:
    """The specimens of these names, all by default, with those that their exercises compare them with."""
    names = list(names) or list(SPECIMENS)
    if unknown := [name for name in names if name not in SPECIMENS]:
        raise ValueError(
            f"there is no specimen {', '.join(unknown)}; there are: {', '.join(SPECIMENS)}; papers: "
            f"{', '.join(shipped())}, or a folder of your own, as ./{unknown[0]}"
        )
    return list(dict.fromkeys(one for name in names for one in (name, SPECIMENS[name].beside) if one))


def reproduce(
    names: Iterable[str] = (), size: Size = "small", corpus: str | None = None, seeds: Sequence[int] = (0,),
    quiet: bool = False,
) -> list[dict[str, Outcome]]:  # fmt: skip
    """Train the named specimens (all by default) where they are not trained yet; their outcomes by name, for each seed.

    `corpus` replaces the text of the preset. Runs are called NAME-small or NAME; the seed follows where it is not 0.
    Ctrl-C stops the run and the series: KeyboardInterrupt.
    """
    found: list[dict[str, Outcome]] = [{} for _ in seeds]
    for name in named(names):
        for outcomes, seed in zip(found, seeds, strict=True):
            if SPECIMENS[name].trained:
                run = _trained(name, size, corpus, seed, quiet)
                if run.status == "stopped":
                    raise KeyboardInterrupt
                outcomes[name] = outcome(run, SPECIMENS[name].exercise)
    return found


def trained(
    names: Iterable[str] = (), size: Size = "small", corpus: str | None = None, seeds: Sequence[int] = (0,)
) -> list[dict[str, Outcome]]:
    """The outcomes of those that are trained already."""
    found: list[dict[str, Outcome]] = [{} for _ in seeds]
    for name in named(names):
        for outcomes, seed in zip(found, seeds, strict=True):
            if (
                SPECIMENS[name].trained
                and (run := series.there(*_wanted(name, size, corpus, seed)))
                and run.status in DONE
            ):
                outcomes[name] = outcome(run, SPECIMENS[name].exercise)
    return found


def _wanted(name: str, size: Size, corpus: str | None, seed: int) -> tuple[TrainConfig, Path]:
    """The configuration of a specimen's run, and where it goes."""
    chosen = SPECIMENS[name].preset(size)
    config = replace(preset(chosen).config, seed=seed, run=chosen + (f"-{seed}" if seed else ""))
    if corpus is not None:
        config = replace(config, data=replace(config.data, corpus=corpus))
    return config, resolve(config.run or "", ROOT)


def _trained(name: str, size: Size, corpus: str | None, seed: int, quiet: bool) -> Run:
    config, directory = _wanted(name, size, corpus, seed)
    run = series.there(config, directory)
    if run is not None and run.status in DONE:
        return run
    return series.trained(config, directory, run, quiet=quiet, preset=SPECIMENS[name].preset(size))
