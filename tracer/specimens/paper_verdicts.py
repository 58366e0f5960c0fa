"""Does a claim hold over seeds? Each seed gives one number, or none where it is not known.

1. A seed supports a claim where its figure and its control's are within their ends. Seeds whose models are too small
   are not counted; where they are more than half, the claim is not at this size.
2. A claim about a figure holds where enough seeds support it (`Claim.share`), whatever those were whose figure is not
   known; it is weaker where enough do in the weaker form; it fails where not enough could, whatever the unknown ones
   were. Else it is too close to tell.
3. A claim whose code raises, or gives no number, in any seed has no verdict: it is an error, and the others stand.
4. A claim with `Claim.noise` is judged by the mean over seeds, of those whose figure is known.
5. An order is told by the exact sign test alone, two-sided, at 5 % over all orders of the paper (Bonferroni), of the
   seeds in which it is known: of fewer seeds than could show it, it is not tested.

Source: ours; Clopper and Pearson 1934 for the interval of a share, Student 1908 for that of a mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracer.analysis.order_over_seeds import LEVEL, Precedence, least_p, seeds_needed, share_interval
from tracer.config.field_docs import fields_in_help
from tracer.measures.intervals import student
from tracer.specimens.paper import Claim, Ends, Paper, SeedRuns, inside
from tracer.specimens.paper_errors import number, raised, sentence

PaperVerdict = Literal["holds", "weaker", "fails", "not at this size", "too close to tell", "not tested", "error"]
DOES_NOT_HOLD, IS_OPEN = 1, 3
"""Exit statuses: a claim fails, or holds in a weaker form; no claim does, and one could not be decided or asked."""


@fields_in_help
@dataclass(frozen=True)
class SeedAnswer:
    """What one seed says of a claim."""

    figure: float
    """In the claim's unit; nan where it is not known."""
    control: float | None = None
    """The control's figure, in its unit, nan where it is not known; None without a control."""
    too_small: str = ""
    """Why the models of this seed are too small to ask; empty where they are not."""
    error: str = ""
    """What the claim's own code raised, and where; empty where it gave numbers."""
    diverged: str = ""
    """Which runs diverged and when, where the figure is not finite; empty where none did."""


@fields_in_help
@dataclass(frozen=True)
class ClaimAnswer:
    """A claim as it stands here."""

    claim: Claim
    """As the paper says it."""
    verdict: PaperVerdict
    """holds, weaker, fails, not at this size, too close to tell, not tested or error."""
    why: str
    """In words: by what the verdict is; why not, where the claim is not tested."""
    seeds: Mapping[int, SeedAnswer]
    """What each seed says that has the runs, by seed."""
    supporting: int
    """Seeds that support it,"""
    counted: int
    """of so many that were counted: of an order, those in which it is known."""
    p: float | None = None
    """Of an order: if either were as likely, the chance of a majority as large."""

    @property
    def mean(self) -> tuple[float, float, float] | None:
        """The mean of the known figures with both ends of its 95 % interval (nan of one seed); None of none."""
        known = [one.figure for one in self.seeds.values() if not one.too_small and math.isfinite(one.figure)]
        if not known:
            return None
        middle, n = float(np.mean(known)), len(known)
        half = student(n - 1) * float(np.std(known, ddof=1)) / n**0.5 if n > 1 else math.nan
        return middle, middle - half, middle + half

    @property
    def share(self) -> tuple[float, float]:
        """The exact 95 % interval of the share of seeds that support it."""
        return share_interval(self.supporting, self.counted)


def ask(claim: Claim, runs: SeedRuns) -> SeedAnswer:
    """What the runs of one seed say; where the claim's code raises or gives no number, `error` says which and where."""
    control = None if claim.control is None else math.nan
    asked = "too_small"
    try:
        if claim.too_small and (why := claim.too_small(runs)):
            return SeedAnswer(math.nan, too_small=sentence(claim.too_small, why))
        asked = "control"
        if claim.control is not None:
            control = number(claim.control.figure, runs)
        asked = "figure"
        figure = number(claim.figure, runs)
        return SeedAnswer(figure, control, diverged="" if math.isfinite(figure) else _diverged(claim, runs))
    except Exception as error:  # somebody's code, which raises whatever it runs into
        return SeedAnswer(math.nan, control, error=raised(asked, error))


def _diverged(claim: Claim, runs: SeedRuns) -> str:
    """The runs that the claim needs and that have no end, in words."""
    lost = [(name, runs[name]) for name in claim.needs if runs[name].status == "diverged"]
    return "; ".join(f"{name} diverged at step {int(run.meta['step']):,}" for name, run in lost)


def answers_of(paper: Paper, found: Mapping[int, SeedRuns]) -> list[ClaimAnswer]:
    """Every claim of a paper over the runs that are there, by seed; a seed is asked where it has all that it needs."""
    orders = sum(claim.order for claim in paper.claims)
    return [
        decide(claim, {seed: ask(claim, runs) for seed, runs in found.items() if set(claim.needs) <= set(runs)}, orders)
        for claim in paper.claims
    ]


def decide(claim: Claim, seeds: Mapping[int, SeedAnswer], orders: int = 1) -> ClaimAnswer:
    """The verdict on a claim by what each seed says; `orders`: how many orders the paper claims."""
    if any(one.error for one in seeds.values()):
        return ClaimAnswer(claim, "error", _errors(seeds), seeds, 0, 0)
    small = [one for one in seeds.values() if one.too_small]
    asked = [one for one in seeds.values() if not one.too_small]
    if not seeds:
        return ClaimAnswer(claim, "not tested", f"no seed has {' and '.join(claim.needs)}", seeds, 0, 0)
    if len(small) > len(asked):
        return ClaimAnswer(claim, "not at this size", small[0].too_small, seeds, 0, 0)
    left_out = f"; {len(small)} not counted: {small[0].too_small}" if small else ""
    how = _order if claim.order else _figure if claim.noise is None else _mean
    verdict, why, supporting, counted, p = how(claim, asked, orders)
    return ClaimAnswer(claim, verdict, why + left_out, seeds, supporting, counted, p)


