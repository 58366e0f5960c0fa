"""Which module is running? Its path names the attention that happens inside it.

Hooks keep a stack of running modules for each thread; they change nothing and cost under a microsecond a module.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from tracer.hooks.inputs import is_blind
from tracer.torch_internals import memory, tree_leaves, uncompiled

CROSS = ("cross", "encdec", "enc_dec", "encoder_attn", "multihead_attn")
"""What the field calls attention from a decoder to its encoder, in the paths of its modules."""

WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""What wraps a module, in its path."""
INTEGERS = (torch.int64, torch.int32)
"""Of what token ids are."""

Key = tuple[str, int]
"""A module's path, and how many attentions it had in this forward pass before (weights may be shared by layers)."""


@dataclass(frozen=True)
class Layer:
    """One row of the picture: the heads that work side by side."""

    name: str
    """Path of the module, `transformer.h.3.attn`."""
    kind: Literal["self", "cross"]
    causal: bool
    n_heads: int
    extra: tuple[str, ...] = ()
    """What the last keys of its patterns are, where these are no positions: `AttentionCall.extra`."""
    code: str = ""
    """The function of a person's that says its pattern, `module:name`; empty of one that was recognised."""
    no_z: str = ""
    """Why z of its heads cannot be replaced; empty where it can."""
    by_hand: bool = False
    """Does it compute its pattern itself, so that q and k are not seen?"""


class Hook:
    """Hands on what it is given; nothing in copies of the model, on disk too, and nothing where a graph is traced."""

    def __init__(self, then: Callable[..., Any]) -> None:
        self._then = then

    def __call__(self, *given: Any) -> Any:
        return None if torch.compiler.is_compiling() else self._then(*given)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, str]]:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything, and is found where tracer is not


