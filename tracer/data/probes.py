"""Fixed batches whose right answers are known, and the losses read from them.

`per_token_loss[:, j]` is the loss at position j, which predicts token j + 1.
Probe R is [BOS, a filler, s_1 .. s_L, a filler, s_1 .. s_L], all of it distinct random tokens but for the second copy,
at positions 2L+1 .. 3L. The fillers have L tokens together, cut at another place in each row: so the copies are a
period of L to 2L apart, and no fixed distance finds more than a few of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.config.field_docs import fields_in_help
from tracer.measures import period

PROBE_SEED = 20220923
STRIDE = 2
CONTROL_ROWS = 16
"""Of Probe R: its first half, which spans the periods, is read without its repeat too, and gives first_copy_loss."""

Loss = Float[Tensor, "batch loss_pos"]
Tokens = Int[Tensor, "batch pos"]


@fields_in_help
@dataclass(frozen=True)
class ProbeR:
    """A fixed batch of tokens that repeat, and of the same positions without a repeat."""

    tokens: Tokens
    """The start token, a random block, and the block again."""
    period: int
    """L, the length of the repeated block and the shortest of the periods."""
    periods: Int[Tensor, " batch"]
    """How far the two copies are apart, by row."""
    control: Tokens
    """The same rows with new tokens in place of the second copy: what is looked at all the same is a place, and what
    heads write here is what mean and resample put in their place on `tokens`."""

    @property
    def second_copy(self) -> slice:
        """The query rows 2L+1 .. 3L, all seen before; with a period p an induction head attends to key q - p + 1."""
        n = self.tokens.shape[1]
        return slice(n - self.period, n)

    @property
    def predictable(self) -> slice:
        """The loss positions 2L+1 .. 3L-1, which an induction head gets right (2L itself has a random target)."""
        n = self.tokens.shape[1]
        return slice(n - self.period, n - 1)


def repeated(
    d_vocab: int, n_ctx: int, bos: int = 0, *, seed: int = PROBE_SEED, batch: int = 32, at: int | None = None
) -> ProbeR:
    """Probe R: a start token and a block of distinct random tokens, twice, with periods spread evenly over the rows.

    Source: Olsson et al. 2022, Methods; the mixed periods and the control are ours. Drawn without replacement, so that
    each token has exactly one earlier copy (of 2 tokens beside bos, the control's new one is the filler). With `at`
    every row has that one period, a block as long, and no filler. Errors: ValueError where there is no room.
    """
    if not 0 <= bos < max(d_vocab, 1):
        raise ValueError(f"bos={bos} is no token of a vocabulary of d_vocab={d_vocab}")
    others, rng = np.delete(np.arange(max(d_vocab, 1)), bos), np.random.default_rng(seed)
    length = period(d_vocab, n_ctx) if at is None else at
    spare = length if at is None else 0
    if length < 1 or d_vocab < 3 or at and (2 * at >= n_ctx or 2 * at > len(others)):
        needs = "n_ctx >= 4, d_vocab >= 3" if at is None else f"n_ctx and d_vocab >= {2 * at + 1} for a period of {at}"
        raise ValueError(f"n_ctx={n_ctx} and d_vocab={d_vocab} leave no room for a repeat: {needs}")
    spread = np.linspace(0, spare, batch).round().astype(np.int64)
    between = np.concatenate([spread[i::STRIDE] for i in range(STRIDE)])  # the first rows alone span the periods too
    rows, new = [], []
    for after in between:
        drawn = np.resize(rng.permutation(others)[: spare + 2 * length], spare + 2 * length)
        filler, block, fresh = np.split(drawn, [spare, spare + length])
        start = [bos, *filler[after:], *block, *filler[:after]]
        rows.append([*start, *block])
        new.append([*start, *fresh])
    return ProbeR(torch.tensor(rows), length, torch.from_numpy(length + between), torch.tensor(new))


def second_copy(period: int) -> slice:
    """Query rows 2L+1 .. 3L of Probe R."""
    return slice(2 * period + 1, 3 * period + 1)


def predictable(period: int) -> slice:
    """Loss positions 2L+1 .. 3L-1 of Probe R."""
    return slice(2 * period + 1, 3 * period)


def new_tokens(period: int) -> slice:
    """Loss positions 1 .. 2L-1 of Probe R, whose targets stand there for the first time."""
    return slice(1, 2 * period)


def per_token_loss(
    logits: Float[Tensor, "batch pos d_vocab"], tokens: Int[Tensor, "batch token_pos"]
) -> Float[Tensor, "batch loss_pos"]:
    """Cross-entropy in nats of each next token; entry j is the loss at position j, for token j + 1.

    Source: transformer_lens.utils.lm_cross_entropy_loss(per_token=True). tokens may be one longer than the logits.
    """
    n = logits.shape[1]
    targets = torch.nn.functional.pad(tokens[:, 1:], (0, max(0, n + 1 - tokens.shape[1])))[:, :n]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # All rows flat, the one without a target too: slicing it off first would copy every logit.
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return loss.view(targets.shape)[:, : tokens.shape[1] - 1]


def mean_loss(
    loss: Loss, counted: Bool[Tensor, "batch loss_pos"] | None, dim: int | None = None
) -> Float[Tensor, "*any"]:
    """Mean over the targets that count (None: all), along an axis or over both; nan where none does."""
    if counted is None:
        return loss.mean() if dim is None else loss.mean(dim)
    return loss.where(counted, 0.0).sum(dim) / counted.sum(dim)


def repeat_loss(loss: Loss, period: int) -> Float[Tensor, ""]:
    """Mean loss on the tokens of Probe R that can be copied: s_2 .. s_L of the second copy.

    Source: Olsson et al. 2022; nan when period is 1, where nothing is predictable.
    """
    return loss[:, predictable(period)].mean()


def first_copy_loss(loss: Loss, period: int) -> Float[Tensor, ""]:
    """Mean loss on the tokens before the second copy, all new; ln(d_vocab) for a model that knows nothing.

    Source: ours, the control of repeat_loss.
    """
    return loss[:, new_tokens(period)].mean()


def standard_error(per_row: Float[Tensor, "batch *any"]) -> Float[Tensor, "*any"]:
    """Of the mean over rows, from how the rows differ: sd / sqrt(batch); nan for fewer than two."""
    if len(per_row) < 2:  # torch warns of the variance of none
        return per_row.new_full(per_row.shape[1:], torch.nan)
    return (per_row.var(0, correction=0) / (len(per_row) - 1)).sqrt()


@fields_in_help
@dataclass(frozen=True)
class ContextProbe:
    """The same tokens of held-out text twice: at the end of a full context, and after the few tokens before them."""

    full: Int[Tensor, "batch pos"]
    """Rows of n_ctx + 1 tokens, of which the last `width` are predicted."""
    short: Int[Tensor, "batch short_pos"]
    """The ends of these rows, with a start token in front where the row has one."""
    width: int
    """Tokens at the end of a row that are predicted."""
    counted: Bool[Tensor, "batch width"] | None = None
    """Which of the predicted tokens count; None: all."""

    def losses(self, logits: Float[Tensor, "batch width d_vocab"]) -> Float[Tensor, "batch width"]:
        """Losses of the predicted tokens, from the logits of the last `width` positions of `full` or `short`."""
        losses = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), self.full[:, -self.width :].flatten(), reduction="none"
        )
        return losses.view(-1, self.width)


def in_context(
    rows: Int[Tensor, "batch pos"], bos: int | None, counted: Bool[Tensor, "batch loss_pos"] | None = None
) -> ContextProbe:
    """The last eighth of rows of n_ctx + 1 tokens, after all that comes before it and after a tenth of the context.

    Source: ours, after Olsson et al. 2022: predicting the same tokens twice takes away what makes one text harder than
    another, of which the difference between two places of a text is made almost entirely.
    """
    n_ctx = rows.shape[1] - 1
    width, before = max(1, n_ctx // 8), max(1, round(0.1 * n_ctx))
    short = rows[:, -width - before :].clone()
    if bos is not None:
        short[rows[:, 0] == bos, 0] = bos
    return ContextProbe(rows, short, width, None if counted is None else counted[:, -width:])


def icl_score(
    late: Float[Tensor, "batch width"], early: Float[Tensor, "batch width"],
    counted: Bool[Tensor, "batch width"] | None = None,
) -> Float[Tensor, " batch"]:  # fmt: skip
    """Mean loss of each row's tokens with all of the context minus with a tenth of it; negative: context helps.

    Source: Olsson et al. 2022, "in-context learning score", there of one late and one early token. For Probe C.
    """
    return mean_loss(late - early, counted, 1)
