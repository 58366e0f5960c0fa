"""The residual stream of a model that nobody prepared: what enters its first block, and what leaves each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tracer.hooks.sites import Layer, plain


def blocks(model: nn.Module, layers: Sequence[Layer]) -> list[nn.Module]:
    """The modules of one list, one for each layer of heads; none where the model is built otherwise."""
    paths = [layer.name.partition("#")[0].split(".") for layer in layers]
    if any(layer.kind == "cross" for layer in layers):
        return []
    at = next((i for i, parts in enumerate(zip(*paths, strict=False)) if len(set(parts)) == len(paths)), None)
    if at is not None and len(paths) == 1:
        at = next((i for i, part in enumerate(paths[0]) if part.isdigit()), None)
    if at is None or not all(path[at].isdigit() for path in paths):
        return []
    modules = {plain(name): module for name, module in model.named_modules()}
    return [modules[".".join(path[: at + 1])] for path in paths]


@contextlib.contextmanager
def sizes(through: Sequence[nn.Module]) -> Iterator[dict[int, Float[Tensor, ""]]]:
    """Of the pass inside: the root mean square of a vector, median over tokens, by depth."""
    found: dict[int, Tensor] = {}

    def entered(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        _take(found, 0, (*args, *kwargs.values()))

    def left(depth: int) -> Any:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            _take(found, depth, output if isinstance(output, tuple) else (output,))

        return hook

    with contextlib.ExitStack() as hooks:
        if through:
            hooks.callback(through[0].register_forward_pre_hook(entered, with_kwargs=True).remove)
        for depth, block in enumerate(through, 1):
            hooks.callback(block.register_forward_hook(left(depth)).remove)
        yield found


@torch.no_grad()
def _take(found: dict[int, Tensor], depth: int, given: tuple[Any, ...]) -> None:
    x = next((x for x in given if isinstance(x, Tensor) and x.is_floating_point() and x.ndim >= 2), None)
    if x is not None:
        found[depth] = x.float().square().mean(-1).sqrt().median()
