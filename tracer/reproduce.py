"""`tracer reproduce`: train the specimens of the tutorials and set what came out beside what was published.

1. Train every named specimen into checkpoints/; what is finished stays, what was stopped goes on.
2. Read from each run: entropy at the start and at the end, held-out loss, parameters, how it ended.
3. Test the claims: each compares runs of the same size, because a loss depends on text and vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tracer.presets import preset
from tracer.specimens import SPECIMENS, Size
from tracer.store import ROOT, Run, open_run, resolve

NOISE = 0.01
"""nats that "no worse" allows, which seeds differ by; ours."""


@dataclass(frozen=True)
class Outcome:
    """What one run of a specimen came to."""

    run: str
    status: str
    step: int
    entropy_start: float
    """Mean over heads and rows q >= 1, in nats, before the first step."""
    entropy_end: float
    entropies: tuple[tuple[float, ...], ...]
    """[layer][head] at the end; the last finite row of a run that diverged."""
    loss: float
    """Held-out, at the end; nan for a run that diverged."""
    n_params: int
    seconds: float
    own_token: float
    """Share of attention on the token itself at the end, mean over heads."""


@dataclass(frozen=True)
class Claim:
    """Something that was published and must hold here."""

    text: str
    needs: tuple[str, ...]
    holds: Callable[[Mapping[str, Outcome]], bool]
    evidence: Callable[[Mapping[str, Outcome]], str]


def outcome(run: Run) -> Outcome:
    """Read from the trace; ValueError when there is none."""
    trace, meta = run.trace, run.meta
    entropy = trace["entropy"].values
    known = np.flatnonzero(np.isfinite(entropy).all(axis=(1, 2)))
    last = entropy[known[-1]]
    diverged = run.status == "diverged"
    return Outcome(
        run.name, run.status, int(meta["step"]), float(entropy[0].mean()), float(last.mean()),
        tuple(tuple(map(float, row)) for row in last), math.nan if diverged else float(trace["val_loss"].values[-1]),
        int(meta["n_params"]), float(meta.get("cost", {}).get("seconds", math.nan)),
        float(trace["current_token"].values[known[-1]].mean()),
    )  # fmt: skip


def _lower(better: str, worse: str, margin: float = 0.0) -> Claim:
    named = "no worse than" if margin else "better than"
    return Claim(
        f"{better} is {named} {worse}", (better, worse),
        lambda found: found[better].loss < found[worse].loss + margin,
        lambda found: f"held-out loss {found[better].loss:.3f} and {found[worse].loss:.3f}",
    )  # fmt: skip


def _entropy(name: str, text: str, holds: Callable[[Outcome], bool]) -> Claim:
    return Claim(
        text, (name,), lambda found: holds(found[name]),
        lambda found: f"entropy {found[name].entropy_start:.3f} at the start, {found[name].entropy_end:.3f} at the end",
    )  # fmt: skip


CLAIMS = (
    _entropy("single-head-unscaled", "unscaled attention is one-hot from the start (entropy below 0.05)",
             lambda o: o.entropy_start < 0.05),
    _entropy("single-head-scaled", "scaled but without a residual, entropy falls to under a third",
             lambda o: o.entropy_end < o.entropy_start / 3),
    _entropy("single-head-residual", "with it, entropy stays above two thirds of the start",
             lambda o: o.entropy_end > o.entropy_start * 2 / 3),
    _lower("multi-head-full", "single-head"),
    _lower("multi-head", "single-head"),
    _lower("multi-head", "multi-head-full", NOISE),
    _lower("two-blocks", "multi-head"),
    Claim("four-blocks diverges", ("four-blocks",), lambda found: found["four-blocks"].status == "diverged",
          lambda found: f"{found['four-blocks'].status} at step {found['four-blocks'].step}"),
    *(_lower("four-blocks-rms", other) for other in ("two-blocks", "multi-head", "multi-head-full", "single-head")),
)  # fmt: skip


def judged(found: Mapping[str, Outcome]) -> list[tuple[Claim, bool]]:
    """Every claim whose runs are there, and whether it holds."""
    return [(claim, claim.holds(found)) for claim in CLAIMS if set(claim.needs) <= set(found)]


def reproduce(
    names: Iterable[str] = (), size: Size = "small", corpus: str | None = None, seed: int = 0, quiet: bool = False
) -> dict[str, Outcome]:
    """Train the named specimens (all by default) where they are not trained yet; their outcomes by name.

    `corpus` replaces the text of the preset. Runs are called NAME-small or NAME; the seed follows where it is not 0.
    Ctrl-C stops the run and the series: KeyboardInterrupt.
    """
    names = list(names) or list(SPECIMENS)
    if unknown := [name for name in names if name not in SPECIMENS]:
        raise ValueError(f"there is no specimen {', '.join(unknown)}; there are: {', '.join(SPECIMENS)}")
    found = {}
    for name in names:
        run = _trained(name, size, corpus, seed, quiet)
        if run.status == "stopped":
            raise KeyboardInterrupt
        found[name] = outcome(run)
    return found


def _trained(name: str, size: Size, corpus: str | None, seed: int, quiet: bool) -> Run:
    from tracer.training import resume, train

    chosen = SPECIMENS[name].preset(size)
    config = replace(preset(chosen).config, seed=seed, run=chosen + (f"-{seed}" if seed else ""))
    if corpus is not None:
        config = replace(config, data=replace(config.data, corpus=corpus))
    directory = resolve(config.run or "", ROOT)
    if (directory / "run.json").exists():
        run = open_run(directory)
        if run.config != replace(config, run=run.config.run):
            raise ValueError(f"{directory} was trained with other settings: move it away, or choose another seed")
        if run.status in ("finished", "diverged"):
            return run
        if run.resume_step() is not None:
            return resume(directory, quiet=quiet)
    return train(config, preset=chosen, quiet=quiet)


def table(found: Mapping[str, Outcome]) -> str:
    """Published beside ours, and the claims, as Markdown."""
    lines = ["| specimen | published | ours: entropy, start to end | on its own token | held-out loss | parameters |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for name, one in found.items():
        end = f"{one.entropy_end:.3f}" if one.status != "diverged" else f"diverged at step {one.step}"
        cells = (f"`{name}`", SPECIMENS[name].published, f"{one.entropy_start:.3f} to {end}", f"{one.own_token:.0%}",
                 "–" if math.isnan(one.loss) else f"{one.loss:.3f}", f"{one.n_params:,}")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| claim | holds here | evidence |", "|---|---|---|"]
    lines += [f"| {c.text} | {'yes' if holds else '**no**'} | {c.evidence(found)} |" for c, holds in judged(found)]
    return "\n".join(lines) + "\n"
