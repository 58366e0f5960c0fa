"""What a watched update shows beside its numbers: which batch it took, what it is trained to predict, what moved.

1. A fingerprint of every batch: is it the one before?
2. Tokens counted, for the losses of simple predictors: frequencies, pairs, copying.
3. On the batch of a record, the cross-entropy of the logits against other targets than the next token (`TARGETS`): the
   one that equals the loss is what the model is trained on.
4. Which rows of that batch give the logits a gradient.
5. Between two records, the weights that are still what they were, to the bit.

All of it reads what is there, and neither changes nor waits for anything but on the CPU and at a record.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from tracer.data.counting import EACH
from tracer.diagnosis.objective import NEXT, TARGETS
from tracer.hooks.inputs import Inputs, batch_axis_first, logits_of
from tracer.torch_internals import tree_flatten

SAMPLED = 4096
"""Numbers of a tensor that are looked at, at equal distances."""
MOST_LOGITS = 1 << 24
"""Numbers that are compared with targets, of as many positions as have no more."""
BLANK = -100
IS_ONE = 1e-2
"""Distance from 1 within which numbers of half precision sum to 1."""
PRIME = 2**31 - 1
"""Products of two numbers below it fit into 64 bits."""
COUNTED = ("unigram_loss", "bigram_loss", "copy_loss", "common_token")
"""What is known of a record's batch by counting."""
MOST_PAIRED, PRIOR = 512, 4.0
"""Kinds of tokens of which pairs are counted, and how many pairs their frequencies count for beforehand."""


class Signs:
    """Of one model in training."""

    def __init__(self, model: nn.Module) -> None:
        self._rows_first = batch_axis_first(model)
        self._inputs: Inputs | None = None
        self._prints: Tensor | int | None = None
        self._tokens = Counted()
        self._at: int | None = None
        """Which of the tensors that the model is called with holds the tokens."""
        self._losses: list[Tensor] = []
        self._counted: list[tuple[float, float, float, float]] = []
        self._silent: list[Tensor] = []
        self._weights: dict[str, Tensor] = {}

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any], record: bool) -> None:
        """The model is called in training; `record`: a record waits for this update."""
        self._inputs = None
        leaves = [x for x in tree_flatten((args, kwargs))[0] if type(x) is Tensor and x.numel()]
        if not leaves or _captured(leaves[0]):
            return
        for leaf in leaves:  # all of them: the first may be a mask, which is the same at every update
            print_ = fingerprint(leaf)
            self._prints = print_ if self._prints is None else (self._prints * 31 + print_) % PRIME
        if record:
            self._inputs = Inputs.of(args, kwargs)
            self._at = _place(self._inputs.tokens, leaves)
        if self._at is not None and self._at < len(leaves) and (record or leaves[0].device.type == "cpu"):
            self._count(leaves[self._at], record)

    def returned(self, output: Any) -> None:
        """The model has returned, for the update that a record waits for."""
        inputs, self._inputs = self._inputs, None
        if inputs is None or inputs.tokens is None:
            return
        logits = logits_of(output, inputs.tokens)
        if type(logits) is not Tensor:
            return
        self._losses.append(shifted_losses(logits.detach(), inputs.tokens))
        if logits.requires_grad and self._rows_first:
            logits.register_hook(self._gradient)

    def print_of_update(self) -> Tensor | float | int:
        """The fingerprint of what the model was called with since this was last asked."""
        found, self._prints = self._prints, None
        return float("nan") if found is None else found

    def row(self) -> dict[str, Any]:
        """What there is to record of the update that a record waited for."""
        row: dict[str, Any] = {}
        if self._losses:
            row["shifted_loss"] = torch.stack(self._losses).mean(0).cpu().numpy()
        if self._counted:
            row |= zip(COUNTED, np.array(self._counted).mean(axis=0).tolist(), strict=True)
        if self._silent:
            row["silent_rows"] = float(torch.stack(self._silent).mean())
        self._losses, self._counted, self._silent = [], [], []
        return row

    def _gradient(self, of_logits: Tensor | None) -> None:
        if of_logits is None:  # of a compiled graph, whose loss does not come from them
            return
        self._silent.append(1 - of_logits.detach().flatten(1).any(1).float().mean())

    def unmoved(self, params: Mapping[str, nn.Parameter]) -> float:
        """Share of weights that are what they were when this was last asked: the median over matrices."""
        now = {name: sample(p.detach()).clone() for name, p in params.items() if p.ndim > 1 and type(p.data) is Tensor}
        before, self._weights = self._weights, now
        shares = [(now[name] == old).float().mean() for name, old in before.items() if name in now]
        return float(torch.stack([x.cpu() for x in shares]).median()) if shares else float("nan")

    def _count(self, tokens: Tensor, record: bool) -> None:
        if tokens.ndim != 2 or tokens.shape[1] < 2 or not self._rows_first:
            return
        ids = tokens.cpu().numpy().astype(np.int64)
        ids = ids[(ids >= 0).all(axis=1)]
        if not ids.size:
            return
        if record and (found := self._tokens.losses(ids)):
            self._counted.append(found)
        self._tokens.count(ids)


