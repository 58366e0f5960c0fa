"""torch's own encoder layers and nn.MultiheadAttention take a fused kernel while nobody looks: their output stays its.

In eval mode and without gradients these modules ask whether anybody looks (a mode, a hook), and then compute the same
in parts, which rounds differently; an encoder given padding even leaves its padded rows out. What is seen is computed
in parts; what the module returns is what it returns unseen, computed beside it: such a pass takes twice its time.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tracer.hooks.sites import Hook
from tracer.torch_internals import HOOKS, PARTS, current_mode, without_current_mode

FUSED = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


def keep_outputs(model: nn.Module, ours: type[TorchFunctionMode], edited: Callable[[], bool]) -> contextlib.ExitStack:
    """Until it is closed, those modules return what they would while modes of type `ours` and our hooks are not there.

    Not while `edited` says that what is seen is to be another: then the parts count.
    """
    handles = contextlib.ExitStack()

    def instead(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if not _may_be_fused(module) or _heard_inside(module) or edited():
            return output
        with _unseen(ours):
            return type(module).forward(_without_our_hooks(module), *args, **kwargs)

    for module in _outermost(model):
        handle = module.register_forward_hook(Hook(instead), with_kwargs=True, prepend=True)
        handles.callback(handle.remove)
    return handles


def _outermost(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) in FUSED and not _heard_inside(module):
        yield module
    else:
        for child in module.children():
            yield from _outermost(child)


def _heard_inside(module: nn.Module) -> bool:
    """Would somebody's hook on one of its parts run twice? It is not fused unseen either, its parts may be."""
    return any(
        not _is_ours(hook)
        for part in module.modules() if part is not module
        for name in HOOKS
        for hook in getattr(part, name).values()
    )  # fmt: skip


def _may_be_fused(module: nn.Module) -> bool:
    learns = torch.is_grad_enabled() and any(one.requires_grad for one in module.parameters())
    return not (module.training or learns) and torch.backends.mha.get_fastpath_enabled()


@contextlib.contextmanager
def _unseen(ours: type[TorchFunctionMode]) -> Iterator[None]:
    """Without our modes; one of somebody else's that is further in was seen by the module, too."""
    with contextlib.ExitStack() as away:
        while isinstance(current_mode(), ours):
            away.enter_context(without_current_mode())
        yield


def _without_our_hooks(module: nn.Module) -> nn.Module:
    """A copy that shares every parameter, and has the hooks that others registered on its parts."""
    bare = copy.copy(module)
    for name in HOOKS:
        kept = {key: hook for key, hook in getattr(module, name).items() if not _is_ours(hook)}
        bare.__dict__[name] = type(getattr(module, name))(kept)
    parts = {name: None if part is None else _without_our_hooks(part) for name, part in getattr(module, PARTS).items()}
    bare.__dict__[PARTS] = parts
    return bare


def _is_ours(hook: Any) -> bool:
    return (getattr(hook, "__module__", None) or "").partition(".")[0] == "tracer"
