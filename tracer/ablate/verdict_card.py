"""The verdict card of one head: which of Olsson's tests of an induction head it passes, with every number.

1. Prefix matching: on repeated random tokens, attention to what followed the same token before (Probe R).
2. Copying: with the head on, the logit of the token that it looks at rises more than those of others.
3. Copying by its weights: eigenvalues of W_E OV W_U.
4. Ablation: what of the gain from repetition goes with it, with each of the three replacements.
5. Its partners: the earlier heads without whose news of the token before its prefix matching falls by half.
6. Behind other text: prefix matching where unrelated tokens stand before the first copy (`tracer.ablate.behind_text`).

Source: Olsson et al. 2022, "In-context Learning and Induction Heads"; Elhage et al. 2021; 6 is ours. 1 and 2 are the
definition of an induction head, the rest says what it is for, how it comes about and where it works. Tests of a user's
are rows besides, by which nothing is decided: `tracer.head_test`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from tracer.ablate import induction_tests as ours
from tracer.ablate.behind_text import BEHIND, behind_other_text
from tracer.ablate.effects import Effect, effect
from tracer.ablate.estimates import Estimate
from tracer.ablate.induction_tests import STRONG, HeadTest, indented
from tracer.ablate.outcomes import self_repair
from tracer.ablate.own_tests import Tests, asked_again, given_tests, own_test
from tracer.ablate.parts import check_heads, name
from tracer.ablate.planner import refuse_other_things
from tracer.ablate.repeats import Repeats
from tracer.config.field_docs import fields_in_help
from tracer.data.probes import PROBE_SEED, repeated
from tracer.huggingface.any_model import any_model
from tracer.interventions.replacements import MODES, MORE
from tracer.measures.aliases import Head
from tracer.model import Transformer
from tracer.model.protocol import HeadModel, device_of
from tracer.store import Run, open_run

SEQUENCES = 32


@fields_in_help
@dataclass(frozen=True)
class Verdict:
    """What the tests say of one head; `str` of it is the card in text."""

    head: Head
    """(layer, head), from 0 on."""
    model: str
    """The run and step, or the class of a model that is in no run."""
    tests: tuple[HeadTest, ...]
    """The six of ours, then those of a user's."""
    effects: dict[str, Estimate]
    """Change in loss on repeated tokens with the head off, in nats, by replacement."""
    partners: tuple[Head, ...]
    """The earlier heads that together carry its prefix matching, as far as they were found."""
    previous_token: float
    """Its own attention to the previous token, on the same sequences."""
    elsewhere: str
    """That attention in words, with the text that it was read on, and with what the run's trace has of another."""
    repair: str | None
    """Self-repair in words, where its effect is small and its direct effect is large."""
    snippet: str
    """Python that computes this again."""

    @property
    def passed(self) -> int:
        """Of all tests, a user's too."""
        return sum(test.passed is True for test in self.tests)

    @property
    def is_induction_head(self) -> bool:
        """Does it match prefixes and copy (Olsson et al.'s definition)?"""
        return all(test.passed is True for test in self.tests if test.defines)

    @property
    def headline(self) -> str:
        what = "an induction head" if self.is_induction_head else "not an induction head"
        measured = (test for test in self.tests if not test.code and not math.isnan(test.value))
        missed = {test.name for test in measured if test.passed is False}
        if self.is_induction_head and "ablation" in missed:
            what += " that others can stand in for"
        if self.is_induction_head and BEHIND in missed:
            what += ", but not behind other text"
        if not self.is_induction_head and self.previous_token >= STRONG:
            what = f"a previous-token head ({self.previous_token:.2f} of its attention here), not an induction head"
        return f"{name(self.head)} of {self.model} is {what}: {self._counted}"

    @property
    def _counted(self) -> str:
        """How many tests passed of those that could be measured; a user's apart, as the headline is none of theirs."""
        own = [test.passed for test in self.tests if test.code and test.passed is not None]
        known = [test.passed for test in self.tests if not test.code and test.passed is not None]
        said = f"{sum(known)} of {len(known)} tests passed"
        if not any(test.code for test in self.tests):
            return said
        return said + (
            f", and {sum(own)} of {len(own)} that were added" if own else ", none of those added could be measured"
        )

    def __str__(self) -> str:
        lines = [self.headline, *map(str, self.tests), indented(self.elsewhere)]
        if self.repair:
            lines.append(indented(self.repair))
        return "\n".join([*lines, "", self.snippet])


