"""The tests that an induction head is put to, each a number with its interval, its control and a sentence."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tracer.ablate.edges_and_paths import read_layer, reroute_into
from tracer.ablate.effects import Effect
from tracer.ablate.estimates import Estimate, agree, estimate, ratio, within
from tracer.ablate.parts import name
from tracer.ablate.planner import averaged, planner
from tracer.ablate.repeats import Repeats, by_row
from tracer.config.field_docs import fields_in_help
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import Edit, applied, recording, visiting
from tracer.interventions.replacements import mean_of_others, pattern_tap, z_tap
from tracer.measures.aliases import Head
from tracer.measures.composition import copying, random_copying
from tracer.model import Transformer
from tracer.model.protocol import HeadModel

STRONG = 0.4
"""Attention from which a head counts as doing it: ARENA 1.2's threshold for induction and previous-token heads."""
COPIES, RISES = 0.5, 0.75
"""Copying, by weights and by behaviour, from which a head counts as copying. Ours: halfway from chance to always."""
SIGMAS = 3.0
"""How far above random heads a number made of weights must be, in their standard deviations. Ours."""
COSTS = 0.1
"""Share of what repetition gains that must go with the head. Ours."""
GAINS = 0.1
"""Nats that repetition must gain a model before shares of it say anything. Ours."""
TOP, MOST_TOKENS = 5, 2048
"""ARENA's k, and the tokens of a large vocabulary that are tried."""
ROUNDING = 64
"""Times the precision of a logit: what stays below is no change of it. Ours."""
CANDIDATES = 8
"""Earlier heads that are tried: those that attend most to the token before."""
GONE = 0.5
"""Share of the prefix matching without which a set is found. Ours."""


@fields_in_help
@dataclass(frozen=True)
class HeadTest:
    """One test of a head; `passed` is None, and the number nan, where this model does not let it be measured."""

    name: str
    """Printed before its number."""
    value: float
    """Mean over sequences, in the unit that the sentence says."""
    low: float
    """95 % interval over sequences; nan for a number that is read off the weights."""
    high: float
    """Its other end."""
    chance: float
    """What a head that does nothing of the kind would have; nan where that is not known."""
    passed: bool | None
    """None where it could not be measured."""
    sentence: str
    """What was measured and what came out, in words."""
    defines: bool = False
    """Is it part of what makes a head an induction head? The others say what it is for and how it comes about."""
    code: str = ""
    """`module:name` of a test of a user's; empty of ours."""

    def __str__(self) -> str:
        mark = {True: "pass", False: "fail", None: "  - "}[self.passed]
        numbers = "" if math.isnan(self.value) else f"{number(self.value):>6}{self._interval:18}{self._chance}"
        return f"{mark}  {self.name:24}{numbers}".rstrip() + "\n" + indented(self.sentence)

    @property
    def _chance(self) -> str:
        return "" if math.isnan(self.chance) else f" chance {number(self.chance)}"

    @property
    def _interval(self) -> str:
        return "" if math.isnan(self.low) else f" [{number(self.low)}, {number(self.high)}]"


def number(x: float) -> str:
    """Two decimals, and no minus in front of 0.00."""
    return f"{x:.2f}".replace("-0.00", "0.00")


def indented(text: str) -> str:
    """A paragraph under a line of the card."""
    return textwrap.fill(text, 110, initial_indent=" " * 6, subsequent_indent=" " * 6)


def without_number(test: str, passed: bool | None, sentence: str, defines: bool = False) -> HeadTest:
    return HeadTest(test, math.nan, math.nan, math.nan, math.nan, passed, sentence, defines)


def prefix_matching(rows: Repeats, per_sequence: Float[np.ndarray, " batch"], control: float) -> HeadTest:
    """Passed when it is high, and beyond doubt higher than `control`: what the same keys get without a repeat.

    Where there is no control, nan, it is not asked for, and the sentence says so.
    """
    found, chance = within(estimate(per_sequence)), rows.chance()
    beaten = found.low > chance and not found.low <= control
    beside = _no_control(rows) if math.isnan(control) else f"The same places get {control:.2f} where nothing repeats."
    return HeadTest(
        "prefix matching", found.mean, found.low, found.high, chance, found.mean >= STRONG and beaten,
        f"Where random tokens repeat, {found.mean:.2f} of its attention goes to the token that came next last time; "
        f"{STRONG} is needed. {beside}",
        defines=True,
    )  # fmt: skip


