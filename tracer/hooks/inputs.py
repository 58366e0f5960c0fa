"""What a model was called with, kept so that it can be called that way again: on fewer rows, or on other tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from tracer.torch_internals import FakeTensor, tree_flatten, tree_leaves, tree_unflatten


def has_values(x: Tensor) -> bool:
    """Are there numbers in it? Not where it is empty, nor in a dry run (device "meta", FakeTensorMode)."""
    return x.numel() > 0 and not x.is_meta and not isinstance(x, FakeTensor)


def is_blind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is nothing to be seen in a call: its first tensor is empty, or some tensor is that of a dry run?"""
    given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    return bool(given) and (given[0].numel() == 0 or any(x.is_meta or isinstance(x, FakeTensor) for x in given))


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call, and the precision it ran in; `tokens` are the ids in it, if there are any."""

    leaves: tuple[Any, ...]
    spec: Any
    tokens: Int[Tensor, "batch pos"] | None
    autocast: tuple[str, torch.dtype] | None = None
    """Device and dtype of torch.autocast around the call."""

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
        leaves, spec = tree_flatten((args, kwargs))
        device = next((x.device.type for x in leaves if isinstance(x, Tensor)), "cpu")
        autocast = (device, torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else None
        leaves = tuple(x.detach() if isinstance(x, Tensor) else x for x in leaves)
        return cls(leaves, spec, _ids(leaves), autocast)

    @property
    def batch(self) -> int | None:
        """Length of the first axis of the first tensor."""
        return next((len(x) for x in self.leaves if isinstance(x, Tensor) and x.ndim), None)

    def rows(self, n: int) -> Inputs:
        """The first n sequences, copied: every tensor that is as long as the first one is cut."""
        batch = self.batch

        def cut(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            return (x[:n] if x.ndim and len(x) == batch else x).clone()

        return self._map(cut)

    def first_row_twice(self) -> Inputs:
        """The same call with two rows, both the first: of all tensors that are as long as the first one."""
        batch = self.batch
        return self._map(lambda x: x[[0, 0]] if isinstance(x, Tensor) and x.ndim and len(x) == batch else x)

    def tensors(self) -> dict[str, Tensor]:
        """By their place in the call."""
        return {f"{i}": x for i, x in enumerate(self.leaves) if isinstance(x, Tensor)}

    def restored(self, kept: Mapping[str, Tensor]) -> Inputs:
        """The same call with tensors that were kept, by their place in it, of another one like it."""
        there = self.tensors()
        if there.keys() != kept.keys() or any(
            x.dtype != kept[i].dtype or x.ndim != kept[i].ndim for i, x in there.items()
        ):
            raise ValueError("the model is called with other arguments than when its run began; choose another run=")
        leaves = tuple(kept[f"{i}"].to(x.device) if isinstance(x, Tensor) else x for i, x in enumerate(self.leaves))
        return Inputs(leaves, self.spec, _ids(leaves), self.autocast)

    def with_tokens(self, tokens: Int[Tensor, "batch pos"]) -> Inputs | None:
        """The same call on other tokens; None when it has arguments whose value for other tokens nobody can know.

        Known are the ids themselves, the ids one place on (targets of the next token), a mask of ones, and positions.
        """
        if self.tokens is None:
            return None
        ids, (batch, pos) = self.tokens, tokens.shape
        new: list[Any] = []
        for x in self.leaves:
            if not isinstance(x, Tensor) or x.ndim == 0:
                new.append(x)
            elif x.shape != ids.shape:
                return None
            elif torch.equal(x, ids):
                new.append(tokens)
            elif bool((x == 1).all()):
                new.append(torch.ones(batch, pos, dtype=x.dtype, device=x.device))
            elif pos > 1 and torch.equal(x[:, :-1], ids[:, 1:]):
                new.append(tokens.roll(-1, 1))
            elif torch.equal(x, torch.arange(x.shape[1], device=x.device).expand_as(x)):
                new.append(torch.arange(pos, device=x.device).expand(batch, pos))
            else:
                return None
        return Inputs(tuple(new), self.spec, tokens, self.autocast)

    def run(self, model: Callable[..., Any]) -> Any:
        args, kwargs = tree_unflatten(list(self.leaves), self.spec)
        device, dtype = self.autocast or ("cpu", torch.bfloat16)
        with torch.autocast(device, dtype, enabled=self.autocast is not None):
            return model(*args, **kwargs)

    def _map(self, change: Callable[[Any], Any]) -> Inputs:
        leaves = tuple(change(x) for x in self.leaves)
        return Inputs(leaves, self.spec, _ids(leaves), self.autocast)


def _ids(leaves: Iterable[Any]) -> Tensor | None:
    """The first matrix of integers that is no mask (0 and 1) and has no blanks (-100); else the first one."""
    found = [x for x in leaves if isinstance(x, Tensor) and x.ndim == 2 and x.dtype in (torch.int64, torch.int32)]
    likely = (x for x in found if x.numel() and int(x.min()) >= 0 and int(x.max()) > 1)
    return next(likely, found[0] if found else None)


def logits_of(output: Any, tokens: Int[Tensor, "batch pos"]) -> Tensor | None:
    """The logits in a model's output: a float tensor [batch pos d_vocab] with a row for every token.

    None for a model that sorts tokens into fewer kinds than there are: it foretells none.
    """
    most = int(tokens.max()) if tokens.numel() else 0
    if getattr(output, "logits", None) is not None:
        leaves = [output.logits]
    else:
        leaves, _ = tree_flatten(tuple(output.values()) if isinstance(output, dict) else output)
    for x in leaves:
        if isinstance(x, Tensor) and x.is_floating_point() and x.ndim == 3 and x.shape[:2] == tokens.shape:
            return x if x.shape[2] > most else None
    return None


def loss_of(output: Any) -> Tensor | None:
    """A copy of the loss in a model's output, when it names it so or returns one scalar."""
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss.detach().clone()  # a CUDA graph writes its next output over this one
    leaves, _ = tree_flatten(output)
    scalars = [x for x in leaves if isinstance(x, Tensor) and x.ndim == 0 and x.is_floating_point()]
    return scalars[0].detach().clone() if len(scalars) == 1 else None


def batch_axis_first(model: nn.Module) -> bool:
    """Not in a model whose nn.MultiheadAttention, nn.LSTM, nn.GRU or nn.RNN was left at batch_first=False: its inputs
    are [pos batch d_model]."""
    kinds = (nn.MultiheadAttention, nn.RNNBase)
    return not any(isinstance(m, kinds) and not m.batch_first for m in model.modules())


def context(model: nn.Module) -> int | None:
    """Longest input, where the model's config says so."""
    config = getattr(model, "config", None)
    for name in ("max_position_embeddings", "n_positions", "n_ctx", "block_size", "max_seq_len"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None
