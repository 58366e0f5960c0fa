"""Clamps that are held while somebody's own loop trains a model: in its passes, and in what is measured of it.

1. When a pass of the model begins, its attention is intercepted; when it ends, however it ends, that is over. The
   other heads are those of the model's own kernel, to the bit, and so are their gradients.
2. A pass that is computed again outside of the model's call (activation checkpointing) would run without: it is
   refused. A compiled model, or one whose heads are split over processes, is, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tracer.config import Clamp
from tracer.hooks.discovered import DiscoveredAttention, holding
from tracer.hooks.interceptor import AttentionInterceptor
from tracer.hooks.refusals import CannotWatch, refuse
from tracer.hooks.sites import Hook, Sites
from tracer.interventions.own_clamps import Given, OwnClamp, texts
from tracer.named_code import NAMED
from tracer.tracking.tracking import say
from tracer.watching.ranks import sharded
from tracer.watching.training_passes import unseen_because

OFF = "tracer.watching.loop_clamps:nothing"


def nothing(head: Any) -> Tensor:
    """The z of a head that is off."""
    return torch.zeros_like(head.z)


class LoopClamps:
    """Those of one model in a loop; `now` are the clamps of the step that is made."""

    def __init__(self, model: nn.Module, step: Callable[[], int]) -> None:
        self.model, self._step = model, step
        self.clamps: tuple[Clamp, ...] = ()
        self._paused = self._measures = False
        self._map, self._sites = DiscoveredAttention(), Sites(model)
        self._pass, self._hooks = contextlib.ExitStack(), contextlib.ExitStack()

    def hold(self, given: Given) -> None:
        """From here on these, and no others. ValueError, in words, for what can be no clamp here."""
        found = tuple(Clamp.parse(text) for text in texts(given))
        for clamp in found:
            if clamp.what in ("previous", "no-previous"):
                raise ValueError(
                    f"clamp {str(clamp)!r}: in a loop of your own a head is off, or a function gives its pattern or z "
                    f'("L1H2 = module:function"); the words previous and no-previous are for `tracer train`'
                )
            if clamp.stop is not None and clamp.stop <= self._step():
                raise ValueError(f"clamp {str(clamp)!r}: its window has ended, this is step {self._step()}")
        if found and (why := unseen_because(self.model)):
            raise ValueError(f"no clamp can be held: {why}")
        if found and sharded(self.model):
            raise ValueError("no clamp can be held: the heads of this model may be split over processes")
        for clamp in found if self._map.layers else ():
            self._exists(clamp)
        self.end()
        if found:
            self._sites.attach()
            self._hooks.callback(self._sites.detach)
            for hook in (  # which enter and leave nothing but contexts: a hook that removes hooks hides a pass's error
                self.model.register_forward_pre_hook(Hook(self._begins), with_kwargs=True),
                self.model.register_forward_hook(Hook(self._ends), always_call=True),
            ):
                self._hooks.callback(hook.remove)
        self._let_go()
        for clamp in found:
            self._goes_on(replace(clamp, start=max(clamp.start, self._step())))

    def _goes_on(self, clamp: Clamp) -> None:
        """From its start on; where the same was held up to there, it is one window."""
        before = [one for one in self.clamps if replace(one, start=clamp.start, stop=clamp.stop) == clamp]
        joined = next((one for one in before if one.stop == clamp.start), None)
        whole = replace(clamp, start=joined.start) if joined else clamp
        self.clamps = (*(one for one in self.clamps if one is not joined), whole)

    def before(self, words: list[str]) -> None:
        """What an earlier job held, up to now."""
        self.clamps = tuple(map(Clamp.parse, words))
        self._let_go()

    def _let_go(self) -> None:
        now = self._step()
        ended = (replace(one, stop=now if one.stop is None else min(one.stop, now)) for one in self.clamps)
        self.clamps = tuple(one for one in ended if one.stop is not None and one.stop > one.start)

    @property
    def words(self) -> list[str]:
        """What is held and was, as run.json says it."""
        return [str(one) for one in self.clamps]

    def now(self) -> list[OwnClamp]:
        return [_own(clamp) for clamp in self.clamps if clamp.held(self._step())]

    @contextlib.contextmanager
    def paused(self, now: bool = True) -> Iterator[None]:
        """Passes in this block are run without, or hold them themselves; `now` False: as in training."""
        before = self._paused, self._measures
        self._paused, self._measures = now, True
        try:
            yield
        finally:
            self._paused, self._measures = before

    def end(self) -> None:
        """Let go of the model."""
        self._pass.close()
        self._hooks.close()

    def _begins(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._pass.close()
        if self._paused or not self.now():
            return
        self._sites.anew(args, kwargs)  # the recorder's own passes are within the hooks of the first
        with_gradients = torch.is_grad_enabled()

        def held() -> list[OwnClamp]:
            if with_gradients and not torch.is_grad_enabled():
                raise CannotWatch(
                    "no clamp can be held in a part of the model that runs without gradients, to be computed again in "
                    "the backward pass: train it without activation checkpointing"
                )
            return self.now()

        self._pass.enter_context(holding(self._map, held))
        self._pass.enter_context(AttentionInterceptor(self._sites, self._map, say))

    def _ends(self, module: nn.Module, args: Any, output: Any) -> None:
        self._pass.close()
        if output is None or self._paused or not self.now() or self._map.blind and not self._map.layers:
            return
        refuse(self.model, self._map)
        for clamp in () if self._measures else self.clamps:  # who clamped is told in a pass of theirs
            self._exists(clamp)

    def _exists(self, clamp: Clamp) -> None:
        layers = self._map.layers
        heads = layers[clamp.layer].n_heads if clamp.layer < len(layers) else 0
        if (clamp.head or 0) >= heads:
            there = f", and layer {clamp.layer} has heads 0 to {heads - 1}" if heads else ""
            raise ValueError(f"clamp {str(clamp)!r}: this model has layers 0 to {len(layers) - 1}{there}")


def _own(clamp: Clamp) -> OwnClamp:
    if clamp.what == "off":
        NAMED.setdefault(OFF, nothing)
        clamp = replace(clamp, what="z", code=OFF)
    heads = None if clamp.head is None else (clamp.head,)
    return OwnClamp(f"blocks.{clamp.layer}.attn.hook_{clamp.what}", heads, clamp=clamp)
