"""The verdict card of one head: which of Olsson's tests of an induction head it passes, with every number.

1. Prefix matching: on repeated random tokens, attention to what followed the same token before (Probe R).
2. Copying: eigenvalues of W_E OV W_U.
3. Ablation: what repeated tokens cost without it, with each of the three replacements.
4. Its partner: the earlier head whose output its keys read most (K-composition), which should attend one token back;
   and what is left of its prefix matching when only that path is cut.

Source: Olsson et al. 2022, "In-context Learning and Induction Heads"; Elhage et al. 2021. 1 and 2 are the definition of
an induction head, 3 and 4 say what it is for and how it comes about.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tracer.ablate.effects import effect
from tracer.ablate.estimates import Estimate, estimate
from tracer.ablate.outcomes import agree
from tracer.ablate.parts import Head, Path, check_heads, name
from tracer.ablate.repair import self_repair
from tracer.ablate.replace import MODES, averaged, planner, refuse_other_things
from tracer.analysis.composition import composition, copying, random_composition, random_copying
from tracer.analysis.prompt_attention import induction as mean_induction
from tracer.data.probes import Probe, repeated
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import visiting
from tracer.measures import MEASURES, Setting
from tracer.model import Transformer
from tracer.model.protocol import HeadModel
from tracer.store import Run, open_run

STRONG = 0.4
"""Attention from which a head counts as doing it: ARENA 1.2's threshold for induction and previous-token heads."""
COPIES = 0.5
"""Copying from which a head counts as copying. Ours: halfway to a head that copies every token."""
SIGMAS = 3.0
"""How far above random heads a number made of weights must be, in their standard deviations. Ours."""
CARRIES = 0.25
"""Share of its prefix matching that must go when only its partner's path is cut: two partners may share it. Ours."""
SEQUENCES = 32


@dataclass(frozen=True)
class Finding:
    """One test of a head; `passed` is None, and the number nan, where this model does not let it be measured."""

    name: str
    value: float
    low: float
    """95 % interval over sequences; nan for a number that is read off the weights."""
    high: float
    chance: float
    passed: bool | None
    sentence: str

    def __str__(self) -> str:
        mark = {True: "pass", False: "fail", None: "  - "}[self.passed]
        numbers = (
            "" if math.isnan(self.value) else f"{number(self.value):>6}{self._interval:18} chance {number(self.chance)}"
        )
        return f"{mark}  {self.name:24}{numbers}".rstrip() + "\n" + indented(self.sentence)

    @property
    def _interval(self) -> str:
        return "" if math.isnan(self.low) else f" [{number(self.low)}, {number(self.high)}]"


@dataclass(frozen=True)
class Verdict:
    """What the tests say of one head; `str` of it is the card in text."""

    head: Head
    model: str
    """The run and step, or the class of a model that is in no run."""
    tests: tuple[Finding, ...]
    effects: dict[str, Estimate]
    """Change in loss on repeated tokens with the head off, in nats, by replacement."""
    partner: Head | None
    """The earlier head whose output its keys read most, if that is measured."""
    previous_token: float
    """Its own attention to the previous token, on the same sequences."""
    repair: str | None
    """Self-repair in words, where its effect is small and its direct effect is large."""
    snippet: str
    """Python that computes this again."""

    @property
    def passed(self) -> int:
        return sum(test.passed is True for test in self.tests)

    @property
    def is_induction_head(self) -> bool:
        """Does it match prefixes and copy (Olsson et al.'s definition)?"""
        return all(test.passed is True for test in self.tests[:2])

    @property
    def headline(self) -> str:
        measured = sum(test.passed is not None for test in self.tests)
        what = "an induction head" if self.is_induction_head else "not an induction head"
        if not self.is_induction_head and self.tests[0].passed and self.tests[1].passed is None:
            what = "a prefix-matching head, whose copying is not measured here"
        elif not self.is_induction_head and self.previous_token >= STRONG:
            what = f"a previous-token head ({self.previous_token:.2f} of its attention), not an induction head"
        return f"{name(self.head)} of {self.model} is {what}: {self.passed} of {measured} tests passed"

    def __str__(self) -> str:
        lines = [self.headline, *map(str, self.tests)]
        if self.repair:
            lines.append(indented(self.repair))
        return "\n".join([*lines, "", self.snippet])


