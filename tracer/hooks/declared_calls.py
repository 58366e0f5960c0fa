"""Attentions that a person declared (`tracer.attends`): asked, shown, and kept from being changed in silence.

While such a module runs, nothing in it is recognised: what was said of it stands alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tracer.hooks.attending import Attending
from tracer.hooks.declarations import DeclaredAttention, NoPattern, SaidAttention, declaration
from tracer.hooks.discovered import DiscoveredAttention, held_of
from tracer.hooks.refusals import CannotWatch
from tracer.hooks.sites import Key, Sites
from tracer.hooks.taps import Taps
from tracer.interventions.edits import Active


@dataclass
class RunningDeclared:
    """A declared module that runs now."""

    module: nn.Module
    declared: DeclaredAttention
    key: Key
    out: nn.Module | None = None
    """The part of it that reads z,"""
    z: Tensor | None = None
    """and what that part was given, before any edit: [batch pos (head d)]."""


class DeclaredCalls(Attending):
    """Told of modules as they start and end, it asks those that were declared."""

    def __init__(
        self, sites: Sites, found: DiscoveredAttention, say: Callable[[str], None] | None = None, asks: bool = True
    ) -> None:  # fmt: skip
        """say: told once of a function that gives no pattern, without which all goes on; None: that is a CannotWatch.
        asks: may functions be asked?"""
        super().__init__(sites, found)
        self._say, self._asks = say, asks
        self._running: RunningDeclared | None = None
        self._asking = False

    @property
    def passes_by(self) -> bool:
        """Is what runs now part of a declared attention, or its function?"""
        return self._running is not None or self._asking

    def entered(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module has started; its changed arguments, where z is to be another."""
        if self._asking:
            return None
        running = self._running
        if running is not None:
            return self._z_enters(running, args, kwargs) if module is running.out else None
        if (declared := declaration(module)) is None:
            return None
        self._close()
        running = self._running = RunningDeclared(module, declared, self.sites.next_key())
        try:
            running.out = declared.part(module) if self._asks else None
        except NoPattern as error:
            self._lose(running, str(error))
        return None

    def left(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """A module has ended, and gave this; None where it raised."""
        running = self._running
        if running is None or module is not running.module or self._asking:
            return
        self._running = None
        if output is None:
            return
        here, known = self.here(), running.key in self.map.kinds
        if known:
            self._refuse_clamps(running)
        if not self._asks or self._is_lost(running) or here is None and known:
            self._refuse_unseen(running, here)
            return
        said = self._said(running, args, kwargs, output)
        if said is None:
            self._refuse_unseen(running, here)
        else:
            self.declared(running, said, here)

    def declared(self, running: RunningDeclared, said: SaidAttention, here: Active | None) -> None:
        """A declared attention is known: it gets a place, and is shown to who asked."""
        key = running.key
        if key not in self.map.kinds:
            no_z = "" if running.out is not None else _no_z(running)
            layer = replace(self._layer(key, said.call), code=running.declared.code, no_z=no_z)
            self.map.add(key, layer, self.sites.input())
            self._refuse_clamps(running)
        if here is None:
            return
        taps, call = self._taps(here, key), self._placed(key, here, said.call)
        for what in ("q", "k", "v"):
            x = getattr(call, what)
            if what == "v" and taps.wants(what) and not call.has_values:
                raise CannotWatch(f"{running.declared.code} says no values of {key[0]}: return (pattern, v)")
            if x is None and taps.edits(what):
                raise CannotWatch(_unchangeable(running, what))
            if x is not None:
                self._only_seen(running, taps, what, x)
        if taps.wants("pattern"):
            self._only_seen(running, taps, "pattern", call.pattern())
        if taps.wants("z") and running.out is None:
            z = said.z
            if z is None:
                raise CannotWatch(_no_z(running))
            self._only_seen(running, taps, "z", z)
        if here.visitors:
            self.wants_z = False
            self._show(here, call)

    def _said(
        self, running: RunningDeclared, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> SaidAttention | None:
        """None where it cannot be used, which is said."""
        before = self.map.kinds.get(running.key)
        self._asking = True
        try:
            sink = None if before is None else bool(before.extra)
            said = running.declared.ask(running.module, args, kwargs, output, sink)
            self._check(running, said)
        except Exception as error:  # somebody's code, which raises whatever it runs into
            own = isinstance(error, NoPattern)
            self._lose(running, str(error) if own else f"raised {type(error).__name__}: {error}")
            return None
        finally:
            self._asking = False
        return said

    def _check(self, running: RunningDeclared, said: SaidAttention) -> None:
        """Does it fit the tokens, the passes before, and what was seen of z? NoPattern where not."""
        call, tokens, before = said.call, self.tokens, self.map.kinds.get(running.key)
        if before is not None and before.n_heads != call.n_heads:
            raise NoPattern(f"gives {call.n_heads} heads, and gave {before.n_heads} before")
        if tokens is not None and tokens.shape[1] == call.shape[1] and len(tokens) != call.shape[0]:
            raise NoPattern(f"gives patterns of {call.shape[0]} sequences, where {len(tokens)} are read")
        if running.out is None:
            return
        if running.z is None:
            raise NoPattern(f"goes with out={running.declared.out!r}, a part that the module does not call with z")
        z = _by_head(running, running.z.detach(), call.n_heads)
        if running.module.training or (own := said.z) is None:  # dropout, or no values
            return
        if own.shape != z.shape:
            raise NoPattern(f"says z {list(own.shape)}, pattern times v, where {running.declared.out} reads "
                            f"{list(z.shape)} [batch pos head d]")  # fmt: skip
        precise = {z.dtype, own.dtype} <= {torch.float32, torch.float64}
        own, z = own.float(), z.float()
        off, size = float((own - z).abs().max()), max(1.0, float(z.abs().max()))
        if off > (1e-4 if precise else 3e-2) * size:
            raise NoPattern(f"says another attention than the module's: pattern times v is not what "
                            f"{running.declared.out} reads, they differ by {off:.2g}")  # fmt: skip

    def _z_enters(self, running: RunningDeclared, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The part that reads z starts: it is given what edits make of it."""
        if not args or not isinstance(args[0], Tensor) or running.z is not None:
            self._lose(running, f"goes with out={running.declared.out!r}, a part that is not called with z, once")
            return None
        running.z = args[0]
        here = self.here()
        if here is None or (layer := self.map.kinds.get(running.key)) is None:
            return None
        taps = self._taps(here, running.key)
        if not taps.wants("z"):
            return None
        try:
            z = _by_head(running, running.z, layer.n_heads)
        except NoPattern as error:
            raise CannotWatch(f"{running.key[0]}: {running.declared.code} {error}") from error
        after = taps.at("z", z)
        return None if after is z else ((after.flatten(2), *args[1:]), kwargs)

    def _only_seen(self, running: RunningDeclared, taps: Taps, what: str, x: Tensor) -> None:
        """Recorded, and handed to edits; CannotWatch where one of them would have it another."""
        after = taps.at(what, x)
        if after is not x and not torch.equal(after, x):
            raise CannotWatch(_unchangeable(running, what))

    def _refuse_clamps(self, running: RunningDeclared) -> None:
        layer = self.map.places[running.key].layer
        if any(one.clamp.layer == layer for one in held_of(self.map)):
            raise CannotWatch(_unchangeable(running, "pattern"))

    def _refuse_unseen(self, running: RunningDeclared, here: Active | None) -> None:
        """No edit of what was not asked for may pass by; of z none has, where a part reads it."""
        if here is None or running.key not in self.map.kinds:
            return
        taps, done = self._taps(here, running.key), running.z is not None
        for what in ("q", "k", "v", "pattern", *(() if done else ("z",))):
            if taps.edits(what):
                raise CannotWatch(_unchangeable(running, what))

    def _is_lost(self, running: RunningDeclared) -> bool:
        """Was it said already, of this model, that nothing comes of it?"""
        if self._say is None or (why := running.declared.lost.get(self.sites.model)) is None:
            return False
        if why not in self.map.lost:
            self.map.lost.append(why)
        return True

    def _lose(self, running: RunningDeclared, why: str) -> None:
        text = f"tracer.attends, {running.key[0]}: {running.declared.code} {why}"
        if self._say is None:
            raise CannotWatch(text)
        if not self._is_lost(running):
            running.declared.lost[self.sites.model] = text
            self.map.lost.append(text)
            self._say(f"{text}. Its heads are left out from here on, everything else goes on")


def _by_head(running: RunningDeclared, z: Tensor, heads: int) -> Tensor:
    """[batch pos (head d)] as [batch pos head d]. NoPattern where it is none."""
    if z.ndim != 3 or z.shape[2] % heads:
        raise NoPattern(f"goes with out={running.declared.out!r}, which reads {list(z.shape)}, and not z of {heads} "
                        f"heads side by side, [batch pos (head d)]")  # fmt: skip
    return z.unflatten(2, (heads, -1))


def _no_z(running: RunningDeclared) -> str:
    return (
        f"the heads of {running.key[0]} cannot be switched off: nobody said where their z is. Name the part of it that "
        f"reads z, tracer.attends({type(running.module).__name__}, ..., out='proj')"
    )


def _unchangeable(running: RunningDeclared, what: str) -> str:
    if what == "z":
        return _no_z(running)
    return (
        f"the {what} of {running.key[0]} cannot be held, frozen or changed: it is what {running.declared.code} says of "
        f"it (tracer.attends), and the module goes by its own"
    )
