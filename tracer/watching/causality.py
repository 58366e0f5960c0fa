"""Does a model see the future, or other rows, and does it know where it is? Asked of it once in a while, on the kept
sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tracer.hooks.inputs import Inputs, logits_of
from tracer.hooks.sites import plain
from tracer.torch_internals import tree_unflatten

LAST = 16
"""Positions in front of the change whose logits are compared."""
MOST_LOGITS = 1 << 24


def future_effect(model: nn.Module, inputs: Inputs) -> float:
    """How much the logits in front of the middle of a row change as the tokens behind it are exchanged.

    Root mean square of the change, over the standard deviation of these logits: 0 where attention is causal. nan where
    the model reads no tokens or returns no logits, or all tokens are the same. Both runs take one path, uncompiled, so
    that no rounding differs. Source: the definition of a causal mask.
    """
    tokens = inputs.tokens
    if tokens is None or tokens.shape[1] < 4:
        return float("nan")
    half = tokens.shape[1] // 2
    changed = tokens.clone()
    changed[:, half:] = tokens[:, half:].flatten().roll(1).view_as(tokens[:, half:])
    if torch.equal(changed, tokens):
        return float("nan")
    with torch.compiler.set_stance("force_eager"):
        found = [logits_of(one.run(model), tokens) for one in (inputs, _on(inputs, changed))]
    if found[0] is None or found[1] is None:
        return float("nan")
    rows = max(1, MOST_LOGITS // (LAST * found[0].shape[-1]))
    before, after = (x[:rows, max(0, half - LAST) : half].float() for x in found if x is not None)
    return float((after - before).square().mean().sqrt() / before.std())


def row_effect(model: nn.Module, inputs: Inputs) -> float:
    """How much the logits of a row change with the row beside it: itself, or the same tokens in another order.

    Root mean square of the change, over the standard deviation of these logits, the larger of those by the row before
    it and behind it: 0 where each row is read by itself. nan where the model reads no tokens or returns no logits, or
    all tokens are the same, or a tensor of the call may be a mask [pos pos] as well as rows, or it takes no two rows.
    Source: what a batch is.
    """
    if inputs.tokens is None or any(_may_be_a_mask(x, inputs.tokens) for x in inputs.leaves):
        return float("nan")
    twice = inputs.first_row_twice()
    assert twice.tokens is not None
    row, other = twice.tokens[0], twice.tokens[0].roll(1)
    if torch.equal(row, other):
        return float("nan")
    calls = (twice, *(_on(twice, torch.stack(pair)) for pair in ((row, other), (other, row))))
    try:
        with torch.compiler.set_stance("force_eager"):
            before, *after = (logits_of(one.run(model), twice.tokens) for one in calls)
    except Exception:  # it takes batches of one size only, say
        return float("nan")
    if before is None:
        return float("nan")
    changes = [x[i, :LAST].float() - before[i, :LAST].float() for i, x in enumerate(after) if x is not None]
    return float(torch.stack(changes).square().mean((1, 2)).sqrt().max() / before[0, :LAST].float().std())


def _may_be_a_mask(x: Any, tokens: Tensor) -> bool:
    return isinstance(x, Tensor) and x is not tokens and x.ndim == 2 and x.shape[0] == x.shape[1] == len(tokens)


def _on(inputs: Inputs, tokens: Tensor) -> Inputs:
    """The same call, with other tokens wherever it was given those; what else it was given stays."""
    old: Any = inputs.tokens
    leaves = tuple(
        tokens if isinstance(x, Tensor) and x.shape == old.shape and torch.equal(x, old) else x for x in inputs.leaves
    )
    return replace(inputs, leaves=leaves, tokens=tokens)


def constant_positions(model: nn.Module, inputs: Inputs) -> str | None:
    """The table in which one place is looked up for every position of a row, or the argument that says so.

    Empty where no such look-up was seen; None where the model reads no tokens. Tables of fewer rows than a sequence has
    positions, as of token types, are no tables of positions.
    """
    tokens = inputs.tokens
    if tokens is None or tokens.shape[1] < 2 or bool((tokens == tokens.flatten()[0]).all()):
        return None
    told = tree_unflatten(list(inputs.leaves), inputs.spec)[1].get("position_ids")
    if isinstance(told, Tensor) and told.numel() > 1 and bool((told == told.flatten()[0]).all()):
        return "position_ids"
    seen = _LookUps(tokens.shape[1])
    with torch.compiler.set_stance("force_eager"), seen:
        inputs.run(model)
    names = {id(x): plain(name) for name, x in (*model.named_parameters(), *model.named_buffers())}
    return next((names.get(id(table), "a table") for table in seen.found), "")


def classes(model: nn.Module, inputs: Inputs) -> int | None:
    """How many numbers the model gives for each row, of one that gives a row of numbers to each and nothing else."""
    with torch.compiler.set_stance("force_eager"):
        output = inputs.run(model)
    given = getattr(output, "logits", output)
    is_one = isinstance(given, Tensor) and given.is_floating_point() and given.ndim == 2 and len(given) == inputs.batch
    return given.shape[1] if is_one else None


class _LookUps(TorchFunctionMode):
    """Tables that are asked for one and the same row at all positions."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.found = n, []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.nn.functional.embedding, torch.embedding, Tensor.__getitem__) and len(args) > 1:
            first, second = args[:2]
            table, index = (first, second) if func is not torch.nn.functional.embedding else (second, first)
            self._asked(table, index)
        return func(*args, **(kwargs or {}))

    def _asked(self, table: Any, index: Any) -> None:
        if not isinstance(index, Tensor) or not isinstance(table, Tensor) or table.ndim != 2:
            return
        whole = index.dtype in (torch.int64, torch.int32) and index.ndim and index.shape[-1] == self.n
        if whole and len(table) >= self.n and bool((index == index.flatten()[0]).all()):
            self.found.append(table)
