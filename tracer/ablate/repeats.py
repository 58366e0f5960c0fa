"""Which tokens of rows that repeat themselves were there before: read off the tokens, whatever the periods."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tracer.data.probes import Tokens
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import visiting
from tracer.model.protocol import HeadModel


@dataclass(frozen=True)
class Repeats:
    """Rows of a start token and random tokens that come again, each row with a period of its own."""

    tokens: Tokens

    @cached_property
    def _equal(self) -> Bool[Tensor, "batch query_pos key_pos"]:
        """Is the token at key_pos the same one, earlier, and not the start token?"""
        equal = self.tokens[:, :, None] == self.tokens[:, None, :]
        return equal.tril(-1) & (self.tokens != self.tokens[:, :1])[:, :, None]

    @property
    def seen(self) -> Bool[Tensor, "batch pos"]:
        """Tokens that were there before: the query rows from which an induction head knows what comes next."""
        return self._equal.any(-1)

    @property
    def matches(self) -> Bool[Tensor, "batch query_pos key_pos"]:
        """The keys after an earlier copy of the query's own token: where prefix matching looks."""
        return torch.nn.functional.pad(self._equal, (1, 0))[..., :-1]

    @property
    def again(self) -> Bool[Tensor, "batch loss_pos"]:
        """Loss positions whose next token followed the same token before."""
        return (self._equal[:, 1:, 1:] & self._equal[:, :-1, :-1]).any(-1)

    @property
    def new(self) -> Bool[Tensor, "batch loss_pos"]:
        """Loss positions, but the first, whose token and next token are both new: the control of `again`."""
        new = ~self.seen[:, :-1] & ~self.seen[:, 1:]
        new[:, 0] = False
        return new

    @cached_property
    def periods(self) -> tuple[int, ...]:
        """How far back the latest copies of tokens that come again are: each distance that occurs, in order."""
        places = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        back = places - torch.where(self._equal, places, -1).amax(-1)
        return tuple(int(period) for period in back[self.seen].unique())

    def without(self, d_vocab: int, times: int = 1, seed: int = 0) -> Tokens | None:
        """The same rows, `times` each, with new tokens in place of those that were there before; None for lack of them.

        What mean and resample put in a head's place: on rows that all repeat, a head that only says so writes the same.
        """
        rng, rows = np.random.default_rng(seed), []
        for row, seen in zip(self.tokens.cpu().numpy(), self.seen.cpu().numpy(), strict=True):
            new = np.setdiff1d(np.arange(d_vocab), row)
            if len(new) < seen.sum():
                return None
            for _ in range(times):
                rows.append(row.copy())
                rows[-1][seen] = rng.permutation(new)[: seen.sum()]
        return torch.from_numpy(np.stack(rows)).to(self.tokens)

    def chance(self) -> float:
        """Prefix matching of attention that is uniform over the keys up to the query."""
        keys = torch.arange(1, self.tokens.shape[1] + 1, device=self.tokens.device)
        return float((self.matches.sum(-1) / keys)[self.seen].mean())

    def attention(self, model: HeadModel, read: Tokens | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Prefix matching where tokens come again, and attention to the token before, of each sequence,
        [batch layer head], under the edits in force; nan where a layer has fewer heads.

        `read`: the model reads these instead, a control without repeats, and the same keys are counted.
        """
        found = np.full((2, len(self.tokens), model.n_layers, model.n_heads), np.nan)

        def visit(call: AttentionCall) -> None:
            stats = call.stats(self.tokens)
            here = (slice(None), call.layer, call.heads)
            found[0][here] = by_row(stats["induction"], self.seen[:, None])
            found[1][here] = stats["previous_token"][..., 1:].double().mean(-1).cpu().numpy()

        with visiting(visit):
            model(self.tokens if read is None else read)
        return found[0], found[1]


def by_row(values: Float[Tensor, "*batch pos"], where: Bool[Tensor, "*#batch pos"]) -> Float[np.ndarray, "*batch"]:
    """Of each sequence the mean over the positions that are marked."""
    values, where = torch.broadcast_tensors(values.double(), where)
    return (values.masked_fill(~where, 0).sum(-1) / where.sum(-1)).cpu().numpy()
