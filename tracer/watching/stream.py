"""The residual stream of a model that nobody prepared: what enters its first block, and what leaves each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tracer.hooks.sites import Layer, plain
from tracer.measures.stream_size import resid_rms


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


def chain(model: nn.Module, run: Callable[[], object]) -> list[nn.Module]:
    """The longest row of modules of one class, made of others, in one list, of which each is called once when the model
    runs, with what the one before it gave, and gives a tensor of that shape; none where there is no row of two."""
    rows = [list(module.children()) for module in model.modules() if isinstance(module, nn.ModuleList | nn.Sequential)]
    rows = [row for row in rows if len(row) > 1 and len({*map(type, row)}) == 1 and all(map(_is_made, row))]
    passed: dict[int, list[tuple[Tensor | None, Tensor | None]]] = {}

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        ends = _vectors((*args, *kwargs.values())), _vectors(output if isinstance(output, tuple) else (output,))
        passed.setdefault(id(module), []).append(ends)

    with contextlib.ExitStack() as hooks:
        for module in {id(one): one for row in rows for one in row}.values():
            hooks.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        run()
    return max((row for row in rows if _is_chain([passed.get(id(one), []) for one in row])), key=len, default=[])


def _is_made(module: nn.Module) -> bool:
    """Is it made of others, as a block is and a linear map or a dropout is not?"""
    return next(module.children(), None) is not None


def _is_chain(passed: list[list[tuple[Tensor | None, Tensor | None]]]) -> bool:
    """By module, what entered and what left in each of its calls: one after the other, through one shape?"""
    if not all(len(calls) == 1 for calls in passed):
        return False
    entered, left = zip(*(calls[0] for calls in passed), strict=True)
    shapes = {None if x is None else x.shape for x in (*entered, *left)}
    handed_on = all(a is b for a, b in zip(left, entered[1:], strict=False))
    return len(shapes) == 1 and None not in shapes and handed_on


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
    if (x := _vectors(given)) is not None:
        found[depth] = resid_rms(x)


def _vectors(given: tuple[Any, ...]) -> Tensor | None:
    """The first of them that may be vectors."""
    return next((x for x in given if isinstance(x, Tensor) and x.is_floating_point() and x.ndim >= 2), None)
