"""The residual stream of a Hugging Face model, tapped as in our own models: `blocks.<layer>.hook_resid_pre`, ...

1. Hooks on a block, its attention and what writes hand each activation to the edits and recordings of the calling
   context (`tracer.interventions.edits`): nothing is kept on the model, so any number of threads may run it.
2. A part counts as it comes into the stream: behind its own norm (Gemma 2, OLMo 2), multiplied (Granite).
3. They answer in passes of their own view (`running`): two views of one module would make each edit twice.
4. A pass may begin at a later block (`beginning`), when what enters it is known: those before hand on what they get.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tracer.hooks.sites import Layer
from tracer.huggingface.architectures import Layout
from tracer.huggingface.attention_weights import residual_times
from tracer.interventions.edits import Active, active

TAPS = ("hook_resid_pre", "hook_attn_out", "hook_mlp_out", "hook_resid_post")
GIVEN = {"attn.hook_rot_cos": ("position_embeddings", 0), "attn.hook_rot_sin": ("position_embeddings", 1),
         "attn.hook_alibi": ("alibi", None)}  # fmt: skip
"""What an attention is told of positions: to be recorded only."""
OUT_IN = "attn.hook_out_in"
"""What enters the layer that writes, heads side by side, behind any gate: to be recorded only."""


class StreamTaps:
    """Hooks that last until `remove`."""

    def __init__(self, model: nn.Module, known: Layout, layers: list[Layer]) -> None:
        self._handles = ExitStack()
        self._pass = threading.local()
        times, parts = residual_times(model), []
        for layer in layers:  # all are found before any is hooked: one may not be where its family has it
            block, attention = map(model.get_submodule, known.block_of(layer.name))
            out = attention.get_submodule(known.out)
            writes = block.get_submodule(known.out_norm) if known.out_norm else out
            mlp = known.mlp_norm or known.mlp
            parts.append((block, attention, out, writes, None if mlp is None else block.get_submodule(mlp)))
        keep = self._handles.enter_context  # a handle is removed where its context ends
        for i, (block, attention, out, writes, mlp_writes) in enumerate(parts):
            pre = f"blocks.{i}."
            keep(block.register_forward_pre_hook(_first(i, self._pass), with_kwargs=True))
            keep(block.register_forward_hook(_output(pre + "hook_resid_post", 1.0, self._pass)))
            keep(attention.register_forward_pre_hook(_given(pre, self._pass), with_kwargs=True))
            keep(out.register_forward_pre_hook(_enters(pre + OUT_IN, self._pass)))
            keep(writes.register_forward_hook(_output(pre + "hook_attn_out", times, self._pass)))
            if mlp_writes is None:
                continue
            keep(mlp_writes.register_forward_hook(_output(pre + "hook_mlp_out", times, self._pass)))
        self._blocks = [_Skippable(block, i, self._pass) for i, (block, *_) in enumerate(parts)]
        self.names = [f"blocks.{i}.{tap}" for i in range(len(layers)) for tap in TAPS]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Passes inside, in this thread, are of this view."""
        self._pass.on = True
        try:
            yield
        finally:
            self._pass.on = False

    @contextmanager
    def beginning(self, layer: int, x: Tensor) -> Iterator[None]:
        """Passes inside, in this thread, begin with x, which enters this block; those before are not run.

        Only after a whole pass has told what a block returns.
        """
        self._pass.begin = layer, x
        try:
            yield
        finally:
            self._pass.begin = None

    def remove(self) -> None:
        self._handles.close()
        for block in self._blocks:
            block.remove()


class _Skippable:
    """A block's forward, which is left out where the pass begins later."""

    def __init__(self, block: nn.Module, layer: int, of_pass: threading.local) -> None:
        self._block, self._layer, self._pass, self._n = block, layer, of_pass, 0
        self._own, self._forward, self._gone = block.__dict__.get("forward"), block.forward, False
        block.forward = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        begin = getattr(self._pass, "begin", None) if _here(self._pass) is not None else None
        if begin is not None and self._layer < begin[0]:
            x = args[0] if args else kwargs[_stream_in(kwargs)]
            return (x, *[None] * (self._n - 1)) if self._n else x
        output = self._forward(*args, **kwargs)
        self._n = len(output) if isinstance(output, tuple) else 0
        return output

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of the model runs its own block, always."""
        return copy.deepcopy(self._forward, memo)

    def remove(self) -> None:
        """Views of one module may go in any order: one below another is taken out with it."""
        self._gone = True
        below: Any = self._block.__dict__.get("forward")
        while isinstance(below, _Skippable) and below._gone:
            below = below._own
        if below is None:
            self._block.__dict__.pop("forward", None)
        else:
            self._block.forward = below


def _stream_in(kwargs: dict[str, Any]) -> str:
    """Of a block that is called with names alone: that of the stream."""
    floats = [name for name, x in kwargs.items() if isinstance(x, Tensor) and x.is_floating_point()]
    return "hidden_states" if "hidden_states" in kwargs else floats[0]


def _here(of_pass: threading.local) -> Active | None:
    return active() if getattr(of_pass, "on", False) else None


def _first(layer: int, of_pass: threading.local) -> Callable[..., Any]:
    tap = f"blocks.{layer}.hook_resid_pre"

    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        here = _here(of_pass)
        if here is None:
            return None
        named = "" if args else _stream_in(kwargs)
        x = args[0] if args else kwargs[named]
        of_pass.shape = x.shape
        begin = getattr(of_pass, "begin", None)
        if begin is not None and begin[0] == layer:
            x = begin[1]
        elif not here.wants(tap):
            return None
        x = here.at(tap, x)
        return ((x, *args[1:]), kwargs) if args else (args, kwargs | {named: x})

    return hook


def _output(tap: str, times: float, of_pass: threading.local) -> Callable[..., Any]:
    def hook(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        here = _here(of_pass)
        if here is None or not here.wants(tap):
            return None
        x = output[0] if isinstance(output, tuple) else output
        whole = x.view(of_pass.shape)  # OPT's MLP gets all positions of all sequences in one row
        after = here.at(tap, whole * times if times != 1 else whole)
        after = (after / times if times != 1 else after).view(x.shape)
        return (after, *output[1:]) if isinstance(output, tuple) else after

    return hook


def _enters(tap: str, of_pass: threading.local) -> Callable[..., None]:
    def hook(_module: nn.Module, args: tuple[Any, ...]) -> None:
        here = _here(of_pass)
        if here is not None and here.wants(tap):
            here.at(tap, args[0])

    return hook


def _given(prefix: str, of_pass: threading.local) -> Callable[..., Any]:
    def hook(_module: nn.Module, _args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        here = _here(of_pass)
        if here is None:
            return
        for tap, (name, index) in GIVEN.items():
            value: Any = kwargs.get(name)
            if isinstance(value, Tensor) and value.is_complex():  # DeepSeek-V2: cosine and sine of a half each
                value = [torch.cat([half, half], -1) for half in (value.real, value.imag)]
            if value is not None and here.wants(prefix + tap):
                here.at(prefix + tap, value if index is None else value[index])

    return hook
