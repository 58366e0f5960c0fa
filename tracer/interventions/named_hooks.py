"""Functions of a user's own at named taps, as transformer-lens takes them: [(name, function(activation, hook))].

They travel with the call, as every edit does, and not with the model: two threads on one model do not meet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tracer.interventions.edits import Edit
from tracer.named_code import name_of


@dataclass(frozen=True)
class HookedTap:
    """What a function is told of where it is: transformer-lens's `hook`, as far as functions ask for it."""

    name: str
    ctx: dict = field(default_factory=dict)
    """Whatever the function notes here, until the call ends."""

    def layer(self) -> int:
        """Of a tap of a block."""
        return int(self.name.split(".")[1])


Function = Callable[..., Tensor | None]
"""(activation, hook=) -> what stands instead; None: the activation, with what was changed in place."""
FwdHooks = Iterable[tuple[str | Callable[[str], bool], Function]]
"""A tap, or a function that says of each tap's name whether it is meant; and what is done there."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Hooked(Edit):
    """A function at a tap."""

    function: Function
    hook: HookedTap

    def __call__(self, activation: Tensor) -> Tensor:
        copy = activation.clone()  # which may be changed in place
        found = self.function(copy, hook=self.hook)
        if found is None:
            found = copy
        if not isinstance(found, Tensor) or found.shape != activation.shape:
            what = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(
                f"{name_of(self.function)} at {self.tap} returned {what}, where {list(activation.shape)} stands: "
                f"return a tensor of that shape, or None to look only"
            )
        if found is copy and not found.requires_grad and torch.equal(found, activation):
            return activation  # somebody looked: the model's own call stands
        return found.to(activation)


def hooked(fwd_hooks: FwdHooks, taps: Collection[str]) -> list[Edit]:
    """Edits that call each function at its tap; ValueError, with the names that exist, for a name of none."""
    found: list[Edit] = []
    for name, function in fwd_hooks:
        chosen = [name] if isinstance(name, str) else [tap for tap in taps if name(tap)]
        if not chosen or chosen[0] not in taps:
            what = f"{name} is no tap of this model" if isinstance(name, str) else f"{name_of(name)} names no tap"
            raise ValueError(f"{what}; it has {listed(taps)}")
        found += [Hooked(tap=tap, function=function, hook=HookedTap(tap)) for tap in chosen]
    return found


class TapCache(dict[Any, Tensor]):
    """Activations by the name of their tap; `cache["pattern", 1]` is `cache["blocks.1.attn.hook_pattern"]`."""

    def __missing__(self, key: Any) -> Tensor:
        name, *layer = key if isinstance(key, tuple) else (key,)
        place = f"blocks.{layer[0]}." if layer else ""
        for full in (f"{place}attn.hook_{name}", f"{place}hook_{name}"):
            if full in self:
                return self[full]
        raise KeyError(f"{key!r} is no tap that was kept; there are {listed(self)}")


def kept_in(cache: TapCache, names: Any = None) -> FwdHooks:
    """Hooks that keep what passes the taps `names`: one name, several, a function of a name, or None for all."""
    several = names if callable(names) else [names] if isinstance(names, str) else names

    def keep(activation: Tensor, hook: HookedTap) -> None:
        cache[hook.name] = activation.detach()

    if several is None:
        return [(lambda _: True, keep)]
    return [(several, keep)] if callable(several) else [(name, keep) for name in several]


def listed(taps: Iterable[str]) -> str:
    """Names, those of all blocks as one: `blocks.<0 to 3>.attn.hook_z`."""
    layers: dict[str, list[int]] = {}
    for tap in taps:
        block = re.match(r"blocks\.(\d+)\.", tap)
        one = layers.setdefault(f"blocks.<>{tap[block.end() - 1 :]}" if block else tap, [])
        if block:
            one.append(int(block[1]))
    spans = {name: f"<{min(at)} to {max(at)}>" if at else "" for name, at in layers.items()}
    return ", ".join(name.replace("<>", spans[name]) for name in layers)
