"""What a run of a specimen came to, and whether what was published holds here.

Claims compare runs of the same size, because a loss depends on text and vocabulary. Two losses count as different only
when they are further apart than two runs that differ in nothing but their seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
import xarray as xr

from tracer.specimens.systems import Check
from tracer.store import Run

NOISE = 0.06
"""nats, ours: 2 sqrt(2) standard deviations (0.020) of the held-out loss over seeds 0 to 2 of four small specimens."""
NOISE_AT_100 = 0.088
"""The same for a hundred steps on characters (0.031)."""


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
    own_token: float
    """Share of attention on the token itself at the end, mean over heads."""
    apart: tuple[float, float] = (math.nan, math.nan)
    """Share of attention that two heads of a layer give to different keys, at the start and at the end."""


Found = Mapping[str, Outcome]
"""Outcomes of one setting and one seed, by specimen."""


@dataclass(frozen=True)
class TutorialClaim:
    """Something that was published and must hold here."""

    text: str
    needs: tuple[str, ...]
    holds: Callable[[Sequence[Found]], bool | None]
    """Over one or more seeds; None where the runs are too close to tell."""
    evidence: Callable[[Sequence[Found]], str]
    against: str = ""
    """The specimen whose loss it is measured by; a run of it that diverged has none, and decides nothing."""


@dataclass(frozen=True)
class Judgement:
    """A claim as it stands here."""

    claim: TutorialClaim
    holds: bool | None
    """None: too close to tell, or not tested."""
    evidence: str
    """By what numbers; why not, where it was not tested."""
    tested: bool = True


def outcome(run: Run, apart: bool = False) -> Outcome:
    """Read from the trace; ValueError when there is none. `apart`: compare the heads' kept patterns, too."""
    trace, meta = run.trace, run.meta
    entropy = trace["entropy"].values
    known = np.flatnonzero(np.isfinite(entropy).all(axis=(1, 2)))
    last = entropy[known[-1]]
    diverged = run.status == "diverged"
    return Outcome(
        run.name, run.status, int(meta["step"]), float(entropy[0].mean()), float(last.mean()),
        tuple(tuple(map(float, row)) for row in last), math.nan if diverged else float(trace["val_loss"].values[-1]),
        int(meta["n_params"]), float(trace["current_token"].values[known[-1]].mean()),
        _apart(trace) if apart else (math.nan, math.nan),
    )  # fmt: skip


def _apart(trace: xr.Dataset) -> tuple[float, float]:
    """At the first and at the last step of which patterns were kept."""
    corner = trace["pattern"].isel(layer=0, head=0, query_pos=0, key_pos=0).values
    kept = np.flatnonzero(np.isfinite(corner).any(axis=1))
    return heads_apart(trace["pattern"][kept[0]].values), heads_apart(trace["pattern"][kept[-1]].values)


def heads_apart(pattern: np.ndarray) -> float:
    """Total variation between two heads of one layer: the share of attention that they give to different keys.

    Of patterns [prompt layer head query_pos key_pos]; mean over pairs, rows q >= 1 and prompts.
    """
    pairs = combinations(range(pattern.shape[2]), 2)
    rows = pattern[..., 1:, :].astype(np.float64)
    return float(np.nanmean([np.abs(rows[:, :, a] - rows[:, :, b]).sum(-1) / 2 for a, b in pairs]))


def _mean(seeds: Sequence[Found], read: Callable[[Found], float]) -> float:
    return float(np.mean([read(found) for found in seeds]))


def _gap(seeds: Sequence[Found], better: str, worse: str) -> float:
    return _mean(seeds, lambda found: found[better].loss - found[worse].loss)


def _lost(seeds: Sequence[Found], *names: str) -> str:
    """The runs that hold no loss, and why; empty where all do."""
    runs = [(name, found[name]) for found in seeds for name in names]
    return "; ".join(f"{name} {one.status} at step {one.step:,}" for name, one in runs if math.isnan(one.loss))


def _told_gap(seeds: Sequence[Found], better: str, worse: str) -> str:
    """Both losses, how far they are apart, and how far seeds alone would be."""
    if lost := _lost(seeds, better):
        return lost
    ours, theirs = (_mean(seeds, lambda found, name=name: found[name].loss) for name in (better, worse))
    over = f", means of {len(seeds)} seeds" if len(seeds) > 1 else ""
    side = "lower" if ours < theirs else "higher"
    alone = f"seeds alone make {_noise(seeds):.3f}"
    return f"held-out loss {ours:.3f} and {theirs:.3f}{over}, {abs(ours - theirs):.3f} {side}; {alone}"


def _noise(seeds: Sequence[Found], one: float = NOISE) -> float:
    """How far apart two means over so many seeds may be by themselves."""
    return one / math.sqrt(len(seeds))