def _no_control(rows: Repeats) -> str:
    """What it means that there are no rows without a repeat to compare with."""
    missing = "There is no control without a repeat here"
    if len(rows.periods) != 1:
        return f"{missing}."
    period = rows.periods[0]
    return f"{missing}, and all tokens come again after {period}: always looking {period - 1} back would score as high."


def copying_by_behaviour(model: HeadModel, rows: Repeats, head: Head, reference: Tensor | None = None) -> HeadTest:
    """How often the logit of the token that it attends to most rises by more than that of another token of the row.

    Source: Olsson et al. 2022 compare the rise of the attended token with that of the others in the sample, of the
    head's output through the unembedding; here the rise is that of the model's logits, against the head at its mean,
    so that any model can be asked. Ties count half: chance is 0.5. Not measured where no logit changes without it.
    """
    layer, index = head
    tokens = rows.tokens
    attended = torch.zeros_like(tokens)

    def visit(call: AttentionCall) -> None:
        if call.layer == layer and 0 <= index - call.first_head < call.n_heads:
            seen = call.pattern()[:, index - call.first_head, :, 1 : call.positions]  # no start token, and no sink
            attended[:] = seen.argmax(-1) + 1

    def logits() -> Float[Tensor, "batch query_pos key_pos"]:
        """Of the tokens of the row, relative to the mean of all."""
        found = model(tokens)
        return found.gather(-1, tokens[:, None].expand(-1, tokens.shape[1], -1)) - found.mean(-1, keepdim=True)

    with visiting(visit):
        clean = logits()
    rise = clean - averaged(planner(model, tokens, "mean", reference=reference, layers=[layer])([head]), logits)
    if rise.abs().max() <= ROUNDING * torch.finfo(clean.dtype).eps * clean.abs().max():
        return without_number(
            "copying", None, "Not measured: with its mean in its place no logit of these rows changes, so it writes "
            "nothing of its own that could be a copy.", defines=True,
        )  # fmt: skip
    its, others = rise.gather(-1, attended[..., None]), tokens[:, None] != tokens.gather(1, attended)[..., None]
    more = ((its > rise) + 0.5 * (its == rise)) * others
    wins = within(estimate(by_row(more.sum(-1) / others.sum(-1), rows.seen)))
    height = estimate(by_row(its.squeeze(-1), rows.seen))
    return HeadTest(
        "copying", wins.mean, wins.low, wins.high, 0.5, wins.mean >= RISES and wins.low > 0.5,
        f"With it on, the logit of the token that it looks at most rises by {_with_ends(height)} over the mean of all "
        f"tokens, and by more than that of another token of the row in {wins.mean:.0%} of all comparisons; "
        f"{RISES:.0%} is needed.",
        defines=True,
    )  # fmt: skip


