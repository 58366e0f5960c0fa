"""The largest attention logit of every head in the training's own forward passes, not in one beside it.

1. When a pass begins, the modules in which attention was seen are listened to, and attention is intercepted; when it
   ends, however it ends, both are gone. Nothing is changed: q and k are looked at once the model's own kernel has run.
2. Passes without gradients (evaluation) do not count, and rows of padding neither.
3. Recomputed passes (activation checkpointing) are seen the first time only, where they are the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch._dynamo.eval_frame import OptimizedModule, cached_backends

from tracer.heads.blocks import LN2
from tracer.heads.call import AttentionCall
from tracer.hooks.discovered import DiscoveredAttention
from tracer.hooks.interceptor import AttentionInterceptor
from tracer.hooks.sites import Key, Place, Sites
from tracer.interventions.edits import visiting
from tracer.watching.padding import real_rows


class TrainingPasses:
    """`begin` in a hook before the model's call; `maxima` then holds what was largest since it was last taken."""

    def __init__(
        self, model: nn.Module, found: DiscoveredAttention, device: torch.device,
        quietly: Callable[[], AbstractContextManager[Any]],
    ) -> None:  # fmt: skip
        self.model, self._quietly = model, quietly
        self._layers, self._places = found.layers, dict(found.places)
        self._modules = {name for name, _ in found.keys}
        self._shape = (len(found.layers), max(layer.n_heads for layer in found.layers))
        self._device = device
        self.maxima: Float[Tensor, "layer head"] | None = None
        """None while no pass was looked at."""
        self._inside = contextlib.ExitStack()

    def begin(self, at: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A pass begins: look at it. `at`: the module whose hook this is called in."""
        self.end()
        ended = at.register_forward_hook(lambda *_: self.end(), always_call=True)
        self._inside.callback(ended.remove)
        if self.maxima is None:
            self.maxima = torch.full(self._shape, float("-inf"), device=self._device)
        real = real_rows(self.model, args, kwargs)
        sites = Sites(self.model)
        sites.attach(self._modules)
        self._inside.callback(sites.detach)
        sites.enter(type(self.model).__name__, self.model, args, kwargs)
        self._inside.enter_context(visiting(lambda call: None))  # so that scores are kept of a softmax by hand
        self._inside.enter_context(Seen(sites, lambda key, _, largest: self._look(key, largest, real)))

    def end(self) -> None:
        """The pass has ended."""
        self._inside.close()

    def take(self) -> Float[Tensor, "layer head"] | None:
        """The largest logits since this was last asked; nan where no score was seen, None where no pass was."""
        maxima, self.maxima = self.maxima, None
        return None if maxima is None else maxima.masked_fill(maxima == float("-inf"), float("nan"))

    def _look(self, key: Key, rows: Callable[[], Tensor], real: tuple[Tensor | None, Tensor | None]) -> None:
        if not torch.is_grad_enabled() or (place := _place(self._places, key)) is None:
            return
        with self._quietly():
            largest = rows()
            layer = self._layers[place.layer]
            mask = real[layer.kind == "cross" or layer.causal]
            if mask is not None and mask.shape == (largest.shape[0], largest.shape[2]):
                largest = largest.masked_fill(~rearrange(mask, "batch pos -> batch 1 pos"), float("-inf"))
            largest, maxima = largest.amax((0, 2)), self.maxima
            assert maxima is not None
            into = maxima[place.layer, place.offset : place.offset + len(largest)]
            torch.maximum(into, largest.to(into), out=into)


class Seen(AttentionInterceptor):
    """Hands on where an attention is, its call (None of flex_attention) and what gives its row maxima."""

    def __init__(self, sites: Sites, then: Callable[[Key, AttentionCall | None, Callable[[], Tensor]], None]) -> None:
        super().__init__(sites, DiscoveredAttention())
        self._then = then

    def _were_positions(self, before: Tensor, ids: Tensor) -> bool:
        return before.shape != ids.shape and super()._were_positions(before, ids)  # else nobody waits for their values

    def attend(self, call: AttentionCall, own: Callable[[], Tensor], dropout: float) -> None:
        own()
        self._then(self.sites.next_key(), call, call.row_maxima)

    def _flex(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        self._then(self.sites.next_key(), None, lambda: result[2].detach() * LN2)
        return result


def _place(places: Mapping[Key, Place], key: Key) -> Place | None:
    """Of the second block of queries and those after it: that of the attention that they are part of."""
    name, count = key
    return next((places[name, n] for n in range(count, -1, -1) if (name, n) in places), None)


def unseen_because(model: nn.Module) -> str:
    """Why its training passes cannot be looked at without changing them; empty where they can."""
    compiled = any(isinstance(m, OptimizedModule) or m._compiled_call_impl is not None for m in model.modules())
    if compiled or any(backend is not None for backend in cached_backends.values()):
        return "the program uses torch.compile: looking into a compiled pass would compile it anew, and differently"
    return ""
