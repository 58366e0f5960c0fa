"""A look at a model that is being trained: whatever it does while it is looked at, it is afterwards as it was."""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tracer.hooks.discovered import unedited
from tracer.huggingface.building import same_dice
from tracer.interventions.edits import untouched

GATHERING = (list, deque, set, dict, defaultdict, OrderedDict, Counter)
"""In what modules gather things, besides what every module has."""
OF_MODULES = vars(nn.Module()).keys() - {"_buffers"}


@contextlib.contextmanager
def undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """No gradients, eval mode, no edits of others, and afterwards every module and every random state as it was.

    Others: a `watcher.ablate` or a `with watcher:` around the training loop, which sees nothing of this.
    Modules run with copies of their buffers, of other tensors that they hold, and of the lists, dicts and sets that
    they hold, with what is in these; and so may count and replace them, and gather more of them. What they share they
    share as copies. The originals are not touched, so that who else holds them, in another thread, may fill them.
    """
    before = [(module, dict(vars(module))) for module in model.modules()]
    copies: dict[int, Any] = {}
    with torch.no_grad(), untouched(), unedited(), same_dice([device] if device.type == "cuda" else []):
        try:
            for module, was in before:
                vars(module).update({name: _copied(x, copies) for name, x in was.items() if name not in OF_MODULES})
                module.training = False  # eval() may be somebody's code, which does more: LoRA's merges weights
            yield
        finally:
            for module, was in before:
                now = vars(module)  # never empty: another thread may be running the model
                now.update(was)
                for name in now.keys() - was.keys():
                    del now[name]


def _copied(x: Any, copies: dict[int, Any]) -> Any:
    """The one copy of a tensor, or of what modules gather things in, with what is in it; all else is itself."""
    if id(x) in copies:
        return copies[id(x)]
    if type(x) is tuple:
        return tuple(_copied(one, copies) for one in x)
    if type(x) in GATHERING:
        mine = copies[id(x)] = x.copy()  # at once, as another thread may fill it, and before it is met in itself
        if isinstance(mine, dict):
            for name, one in mine.items():
                mine[name] = _copied(one, copies)
        else:
            parts = [_copied(one, copies) for one in mine]
            mine.clear()
            mine.update(parts) if isinstance(mine, set) else mine.extend(parts)
    elif isinstance(x, Tensor) and not isinstance(x, nn.Parameter):
        copies[id(x)] = x.detach().clone()
    return copies.get(id(x), x)
