"""Does a head match prefixes wherever a copy stands, or near the start of a row only, where Probe R has its copies?

A row: a start token, F filler tokens, a block of L // 2 tokens, a gap, the same block, and filler up to one length. All
tokens but the second block are distinct, so nothing in the filler matches. The copies are a period of L to 3 L / 2
apart, L as in Probe R, each row at its own. The i-th rows of all amounts F have the same block and gap, so that as many
tokens come again, as far apart; F = 0 is the control.

Source: derived from a finding in papers/kawata: a model that was trained on copies near the start of its rows matches
prefixes there alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tracer.ablate.estimates import estimate, within
from tracer.ablate.induction_tests import STRONG, HeadTest, without_number
from tracer.ablate.planner import AT_ONCE
from tracer.ablate.repeats import Repeats, by_row
from tracer.data.probes import PROBE_SEED, Tokens
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import visiting
from tracer.measures.aliases import Head
from tracer.measures.setting import period
from tracer.model.protocol import HeadModel

BEHIND = "behind other text"
AMOUNTS = 3
"""Amounts of filler besides none: a third, two thirds and all of what there is room for. Ours."""
LONGEST = 256
"""Tokens of a row at most, so that four passes stay cheap where the context is long. Ours."""
SHORTEST = 4
"""The least L: a block of L // 2 tokens then has one to predict."""


def behind_filler(
    words: Int[Tensor, " words"], start: int, n_ctx: int, sequences: int, seed: int = PROBE_SEED
) -> dict[int, Tokens]:
    """Rows [sequences, pos] by their amount of filler in front, from none up; empty where there is no room.

    `words`: the tokens that are drawn from, each row without replacement, `start` not among them.
    """
    length = period(len(words) + 1, n_ctx)
    if length < SHORTEST:
        return {}
    block = length // 2
    most = min(min(n_ctx, LONGEST) - 1 - length - 2 * block, len(words) - length - block)
    rng, known = np.random.default_rng(seed), words.cpu().numpy()
    drawn = [rng.permutation(known)[: most + length + block] for _ in range(sequences)]
    gaps = length - block + np.linspace(0, block, sequences).round().astype(np.int64)
    rows = {}
    for amount in (round(i * most / AMOUNTS) for i in range(AMOUNTS + 1)):
        found = []
        for one, gap in zip(drawn, gaps, strict=True):
            again, between, filler = np.split(one, [block, block + gap])
            behind = filler[amount : amount + length - gap]
            found.append([start, *filler[:amount], *again, *between, *again, *behind])
        rows[amount] = torch.tensor(found).to(words)
    return rows


def behind_other_text(model: HeadModel, rows: Repeats, head: Head) -> HeadTest:
    """Prefix matching at the amount of filler where it is least; passed where every amount leaves it strong.

    The sentence also has the share of the second copy's tokens, but its first, that are the model's likeliest. Words
    are those of `rows`. Costs a forward pass an amount, and one without filler: 4.
    """
    start = int(rows.tokens[0, 0])
    words = rows.tokens.unique()
    by_amount = behind_filler(words[words != start], start, model.n_ctx, len(rows.tokens))
    if not by_amount:
        return without_number(
            BEHIND, None, f"Not measured: a context of {model.n_ctx} tokens and {len(words)} different ones leave "
            "no room for a copy behind other text.",
        )  # fmt: skip
    if len(rows.tokens) < 2:
        return without_number(BEHIND, None, "Not measured: one sequence has no interval.")
    read = {amount: _read(model, Repeats(tokens), head) for amount, tokens in by_amount.items()}
    matching = {amount: within(estimate(found)) for amount, (found, _) in read.items()}
    if matching[0].mean < STRONG:
        return without_number(
            BEHIND, False, f"Its prefix matching on such rows with nothing in front, {matching[0].mean:.2f}, leaves "
            "nothing to look for behind other text.",
        )  # fmt: skip
    chances = {amount: Repeats(tokens).chance() for amount, tokens in by_amount.items()}
    amounts = list(by_amount)
    worst = min(amounts[1:], key=lambda amount: matching[amount].mean)
    width = by_amount[0].shape[1] + amounts[-1]
    untried = f" Places from {width} on were not tried." if width < model.n_ctx else ""
    return HeadTest(
        BEHIND, matching[worst].mean, matching[worst].low, matching[worst].high, chances[worst],
        all(matching[one].mean >= STRONG and matching[one].low > chances[one] for one in amounts[1:]),
        f"Its prefix matching with {_listed(amounts)} unrelated tokens before the first copy: "
        f"{_listed(f'{one.mean:.2f}' for one in matching.values())}; {STRONG} is needed behind each. The model gets "
        f"{_listed(f'{right.mean():.0%}' for _, right in read.values())} of the copied tokens right.{untried}",
    )  # fmt: skip


def _listed(values: Iterable[object]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}"


def _read(model: HeadModel, rows: Repeats, head: Head) -> tuple[np.ndarray, np.ndarray]:
    """Of each sequence the head's prefix matching, and the share of copied tokens that the model predicts right."""
    layer, index = head
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for some in rows.tokens.split(max(1, AT_ONCE // (rows.tokens.shape[1] * model.d_vocab))):
        part, seen = Repeats(some), torch.zeros(some.shape, device=some.device, dtype=torch.float64)

        def visit(call: AttentionCall, part: Repeats = part, seen: Tensor = seen) -> None:
            if call.layer == layer and 0 <= index - call.first_head < call.n_heads:
                pattern = call.head(index - call.first_head).pattern()[:, 0, :, : call.positions]
                seen[:] = (pattern * part.matches).sum(-1)

        with visiting(visit):
            said = model(some)[:, :-1].argmax(-1)
        found.append((by_row(seen, part.seen), by_row((said == some[:, 1:]).double(), part.again)))
    matching, right = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return matching, right