def copying_by_weights(model: HeadModel, head: Head) -> HeadTest:
    """Source: Elhage et al. 2021 (eigenvalues); ARENA 1.2, `top_5_acc` of the full OV circuit."""
    test = "copying by its weights"
    if isinstance(model, Transformer) and model.why_no_stream:
        return without_number(
            test, None, "Not measured: heads are not joined by a residual stream that is their plain sum, so products "
            "of weights say nothing.",
        )  # fmt: skip
    try:
        _, _, W_V, W_O, W_E, W_U = model.head_weights()
    except ValueError as error:
        return without_number(test, None, f"Not measured: {error}.")
    if W_U is None:
        return without_number(test, None, "Not measured: the unembedding is an MLP, so there is no W_U.")
    layer, index = head
    one = slice(index, index + 1)
    value = float(copying(W_V[layer, one][None], W_O[layer, one][None], W_E, W_U))
    if math.isnan(value):
        return without_number(
            test, None, "Not measured: no eigenvalue of W_E OV W_U is a number other than 0. The head writes nothing, "
            "nothing that a token's own logit reads, or its weights are not finite.",
        )  # fmt: skip
    mean, sd = random_copying(W_E, W_U, W_V.shape[-1])
    some = torch.arange(0, len(W_E), -(-len(W_E) // MOST_TOKENS), device=W_E.device)
    most = min(TOP, len(W_E))
    best = (W_E[some] @ W_V[layer, index] @ W_O[layer, index] @ W_U).topk(most, -1).indices
    top = float((best == some[:, None]).any(-1).double().mean())
    return HeadTest(
        test, value, math.nan, math.nan, mean, value >= COPIES and value > mean + SIGMAS * sd,
        f"From −1 to 1: near 1, a token that it looks at becomes likelier to come next. Random heads have "
        f"{number(mean)}, give or take {sd:.2f}; {COPIES} is needed. It is the sum of the eigenvalues of W_E OV W_U "
        f"over the sum of their sizes, norms left out. {top:.0%} of the tokens are among the {most} that W_E OV W_U "
        f"raises most for them (at chance {most / len(W_E):.1%}).",
    )  # fmt: skip


def ablation(
    rows: Repeats, effects: dict[str, Effect], repeating: bool = False
) -> tuple[HeadTest, dict[str, Estimate]]:
    """The share of what repetition gains that goes with the head, and the change in loss on repeated tokens.

    Source: ours, after Olsson et al. 2022. Gain: loss of tokens that are new minus that of tokens that come again. The
    share is the harm to the latter, less any harm to the former, over the gain. Passed when all replacements say so;
    the number is the middle one. `repeating`: mean and resample came from rows that repeat, too.
    """
    clean = next(iter(effects.values())).clean
    gain = by_row(clean, rows.new) - by_row(clean, rows.again)
    gains, costs, harms, controls = estimate(gain), {}, {}, {}
    for mode, found in effects.items():
        again, new = by_row(found.delta, rows.again), by_row(found.delta, rows.new)
        costs[mode], controls[mode] = estimate(again), estimate(new)
        harms[mode] = again - new if controls[mode].mean > 0 else again
    numbers = ", ".join(f"{mode} {_with_ends(one)}" for mode, one in costs.items())
    source = " Mean and resample are of rows without a repeat."
    if repeating:
        source = " Mean and resample are of rows that repeat, too, so that a signal of a repeat stays in them."
    said = f"Repetition gains this model {_with_ends(gains)} nats a token. "
    if math.isnan(gains.low):
        alone = "one sequence has no interval" if len(gain) < 2 else "a row has no two new tokens, or none come again"
        return without_number("ablation", None, f"Not measured: {alone}, so what repetition gains is not known."), costs
    if not (gains.mean >= GAINS and gains.low > 0):
        return without_number(
            "ablation", False, f"{said}Less than {GAINS} is nothing that a head could be needed for. Loss on repeated "
            f"tokens without it, in nats: {numbers}.{source}",
        ), costs  # fmt: skip
    shares = {mode: ratio(harm, gain) for mode, harm in harms.items()}
    middle = sorted(shares.values(), key=lambda one: one.mean)[1]
    passed = all(one.mean >= COSTS and one.low > 0 for one in shares.values())
    together = "" if agree(costs) else " They differ by more than their intervals: what stands in for a head matters."
    control = ", ".join(f"{mode} {number(one.mean)}" for mode, one in controls.items())
    return HeadTest(
        "ablation", middle.mean, middle.low, middle.high, 0.0, passed,
        f"{said}Share of it that goes with the head: "
        f"{', '.join(f'{mode} {number(one.mean)}' for mode, one in shares.items())}; each must be {COSTS:.2f}. Loss on "
        f"repeated tokens without it, in nats: {numbers}; on the same tokens when they are new, which is taken off: "
        f"{control}.{source}{together}",
    ), costs  # fmt: skip


def previous_token_partners(
    model: HeadModel, rows: Repeats, head: Head, matching: np.ndarray, previous: np.ndarray
) -> tuple[HeadTest, tuple[Head, ...]]:
    """The smallest set of earlier heads that carries its prefix matching: `partners`."""
    test, (layer, index) = "previous-token partners", head
    if layer == 0:
        return without_number(
            test, None, "Not measured: there is no layer before the first, so its keys read no other head."
        ), ()
    whole = matching[:, layer, index]
    if whole.mean() < STRONG:
        return without_number(
            test, False, f"Its prefix matching, {whole.mean():.2f}, leaves nothing that others could carry."
        ), ()
    back = previous.mean(0)
    found = partners(model, rows, head, whole, back)
    share, control = (within(ratio(whole - less, whole), -math.inf) for less in (found.cut, found.control))
    who = " ".join(f"{name(one)} ({back[one]:.2f} of its attention is on the token before)" for one in found.heads)
    where = "all that comes after" if model.why_no_stream else "its keys alone"
    return HeadTest(
        test, share.mean, share.low, share.high, control.mean, found.found and share.low > control.mean,
        f"Without what {'these heads bring' if len(found.heads) > 1 else 'this head brings'} from the token before, "
        f"kept from {where}, its prefix matching goes from {whole.mean():.2f} to {found.cut.mean():.2f}: {who}. "
        f"{GONE:.0%} of it must go; without what they bring from two tokens back it is {found.control.mean():.2f}."
        + ("" if found.found else f" No set of {CANDIDATES} earlier heads that were tried carries it."),
    ), found.heads  # fmt: skip


@dataclass(frozen=True)
class Partners:
    """A set of earlier heads, and the prefix matching of each sequence without what they bring."""

    heads: tuple[Head, ...]
    cut: Float[np.ndarray, " batch"]
    control: Float[np.ndarray, " batch"]
    """The same without what they bring from two tokens back."""
    found: bool
    """Is half of the prefix matching gone?"""


def partners(
    model: HeadModel, rows: Repeats, head: Head, matching: Float[np.ndarray, " batch"],
    previous: Float[np.ndarray, "layer head"],
) -> Partners:  # fmt: skip
    """The earlier heads without whose news of the token before a head's prefix matching falls by half.

    1. What a head brings from the token before is A[q, q-1] v[q-1], a part of its z. It is replaced by its mean over
       the other sequences: in what the keys of the head in question read, or, where paths cannot be told apart,
       everywhere.
    2. Of the earlier heads that attend most to the token before, take the one whose part hurts prefix matching most,
       and so on, until half of it is gone; then drop, one by one, those that were not needed.
    3. Control: the same set, with what it brings from two tokens back.

    Source: path patching (Wang et al. 2022, 2211.00593) of a part of z, and the set, are ours; "previous-token head",
    Olsson et al. 2022.
    """
    (layer, index), tap = head, pattern_tap(head[0])
    earlier = [(at, one) for at in range(layer) for one in range(model.n_heads) if previous[at, one] > 0]
    candidates = sorted(earlier, key=lambda one: -previous[one])[:CANDIDATES]
    with recording("hook_pattern", "hook_v", "hook_z") as seen:
        model(rows.tokens)
    changed = {back: {z_tap(at): _without(seen, at, back) for at in range(layer)} for back in (1, 2)}

    clean = read_layer(model, rows.tokens, layer) if not model.why_no_stream else None

    def without(heads: list[Head], back: int = 1) -> Float[np.ndarray, " batch"]:
        if clean is None:
            edits = [Edit(z_tap(at), (one,), instead=changed[back][z_tap(at)]) for at, one in heads]
        else:
            edits = reroute_into(model, head, {"k": heads} if heads else {}, *clean, changed[back].__getitem__)
        with applied(edits), recording(tap) as found:
            model(rows.tokens)
        return by_row((found[tap][:, index] * rows.matches).sum(-1), rows.seen)

    enough, chosen, cut = (1 - GONE) * matching.mean(), [], matching
    while cut.mean() > enough and len(chosen) < len(candidates):
        tried = {one: without([*chosen, one]) for one in candidates if one not in chosen}
        best = _most_missed(tried)
        chosen, cut = [*chosen, best], tried[best]
    while cut.mean() <= enough and len(chosen) > 1:
        tried = {one: without([other for other in chosen if other != one]) for one in chosen}
        best = _most_missed(tried)
        if tried[best].mean() > enough:
            break
        chosen, cut = [one for one in chosen if one != best], tried[best]
    return Partners(tuple(chosen), cut, without(chosen, back=2), bool(cut.mean() <= enough))


def _most_missed(tried: dict[Head, np.ndarray]) -> Head:
    return min((float(cut.mean()), one) for one, cut in tried.items())[1]


def _without(seen: dict[str, Tensor], layer: int, back: int) -> Float[Tensor, "batch pos head d_head"]:
    """Every head's z of a layer, with what it brings from `back` tokens before at its mean over the other sequences."""
    pattern, v, z = (seen[f"blocks.{layer}.attn.hook_{name}"] for name in ("pattern", "v", "z"))
    v = v.repeat_interleave(z.shape[2] // v.shape[2], 2)
    part = torch.zeros_like(z)
    part[:, back:] = pattern.diagonal(-back, 2, 3).transpose(1, 2)[..., None] * v[:, :-back]
    return z - part + mean_of_others(part.sum(0), len(part), part, torch.arange(len(part), device=z.device))


def _with_ends(one: Estimate) -> str:
    """The mean, and its interval where there is one."""
    return number(one.mean) if math.isnan(one.low) else f"{number(one.mean)} [{number(one.low)}, {number(one.high)}]"