@runtime_checkable
class Listener(Protocol):
    """Told of every module, in the thread that it listens in."""

    def entered(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module has started; (args, kwargs) that it is to be called with instead, or None."""
        ...

    def left(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """It has ended, and is still the innermost; output: None where it raised."""
        ...


class Sites:
    """The running modules of a model, and its attentions in the order in which they were first seen."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._here = threading.local()
        self._handles = contextlib.ExitStack()
        self.begin: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None] | None = None
        """Told of each forward pass, when its outermost module starts: the model itself, or a part of it."""

        self.end: Callable[[], None] | None = None
        """Told when that module has ended."""

    def attach(self, only: Collection[str] | None = None) -> None:
        """Hear of every module, or of those with these paths; when one of them takes no hooks, of none."""
        leave = Hook(self.leave)
        with contextlib.ExitStack() as handles:
            for name, module in self.model.named_modules():
                path = plain(name) or type(module).__name__
                if only is not None and plain(name) not in only:
                    continue
                if isinstance(module, torch.jit.RecursiveScriptModule):  # traced ones take hooks
                    raise ValueError(
                        f"{path} is a torch.jit ScriptModule, which cannot be hooked: put the module that it was made "
                        f"from in its place"
                    )
                enter = Hook(functools.partial(self.enter, path))
                handles.callback(module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True).remove)
                handles.callback(module.register_forward_hook(leave, always_call=True, with_kwargs=True).remove)
            self._handles = handles.pop_all()

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """The innermost module has ended."""
        if not self._stack:  # this forward pass began, in another thread, before the hooks were there
            return
        try:
            if self.listeners and not self._here.blind:
                self.listeners[-1].left(module, args, kwargs, output)
        finally:
            self._stack.pop()
            if not self._stack:
                self._here.given = []
                if self.end is not None:
                    self.end()

    def enter(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module starts; told by hand of one that had begun before hooks could be there."""
        if not self._stack:
            self.anew(args, kwargs)
            if self.begin is not None and not self._here.blind:
                self.begin(module, args, kwargs)
        self._stack.append((name, args[0] if args else None))
        return self.listeners[-1].entered(module, args, kwargs) if self.listeners and not self._here.blind else None

    def anew(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pass begins, be it within the hooks of another."""
        self._here.count, self._here.blind = Counter(), is_blind(args, kwargs)
        ids = (x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.dtype in INTEGERS)
        self._here.given = [x for x in ids if _memory(x)]

    def detach(self) -> None:
        self._handles.close()

    @property
    def listeners(self) -> list[Listener]:
        """Of this thread; the last one is told."""
        if not hasattr(self._here, "listeners"):
            self._here.listeners = []
        return self._here.listeners

    @property
    def _stack(self) -> list[tuple[str, Any]]:
        if not hasattr(self._here, "stack"):
            self._here.stack, self._here.count = [], Counter()
        return self._here.stack

    @property
    def running(self) -> bool:
        """Is a forward pass of this model under way, in this thread?"""
        return bool(self._stack) and not self._here.blind

    @property
    def blind(self) -> bool:
        """Is one under way of tensors without values, in which there is nothing to see?"""
        return bool(self._stack) and self._here.blind

    def next_key(self) -> Key:
        """The attention that happens now."""
        name = self.name()
        self._here.count[name] += 1
        return name, self._here.count[name] - 1

    def name(self) -> str:
        """Path of the innermost running module."""
        return self._stack[-1][0]

    def input(self) -> Any:
        """What the running module was called with."""
        return self._stack[-1][1]

    def given(self, ids: Tensor) -> bool:
        """Is it an argument of this forward pass, a part of one, or a copy of one, of another dtype perhaps?"""
        memory, given = _memory(ids), self._here.given
        alike = (x for x in given if type(x) is type(ids) and x.shape == ids.shape)
        return memory != 0 and (memory in map(_memory, given) or any(torch.equal(x.to(ids), ids) for x in alike))


def _memory(x: Tensor) -> int:
    """Which storage it lies in; 0 where it has none (sparse, or wrapped by torch.func)."""
    with contextlib.suppress(RuntimeError):
        return memory(x)
    return 0


@dataclass(frozen=True)
class Place:
    """Where the heads of one attention stand in the picture: a layer, and the first of its heads."""

    layer: int
    offset: int


def arrange(keys: list[Key], kinds: dict[Key, Layer], beside: set[Key]) -> tuple[dict[Key, Place], list[Layer]]:
    """Rows of heads: one attention a row, except that single heads in one ModuleList stand side by side.

    Tutorials write a layer as a list of `Head` modules, `blocks.0.sa.heads.0`, `.heads.1`, ...: those are one layer.
    `beside` holds the attentions whose module was called with the same input as that of the attention before it.
    """
    places: dict[Key, Place] = {}
    layers: list[Layer] = []
    group: str | None = None
    for key in keys:
        one = kinds[key]
        parent, _, last = key[0].rpartition(".")
        single = one.n_heads == 1 and last.isdigit()
        if single and group == parent and key in beside:
            places[key] = Place(len(layers) - 1, layers[-1].n_heads)
            layers[-1] = replace(one, name=parent, n_heads=layers[-1].n_heads + 1)
            continue
        group = parent if single else None
        places[key] = Place(len(layers), 0)
        name = key[0] + (f"#{key[1]}" if key[1] else "")
        layers.append(replace(one, name=name))
    return places, layers


def plain(path: str) -> str:
    """The path of a module or a weight as its author wrote it, without what wraps its parts (compiled, FSDP)."""
    return ".".join(part for part in path.split(".") if part not in WRAPPERS)


def bare(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's and DistributedDataParallel's wrappers, and inside DeepSpeed's engine."""
    while True:
        engine = type(model).__module__.startswith("deepspeed.") and type(model).__name__ == "DeepSpeedEngine"
        if engine or isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module  # pyrefly: ignore[bad-assignment]
        elif (inside := uncompiled(model)) is not model:
            model = inside
        else:
            return model