def number(x: float) -> str:
    """Two decimals, and no minus in front of 0.00."""
    return f"{x:.2f}".replace("-0.00", "0.00")


def indented(text: str) -> str:
    """A paragraph under a line of the card."""
    return textwrap.fill(text, 110, initial_indent=" " * 6, subsequent_indent=" " * 6)


@torch.no_grad()
def verdict(
    run_or_model: Run | str | HeadModel,
    layer: int,
    head: int,
    step: int | None = None,
    *,
    sequences: int = SEQUENCES,
) -> Verdict:
    """Put one head to the tests, at one step of a run (or its name; default: its last snapshot) or in a model.

    `sequences` of Probe R carry the intervals. A run's clamps hold here. Errors: ValueError for a
    head or a step that does not exist.
    """
    if isinstance(run_or_model, str):
        run_or_model = open_run(run_or_model)
    if isinstance(run_or_model, Run):
        step = run_or_model.steps[-1] if step is None and run_or_model.steps else step
        model, called = run_or_model.model(step), f"{run_or_model.name} at step {step}"
        opened = f"tracer.open_run({str(run_or_model.dir.resolve())!r})"
    elif step is not None:
        raise ValueError(f"step={step} needs a run; a model is what it is: leave `step` out")
    else:
        model, called, opened = run_or_model, f"this {type(run_or_model).__name__}", "model"
    refuse_other_things(model)
    check_heads(model, [(layer, head)])
    probe = repeated(model.d_vocab, model.n_ctx, getattr(model, "bos", None) or 0, batch=sequences)
    induction, previous = _attention(model, probe)
    effects = {mode: effect(model, probe.tokens, [(layer, head)], mode).over(probe.predictable) for mode in MODES}
    partner, partner_test = _partner(model, probe, (layer, head), induction, previous)
    repaired = _repaired(model, probe, (layer, head))
    asked = "" if step is None else f", step={step}"
    sized = "" if sequences == SEQUENCES else f", sequences={sequences}"
    return Verdict(
        (layer, head), called,
        (_prefix_matching(model, probe, (layer, head), induction), _copying(model, (layer, head)),
         _ablation(effects), partner_test),
        effects, partner, float(previous[:, layer, head].mean()), repaired,
        f"import tracer\nfrom tracer.ablate import verdict\n\n"
        f"print(verdict({opened}, {layer}, {head}{asked}{sized}))",
    )  # fmt: skip


def _prefix_matching(
    model: HeadModel, probe: Probe, head: Head, induction: Float[Tensor, "batch layer head"]
) -> Finding:
    """Passed when the score is high, and beyond doubt higher than the same keys get where nothing repeats."""
    found = estimate(induction[:, *head].cpu().numpy())
    control = float(mean_induction(model, probe.control, probe.second_copy, repeats=probe.tokens)[head])
    chance = MEASURES["induction"].at_chance(Setting(model.n_ctx, probe.period, model.d_vocab)) or 0.0
    passed = found.mean >= STRONG and not found.low <= max(chance, control)
    return Finding(
        "prefix matching", found.mean, found.low, found.high, chance, passed,
        f"Where random tokens repeat, {probe.period} to {2 * probe.period} tokens apart, {found.mean:.2f} of its "
        f"attention goes to the token that came next last time; {STRONG} is needed. The same places get {control:.2f} "
        "where nothing repeats.",
    )  # fmt: skip


def _copying(model: HeadModel, head: Head) -> Finding:
    reason = _no_weights(model)
    if reason is None and isinstance(model, Transformer) and model.config.unembed_hidden:
        reason = "the unembedding is an MLP, so there is no W_U"
    if reason is not None:
        return _unmeasured("copying", reason)
    assert isinstance(model, Transformer)
    _, _, W_V, W_O, W_E, W_U = model.head_weights()
    assert W_U is not None
    layer, index = head
    one = slice(index, index + 1)
    value = float(copying(W_V[layer, one][None], W_O[layer, one][None], W_E, W_U))
    mean, sd = random_copying(W_E, W_U, model.config.head_width)
    passed = value >= COPIES and value > mean + SIGMAS * sd
    return Finding(
        "copying", value, math.nan, math.nan, mean, passed,
        f"From −1 to 1: near 1, a token that it looks at becomes likelier to come next. Random heads have "
        f"{number(mean)}, give or take {sd:.2f}; {COPIES} is needed. It is the sum of the eigenvalues of W_E OV W_U "
        "over the sum of their sizes, norms left out.",
    )  # fmt: skip