def _compared(says: str, margin: float, ours: str, theirs: str) -> TutorialClaim:
    """One loss is below another by `margin` times what seeds alone make; it is not once it is above by as much."""

    def holds(seeds: Sequence[Found]) -> bool | None:
        gap, limit = _gap(seeds, ours, theirs), _noise(seeds)
        return True if gap <= -margin * limit else None if gap <= limit else False  # nan: ours diverged, so it is not

    return TutorialClaim(f"{ours} is {says} {theirs}", (ours, theirs), holds,
                 lambda seeds: _told_gap(seeds, ours, theirs), against=theirs)  # fmt: skip


_lower, _no_worse = partial(_compared, "better than", 1), partial(_compared, "no worse than", 0)


def _entropy(name: str, text: str, holds: Callable[[Outcome], bool]) -> TutorialClaim:
    def told(seeds: Sequence[Found]) -> str:
        start = _mean(seeds, lambda found: found[name].entropy_start)
        end = _mean(seeds, lambda found: found[name].entropy_end)
        return f"entropy {start:.3f} at the start, {end:.3f} at the end"

    return TutorialClaim(text, (name,), lambda seeds: all(holds(found[name]) for found in seeds), told)


CLAIMS = (
    _entropy("single-head-unscaled", "unscaled attention is one-hot from the start (entropy below 0.05)",
             lambda o: o.entropy_start < 0.05),
    _entropy("single-head-scaled", "scaled but without a residual, entropy falls to under a third",
             lambda o: o.entropy_end < o.entropy_start / 3),
    _entropy("single-head-residual", "with it, entropy stays above two thirds of the start",
             lambda o: o.entropy_end > o.entropy_start * 2 / 3),
    _lower("multi-head-full", "single-head"),
    _lower("multi-head", "single-head"),
    _no_worse("multi-head", "multi-head-full"),
    _lower("two-blocks", "multi-head"),
    TutorialClaim("four-blocks diverges", ("four-blocks",),
          lambda seeds: all(found["four-blocks"].status == "diverged" for found in seeds),
          lambda seeds: "; ".join(f"{o.status} at step {o.step}" for o in (found["four-blocks"] for found in seeds))),
    *(_lower("four-blocks-rms", other) for other in ("two-blocks", "multi-head", "multi-head-full", "single-head")),
)  # fmt: skip


def judge(claim: TutorialClaim, seeds: Sequence[Found]) -> Judgement:
    """A claim over seeds that have all its runs; where what it is measured by diverged, the seed does not count."""
    lost = _lost(seeds, claim.against) if claim.against else ""
    counted = [found for found in seeds if not (lost and math.isnan(found[claim.against].loss))]
    if not counted:
        return Judgement(claim, None, f"{lost}: no loss to compare with", tested=False)
    return Judgement(claim, claim.holds(counted), claim.evidence(counted) + (f"; not counted: {lost}" if lost else ""))


def judged(seeds: Sequence[Found]) -> list[Judgement]:
    """Every claim that some seed has all runs of."""
    known = {claim.text: [one for one in seeds if set(claim.needs) <= set(one)] for claim in CLAIMS}
    return [judge(claim, known[claim.text]) for claim in CLAIMS if known[claim.text]]


def answers(name: str, seeds: Sequence[Found]) -> list[Check]:
    """The questions of a specimen's exercise that trained runs answer."""
    if name != "many-eyes":
        return []
    made, trained = [], [found["many-eyes"] for found in seeds if "many-eyes" in found]
    if both := [found for found in seeds if {"many-eyes", "many-eyes-bare"} <= set(found)]:
        made.append(_w_o(both))
    if trained:
        start, end = np.array([one.apart for one in trained]).mean(axis=0)
        told = (
            f"two heads of a block give {start:.0%} of their attention to different keys before the first step, "
            f"{end:.0%} after the last"
        )
        made.append(Check("do the heads differ?", told))
    return made


def _w_o(seeds: Sequence[Found]) -> Check:
    """What the projection does to the loss."""
    asks, names = f"{seeds[0]['many-eyes'].step} steps with W_O and without", ("many-eyes", "many-eyes-bare")
    if lost := _lost(seeds, *names):
        return Check(asks, f"{lost}: no two losses to compare")
    given, bare = (_mean(seeds, lambda found, of=of: found[of].loss) for of in names)
    gap, limit = given - bare, _noise(seeds, NOISE_AT_100)
    better = "too close to tell" if abs(gap) <= limit else "better with" if gap < 0 else "better without"
    over = f" over {len(seeds)} seeds" if len(seeds) > 1 else ""
    return Check(
        asks,
        f"held-out loss {given:.3f} with, {bare:.3f} without{over}: {better}; seeds alone make {limit:.3f}",
    )