def _errors(seeds: Mapping[int, SeedAnswer]) -> str:
    """What was raised, each once, with the seeds that it was raised of."""
    by_error: dict[str, list[int]] = {}
    for seed, one in seeds.items():
        if one.error:
            by_error.setdefault(one.error, []).append(seed)
    told = (
        f"{error} (seed{'s' * (len(of) > 1)} {', '.join(map(str, of))} of {len(seeds)})"
        for error, of in by_error.items()
    )
    return "the paper's own code: " + "; ".join(told)


Decided = tuple[PaperVerdict, str, int, int, float | None]


def _figure(claim: Claim, asked: Sequence[SeedAnswer], orders: int) -> Decided:
    controls = [_control_holds(claim, one) for one in asked]
    full = [_all(inside(one.figure, claim.within), one, held) for one, held in zip(asked, controls, strict=True)]
    weak = [
        _all(inside(one.figure, claim.within) or inside(one.figure, claim.weaker), one, held)
        for one, held in zip(asked, controls, strict=True)
    ]
    n, needed = len(asked), math.ceil(claim.share * len(asked) - 1e-9)
    yes, perhaps = full.count(True), full.count(True) + full.count(None)
    why = f"{yes} of {n} seed{'s' * (n != 1)} with {told_ends(claim.within, claim.unit)}, {needed} needed"
    if unknown := full.count(None):
        why += f", {unknown} not known"
    if broken := controls.count(False):
        why += f"; the control does not hold in {broken}"
    verdict: PaperVerdict = "too close to tell"
    if yes >= needed:
        verdict = "holds"
    elif perhaps < needed and claim.weaker and weak.count(True) >= needed:
        verdict, why = "weaker", f"{why}; {weak.count(True)} of {n} in the weaker form"
    elif perhaps < needed and weak.count(True) + weak.count(None) < needed:
        verdict = "fails"
    return verdict, why, yes, n, None


def _mean(claim: Claim, asked: Sequence[SeedAnswer], orders: int) -> Decided:
    known = [one for one in asked if not math.isnan(one.figure)]
    lost = "; ".join(one.diverged or "no figure" for one in asked if math.isnan(one.figure))
    if not known or claim.noise is None:
        return "not tested", f"{lost}: nothing to compare with", 0, 0, None
    mean, alone = float(np.mean([one.figure for one in known])), claim.noise / math.sqrt(len(known))
    verdict: PaperVerdict = "too close to tell"
    if inside(mean, _moved(claim.within, claim.margin * alone)):
        verdict = "holds"
    elif not inside(mean, _moved(claim.within, -alone)):
        verdict = "fails"
    why = f"seeds alone make {alone:.3f}"
    if not math.isfinite(mean):
        why = "; ".join(one.diverged for one in known if one.diverged)
    yes = sum(inside(one.figure, claim.within) for one in known)
    return verdict, why + (f"; not counted: {lost}" if lost else ""), yes, len(known), None


def _moved(ends: Ends, inwards: float) -> Ends:
    low, high = ends
    return None if low is None else low + inwards, None if high is None else high - inwards


def _order(claim: Claim, asked: Sequence[SeedAnswer], orders: int) -> Decided:
    held = [_all(inside(one.figure, claim.within), one, _control_holds(claim, one)) for one in asked]
    found = Precedence(held.count(True), held.count(False), held.count(None))
    p = found.p(orders)
    needs = f"{seeds_needed(orders)} seeds that agree are the fewest that can show it"
    if least_p(len(asked), orders) > LEVEL:
        return "not tested", f"{needs}, {len(asked)} asked", found.before, found.known, p
    why = f"{found.before} of {found.known} seeds, p = {p:.2g}" + f", {found.unknown} not known" * bool(found.unknown)
    if p > LEVEL:
        return "too close to tell", f"{why}; {needs}", found.before, found.known, p
    if found.before < found.after:
        return "fails", why, found.before, found.known, p
    verdict: PaperVerdict = "holds" if found.before >= claim.share * found.known - 1e-9 else "weaker"
    return verdict, why, found.before, found.known, p


def _control_holds(claim: Claim, one: SeedAnswer) -> bool | None:
    """None where it is not known."""
    if claim.control is None:
        return True
    return None if one.control is None or math.isnan(one.control) else inside(one.control, claim.control.within)


def _all(held: bool, one: SeedAnswer, control: bool | None) -> bool | None:
    """Does a seed support the claim? None where it depends on what is not known."""
    if control is False or not (held or math.isnan(one.figure)):
        return False
    return None if control is None or math.isnan(one.figure) else True


def told_ends(ends: Ends, unit: str = "") -> str:
    """What agrees, in words: "0.55 to 0.6 nats", "at least 50 steps"."""
    low, high = ends
    words = f"at most {high:g}" if low is None else f"at least {low:g}" if high is None else f"{low:g} to {high:g}"
    return f"{words} {unit}".strip()


def exit_status(found: Sequence[ClaimAnswer]) -> int:
    """0 where all claims hold, 1 where one fails or is weaker, 3 where one could not be decided, or its code raised."""
    if any(one.verdict in ("fails", "weaker") for one in found):
        return DOES_NOT_HOLD
    return IS_OPEN if any(one.verdict != "holds" for one in found) else 0