def _ablation(effects: dict[str, Estimate]) -> Finding:
    """Passed when the loss rises beyond doubt whatever stands in for the head; the number is the middle one."""
    middle = sorted(effects.values(), key=lambda e: e.mean)[1]
    passed = all(e.low > 0 for e in effects.values())
    numbers = ", ".join(f"{mode} {number(e.mean)} [{number(e.low)}, {number(e.high)}]" for mode, e in effects.items())
    together = "" if agree(effects) else " They differ by more than their intervals: what stands in for a head matters."
    return Finding(
        "ablation", middle.mean, middle.low, middle.high, 0.0, passed,
        f"Loss on repeated tokens without it, in nats: {numbers}.{together}",
    )  # fmt: skip


def _partner(
    model: HeadModel, probe: Probe, head: Head, induction: Tensor, previous: Tensor
) -> tuple[Head | None, Finding]:
    layer, index = head
    reason = _no_weights(model)
    if reason is None and layer == 0:
        reason = "there is no layer before the first, so its keys read no other head"
    if reason is not None:
        return None, _unmeasured("previous-token partner", reason)
    assert isinstance(model, Transformer)
    found = composition("k", *model.head_weights()[:4])[:layer, :, layer, index]
    best = int(found.argmax())
    partner = (best // model.n_heads, best % model.n_heads)
    mean, sd = random_composition(model.config.d_model, model.config.head_width)
    value, back = float(found[partner]), float(previous[:, partner[0], partner[1]].mean())
    plans = planner(model, probe.tokens, "mean")([Path(partner, head, "k")])
    cut = float(averaged(plans, lambda: _attention(model, probe)[0][:, layer, index].mean()))
    whole = float(induction[:, layer, index].mean())
    passed = value > mean + SIGMAS * sd and back >= STRONG and cut < (1 - CARRIES) * whole
    shared = " Other heads share this work." if passed and cut > whole / 2 else ""
    rotated = " The rotation of q and k is left out." if model.config.positions == "rotary" else ""
    return partner, Finding(
        "previous-token partner", value - mean, math.nan, math.nan, 0.0, passed,
        f"Of all earlier heads its keys read {name(partner)} most (K-composition {value:.3f}; random heads {mean:.3f}, "
        f"standard deviation {sd:.3f}), which puts {back:.2f} of its attention on the previous token; {STRONG} is "
        f"needed. With only that path at its mean, prefix matching goes from {whole:.2f} to {cut:.2f}."
        f"{shared}{rotated}",
    )  # fmt: skip


def _repaired(model: HeadModel, probe: Probe, head: Head) -> str | None:
    """Self-repair in words, where there is a direct effect to speak of."""
    if _no_weights(model) is not None or not isinstance(model, Transformer) or model.config.unembed_hidden:
        return None
    return self_repair(model, probe.tokens, head, loss_positions=probe.predictable).words()


def _no_weights(model: HeadModel) -> str | None:
    """Why circuits cannot be read off this model's weights, or None."""
    if not isinstance(model, Transformer):
        return f"the weights of a {type(model).__name__} are laid out as its author wished"
    if not model.config.residual or (model.config.norm != "none" and model.config.norm_position == "post"):
        return "heads are not joined by a residual stream that is their plain sum, so products of weights say nothing"
    return None


def _unmeasured(test: str, reason: str) -> Finding:
    return Finding(test, math.nan, math.nan, math.nan, math.nan, None, f"Not measured: {reason}.")


def _attention(model: HeadModel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Induction score and previous-token attention of each sequence, [batch layer head], under the edits in force."""
    shape = (len(probe.tokens), model.n_layers, model.n_heads)
    found = tuple(torch.full(shape, math.nan) for _ in range(2))

    def visit(call: AttentionCall) -> None:
        stats = call.stats(probe.tokens)
        where = (slice(None), call.layer, slice(call.first_head, call.first_head + call.n_heads))
        found[0][where] = stats["induction"][..., probe.second_copy].mean(-1).float().cpu()
        found[1][where] = stats["previous_token"][..., 1:].mean(-1).float().cpu()

    with visiting(visit):
        model(probe.tokens)
    return found[0], found[1]