class Counted:
    """How often tokens were seen, pairs of them where there are few kinds, and, at records, repetitions."""

    def __init__(self) -> None:
        self.single, self.pairs = np.zeros(0), np.zeros((0, 0))
        self.hits, self.tries = 0, 0
        """Of tokens that had stood in their row before: how often the same followed again."""

    def count(self, ids: np.ndarray) -> None:
        """Take these rows along."""
        if (more := int(ids.max()) + 1 - len(self.single)) > 0:
            self.single = np.pad(self.single, (0, more))
        self.single += np.bincount(ids.ravel(), minlength=len(self.single))
        if len(self.single) > MOST_PAIRED:
            return
        n = len(self.single)
        if n > len(self.pairs):
            self.pairs = np.pad(self.pairs, (0, n - len(self.pairs)))
        self.pairs += np.bincount((ids[:, :-1] * n + ids[:, 1:]).ravel(), minlength=n * n).reshape(n, n)

    def losses(self, ids: np.ndarray) -> tuple[float, float, float, float] | None:
        """COUNTED: mean loss of the next tokens of these rows by the frequencies so far, of single tokens, after each
        token (nan: too many kinds) and where a token is taken to be followed by what followed it last; and the share of
        the most frequent token of these rows. None before EACH tokens were seen for each kind, or with a new kind."""
        n = len(self.single)
        if not n or self.single.sum() < EACH * n or ids.max() >= n:
            return None
        share = (self.single + 1) / (self.single + 1).sum()
        alone, pairs = -np.log(share)[ids[:, 1:]], float("nan")
        if n <= MOST_PAIRED:
            after = (self.pairs + PRIOR * share) / (self.pairs.sum(1, keepdims=True) + PRIOR)
            pairs = float(-np.log(after[ids[:, :-1], ids[:, 1:]]).mean())
        again, same = _repeats(ids)
        trust = self.hits / (self.tries + 1)
        copied = np.where(again, -np.log(trust * same + (1 - trust) * share[ids[:, 1:]]), alone)
        self.hits, self.tries = self.hits + int(same.sum()), self.tries + int(again.sum())
        return float(alone.mean()), pairs, float(copied.mean()), np.bincount(ids.ravel()).max() / ids.size


def _repeats(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each token but the last of its row: did it stand there before, and does what followed it then follow again?"""
    again = np.zeros((len(ids), ids.shape[1] - 1), bool)
    same = again.copy()
    for row, tokens in enumerate(ids.tolist()):
        last: dict[int, int] = {}
        for at, (token, following) in enumerate(itertools.pairwise(tokens)):
            again[row, at], same[row, at] = token in last, last.get(token) == following
            last[token] = following
    return again, same


def sample(x: Tensor) -> Tensor:
    """Up to SAMPLED numbers of a tensor, at equal distances."""
    flat = x.reshape(-1) if x.is_contiguous() else x.flatten()
    return flat[:: max(1, -(-flat.numel() // SAMPLED))]


def fingerprint(x: Tensor) -> Tensor | int:
    """A number that two different tensors hardly share; equal ones always do. Of another device it stays there."""
    flat = sample(x.detach())
    if flat.device.type == "cpu":
        return zlib.crc32(flat.contiguous().view(torch.uint8).numpy().tobytes())
    if flat.is_floating_point():
        flat = flat.double().view(torch.int64)
    at = torch.arange(1, flat.numel() + 1, device=flat.device)
    return (((flat.to(torch.int64) + 1) % PRIME) * (at * 2654435761 % PRIME) % PRIME).sum() % PRIME


def shifted_losses(
    logits: Float[Tensor, "batch pos d_vocab"], ids: Int[Tensor, "batch pos"]
) -> Float[Tensor, "target"]:
    """Mean cross-entropy of the logits against each of TARGETS; of large batches on positions at equal distances."""
    n, blank = ids.shape[1], torch.full_like(ids, BLANK)
    back = ids.flip(1)
    targets = torch.stack([
        torch.cat([blank[:, :1], ids[:, :-1]], 1), ids, torch.cat([ids[:, 1:], blank[:, :1]], 1),
        torch.cat([ids[:, 2:], blank[:, : min(2, n)]], 1), back, torch.cat([back[:, 1:], blank[:, :1]], 1),
    ])  # fmt: skip
    stride = max(1, -(-logits.numel() // MOST_LOGITS))
    stride += stride > 1 and n % stride == 0  # else only some positions of a row would be seen
    chosen, targets = logits.flatten(0, 1)[::stride].float(), targets.flatten(1)[:, ::stride]
    given = bool((chosen >= 0).all()) and bool(((chosen.sum(-1) - 1).abs() < IS_ONE).all())  # the model's own softmax
    logs = chosen.clamp_min(torch.finfo().tiny).log() if given else F.log_softmax(chosen, -1)
    found = [F.nll_loss(logs, one, ignore_index=BLANK) for one in targets]
    found = torch.stack([*found, F.cross_entropy(logs.exp(), targets[NEXT], ignore_index=BLANK)])
    assert len(found) == len(TARGETS)
    return found


def _place(tokens: Tensor | None, leaves: list[Tensor]) -> int | None:
    """Where the tokens are among the tensors of a call."""
    if tokens is None:
        return None
    return next(
        (i for i, x in enumerate(leaves) if x.data_ptr() == tokens.data_ptr() and x.shape == tokens.shape), None
    )


def _captured(x: Tensor) -> bool:
    """Is a CUDA graph being captured, in which nothing can be read?"""
    return x.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