@any_model
@torch.no_grad()
def verdict(
    run_or_model: Run | str | HeadModel,
    layer: int,
    head: int,
    step: int | None = None,
    *,
    sequences: int = SEQUENCES,
    tokens: Int[Tensor, "batch pos"] | None = None,
    tests: Tests = (),
) -> Verdict:
    """Put one head to the tests, at one step of a run (or its name; default: its last snapshot) or in a model.

    `sequences` of Probe R carry the intervals, or `tokens`: rows of a start token and random tokens that come again,
    with any periods, to which there is no control of prefix matching without a repeat: the card says so. Mean
    and resample are taken from rows without a repeat: those of Probe R, or `tokens` with new ones in place of those
    that come again, where the vocabulary has as many. Rows behind other text are of the words of either. A run's clamps
    hold here.
    `tests`: rows of a user's (`tracer.head_test`, or `module:name` of one), in words where one cannot be measured.
    Errors: ValueError for a head or a step that does not exist, and for what is no such test.
    """
    added = given_tests(tests)
    if isinstance(run_or_model, str):
        run_or_model = open_run(run_or_model)
    if isinstance(run_or_model, Run):
        step = run_or_model.steps[-1] if step is None and run_or_model.steps else step
        model, called = run_or_model.model(step), f"{run_or_model.name} at step {step:,}"
        if getattr(model, "clamps", ()) and (held := _held(run_or_model, (layer, head), cast("int", step))):
            called += f", clamped ({held}),"
        opened = f"tracer.open_run({str(run_or_model.dir.resolve())!r})"
    elif step is not None:
        raise ValueError(f"step={step} needs a run; a model is what it is: leave `step` out")
    else:
        model, called, opened = run_or_model, f"this {type(run_or_model).__name__}", "model"
    refuse_other_things(model)
    check_heads(model, [(layer, head)])
    given, alike, reference, without = "" if tokens is None else ", tokens=tokens", None, None, None
    if tokens is None:
        there = device_of(cast("nn.Module", model))
        sizes = model.d_vocab, model.n_ctx, getattr(model, "bos", None) or 0
        probe = repeated(*sizes, batch=sequences)
        tokens, without = probe.tokens.to(there), probe.control.to(there)
        wide = repeated(*sizes, batch=MORE * sequences, seed=PROBE_SEED + 1)
        alike, reference = wide.tokens.to(there), wide.control.to(there)
    rows, chosen = Repeats(tokens), (layer, head)
    if reference is None:
        reference = rows.without(model.d_vocab, times=2)
    matching, previous = rows.attention(model)
    control = math.nan if without is None else float(rows.attention(model, without)[0][:, layer, head].mean())
    ablations: dict[str, Effect] = {
        mode: effect(model, tokens, [chosen], mode, reference=None if mode == "zero" else reference) for mode in MODES
    }
    ablated, effects = ours.ablation(rows, ablations, repeating=reference is None)
    partner_test, partners = ours.previous_token_partners(model, rows, chosen, matching, previous)
    own = float(previous[:, layer, head].mean())
    asked = "" if step is None else f", step={step}"
    sized = "" if sequences == SEQUENCES else f", sequences={sequences}"
    return Verdict(
        chosen, called,
        (
            ours.prefix_matching(rows, matching[:, layer, head], control),
            # beside rows that repeat, too: what it writes in all of them raises no token above another
            ours.copying_by_behaviour(model, rows, chosen, alike),
            ours.copying_by_weights(model, chosen), ablated, partner_test, behind_other_text(model, rows, chosen),
            *(own_test(one, model, chosen, tokens) for one in added),
        ),
        effects, partners, own, _elsewhere(run_or_model, chosen, step, own), _repaired(model, rows, chosen),
        f"import tracer\nfrom tracer.ablate import verdict\n\n"
        f"print(verdict({opened}, {layer}, {head}{asked}{sized}{given}{asked_again(tests)}))",
    )  # fmt: skip


def _held(run: Run, of: Head, step: int) -> str:
    """The clamps that hold a head of a run of ours at a step, in their words."""
    now = (one for one in run.config.clamps if one.held(step) and one.layer == of[0])
    return ", ".join(str(one) for one in now if one.head in (None, of[1]))


def _elsewhere(run: object, head: Head, step: int | None, own: float) -> str:
    said = f"Attention to the token before: {own:.2f} on these repeated random tokens"
    trace = run.trace if isinstance(run, Run) else {}
    if "previous_token" in trace and step in trace["step"].values:
        recorded = float(trace["previous_token"].sel(step=step, layer=head[0], head=head[1]))
        said += f", {recorded:.2f} on the run's held-out text, which its curves show"
    return f"{said}."


def _repaired(model: HeadModel, rows: Repeats, head: Head) -> str | None:
    """Self-repair in words, where there is a direct effect to speak of."""
    if model.why_no_stream or (isinstance(model, Transformer) and model.config.unembed_hidden):
        return None
    return self_repair(model, rows.tokens, head, loss_positions=rows.again).words()
