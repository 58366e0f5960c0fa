"""When the heads of a model cannot be shown, and how to say why."""

from __future__ import annotations

from torch import nn

from tracer.hooks.discovered import DiscoveredAttention
from tracer.hooks.sites import plain

SAY = "say yourself what its pattern is: tracer.attends(module, function)"
"""What to do about attention that nobody recognises."""
UNSEEN = ("flash_attention_2", "flash_attention_3")
"""Kernels of the flash-attn package, as configs of `transformers` name them."""


class CannotWatch(ValueError):
    """What this model does cannot be measured truthfully; the message says why and what to do."""


class NoHeads(CannotWatch):
    """A forward pass of this model shows no attention, or none that can be told apart: what needs no head is fine."""


def refuse(model: nn.Module, found: DiscoveredAttention) -> None:
    """A CannotWatch that says why, when what was seen cannot be trusted, or some attention was not seen."""
    if found.problems:
        raise CannotWatch("; ".join(found.problems))
    if not found.layers:
        raise NoHeads(nothing_seen(model, found))
    seen = {name for name, _ in found.keys}
    if not (others := found.softmaxes - seen):
        return
    modules = {plain(name): module for name, module in model.named_modules()}
    kinds = {type(modules[name]) for name in seen if name in modules}
    if unseen := sorted(name for name in others if name in modules and type(modules[name]) in kinds):
        raise CannotWatch(
            f"{', '.join(unseen[:3])}: its softmax is changed on the way to the values (heads mixed, keys "
            f"cut off), unlike that of {min(seen)}, so that some layers would be missing"
        )


def nothing_seen(model: nn.Module, found: DiscoveredAttention, *, ran: bool = False) -> str:
    """Why there is nothing to look at in a model, as far as that can be told. `ran`: it is known that a pass was seen,
    and that its tensors had values."""
    if found.lost:
        return "; ".join(found.lost)
    kernel = str(getattr(getattr(model, "config", None), "_attn_implementation", ""))
    if kernel in UNSEEN:
        return (
            f"the attention of this {type(model).__name__} runs in a kernel of the flash-attn package, which nothing "
            f"can look into: load it with attn_implementation='sdpa', which computes the same"
        )
    if found.softmaxes:
        where = ", ".join(sorted(found.softmaxes)[:3])
        return (
            f"no attention could be told apart in this {type(model).__name__}: there is a softmax in {where}, but its "
            f"result is changed on the way to the values (heads mixed, keys cut off), so that no head has a "
            f"pattern whose rows sum to 1: {SAY}"
        )
    if found.blind and not ran:
        return (
            f"the forward pass of this {type(model).__name__} had no values to look at: its input was empty, or a dry "
            f"run's (device meta, FakeTensorMode). Call it with at least one token"
        )
    asked = "" if ran else "Did a forward pass run inside the watch? "
    return (
        f"no attention was seen in this {type(model).__name__}: neither F.scaled_dot_product_attention nor a softmax "
        f"over keys that is multiplied with values (matmul, bmm, einsum). {asked}Of attention in a custom "
        f"kernel, or whose weights are a quotient written by hand, {SAY}"
    )
