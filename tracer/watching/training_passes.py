"""The largest attention logit of every head in the training's own forward passes, not in one beside it.

1. When a pass begins, the modules in which attention was seen are listened to, and attention is intercepted; when it
   ends, however it ends, both are gone. Nothing is changed: q and k are looked at once the model's own kernel has run.
2. Passes without gradients (evaluation) do not count, and rows of padding neither.
3. Recomputed passes (activation checkpointing) are seen the first time only, where they are the same.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tracer.heads.blocks import LN2
from tracer.heads.call import AttentionCall
from tracer.hooks.declarations import SaidAttention
from tracer.hooks.declared_calls import RunningDeclared
from tracer.hooks.discovered import DiscoveredAttention
from tracer.hooks.interceptor import AttentionInterceptor
from tracer.hooks.sites import Key, Place, Sites
from tracer.interventions.edits import Active, visiting
from tracer.torch_internals import compiled_call, compiled_type, compiles
from tracer.tracking.tracking import say
from tracer.watching.pace import Pace
from tracer.watching.padding import real_rows
from tracer.watching.ranks import Ranks, side_by_side

Looks = Literal["share", "every", "never"]
"""Which training passes are looked at for their largest logits: those that half of `share` pays for, each, or none."""


class LargestLogits:
    """Of somebody's training passes, once `watch` has been told where their attention is: by step, and by record."""

    def __init__(self, looks: Looks, pace: Pace, ranks: Ranks) -> None:
        if looks not in get_args(Looks):
            raise ValueError(f"max_logits={looks!r} is none of {', '.join(map(repr, get_args(Looks)))}")
        self._looks, self._pace, self._ranks = looks, pace, ranks
        self._model: nn.Module | None = None
        """None while no pass is looked at."""
        self._since_step: Float[Tensor, "layer head"] | None = None
        """-inf where no score was seen; None while no pass was looked at."""
        self._since_record: Float[Tensor, "layer head"] | None = None
        self._inside = contextlib.ExitStack()
        self._thread: int | None = None
        """Whose pass is looked at: modes are a thread's own, so that nobody else can end this."""
        self._looking = False
        self.unseen = ""
        """Why no training pass can be looked at; empty where they are."""

    def watch(
        self, model: nn.Module, found: DiscoveredAttention, quietly: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        if self._looks != "never":
            self._model, self._quietly = model, quietly
            self._layers, self._places = found.layers, dict(found.places)
            self._modules = {name for name, _ in found.keys}

    def pass_begins(self, at: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called, in a hook of this module: look at the pass, if that may be."""
        model = self._model
        if model is None or not torch.is_grad_enabled() or not (self._looks == "every" or self._pace.may_look()):
            return
        if unseen := unseen_because(model):
            self.unseen = unseen
            self.end()
            return
        self._leave()
        if self._thread is not None:  # another thread's pass is looked at
            return
        with self._pace.looks():
            self._thread = threading.get_ident()
            ended = at.register_forward_hook(lambda *_: self._leave(), always_call=True)
            self._inside.callback(ended.remove)
            if self._since_step is None:
                shape = (len(self._layers), max(layer.n_heads for layer in self._layers))
                self._since_step = torch.full(shape, float("-inf"), device=self._pace.device)
            real = real_rows(model, args, kwargs)
            sites = Sites(model)
            sites.attach(self._modules)
            self._inside.callback(sites.detach)
            sites.enter(type(model).__name__, model, args, kwargs)
            self._inside.enter_context(visiting(lambda call: None))  # so that scores are kept of a softmax by hand
            seen = Seen(sites, lambda key, _, largest: self._look(key, largest, real), asks=False)
            self._inside.enter_context(seen)

    def of_step(self) -> Float[Tensor, "layer head"] | None:
        """Of the passes since this was last asked, nan where no score was seen; over all processes where all look at
        each pass."""
        found, self._since_step = self._since_step, None
        if found is None:
            return None
        found = found.masked_fill(found == float("-inf"), float("nan"))
        self._since_record = found if self._since_record is None else torch.fmax(self._since_record, found)
        if self._looks == "every" and self._ranks.world > 1:
            with self._pace.timed():
                every = self._ranks.all({"largest": found.cpu().numpy(), "place": np.array(self._ranks.place)})
                found = torch.from_numpy(side_by_side(every)).to(found)
        return found

    def of_record(self) -> Float[Tensor, "layer head"] | None:
        """Of the steps since this was last asked, in this process."""
        found, self._since_record = self._since_record, None
        return found

    def end(self) -> None:
        """Look no more, at the pass that is under way neither."""
        self._model = self._since_step = None
        if not self._looking:  # torch has taken the mode away while it is asked: the end of the pass ends it
            self._leave()

    def _leave(self) -> None:
        """Look no more at this thread's pass."""
        if self._thread == threading.get_ident():
            self._inside.close()
            self._thread = None

    def _look(self, key: Key, rows: Callable[[], Tensor], real: tuple[Tensor | None, Tensor | None]) -> None:
        if not torch.is_grad_enabled() or (place := _place(self._places, key)) is None:
            return
        self._looking = True
        try:
            self._take(place, rows, real)
        finally:
            self._looking = False

    def _take(self, place: Place, rows: Callable[[], Tensor], real: tuple[Tensor | None, Tensor | None]) -> None:
        with self._quietly():
            largest = rows()
            layer = self._layers[place.layer]
            mask = real[layer.kind == "cross" or layer.causal]
            if mask is not None and mask.shape == (largest.shape[0], largest.shape[2]):
                largest = largest.masked_fill(~rearrange(mask, "batch pos -> batch 1 pos"), float("-inf"))
            largest, maxima = largest.amax((0, 2)), self._since_step
            if maxima is None:  # another thread has made the step meanwhile
                return
            into = maxima[place.layer, place.offset : place.offset + len(largest)]
            torch.maximum(into, largest.to(into), out=into)


class Seen(AttentionInterceptor):
    """Hands on where an attention is, its call (None of flex_attention) and what gives its row maxima."""

    def __init__(
        self, sites: Sites, then: Callable[[Key, AttentionCall | None, Callable[[], Tensor]], None], asks: bool = True
    ) -> None:  # fmt: skip
        """asks: of attentions that a person declared, too."""
        super().__init__(sites, DiscoveredAttention(), say, asks)
        self._then = then

    def _were_positions(self, before: Tensor, ids: Tensor) -> bool:
        return before.shape != ids.shape and super()._were_positions(before, ids)  # else nobody waits for their values

    def attend(self, call: AttentionCall, own: Callable[[], Tensor], dropout: float) -> None:
        own()
        self._then(self.sites.next_key(), call, call.row_maxima)

    def declared(self, running: RunningDeclared, said: SaidAttention, here: Active | None) -> None:
        self._then(running.key, said.call, said.call.row_maxima)

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
    compiled = any(isinstance(m, compiled_type()) or compiled_call(m) is not None for m in model.modules())
    if compiled or any(backend is not None for backend in compiles().values()):
        return "the program uses torch.compile: looking into a compiled pass would compile it anew, and differently"
    return ""
