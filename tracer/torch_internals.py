"""What this house uses of torch that torch does not promise: all of it, and here alone.

`tests/test_internals.py` has a contract of each, which says what broke when torch moved it. The range of torch in
pyproject.toml ends below the next minor version, whose internals nobody has looked at yet; where one is gone all the
same, `tracer.watch` says so and the training goes on without being recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch._subclasses import FakeTensor
from torch.autograd import Variable
from torch.overrides import _get_current_function_mode as current_mode
from torch.overrides import _pop_mode_temporarily as without_current_mode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = [
    "COMPILED_CALL", "HOOKS", "PARTS", "REHEARSALS", "FakeTensor", "HigherOrderOperator", "compiled_call",
    "compiled_type", "compiles", "current_mode", "default_store", "differences", "memory", "norms", "stored",
    "tree_flatten", "tree_leaves", "tree_map", "tree_unflatten", "uncompiled", "version", "when_backward_ends",
    "without_current_mode",
]  # fmt: skip

HOOKS = ("_forward_hooks", "_forward_pre_hooks")
"""Of a module: who listens to its calls, by handle."""
PARTS = "_modules"
"""Of a module: those below it, by name; None where one was taken away."""
COMPILED_CALL = "_compiled_call_impl"
"""Of a module: what `module.compile()` made, which is called in its place; None otherwise."""
REHEARSALS = ("_forward_metadata_inference", "_shape_inference")
"""What a stage of a pipeline calls to learn the shapes of its outputs; the second in torch before 2.12."""


def version(x: Tensor) -> int:
    """How often it was written to in place; a write through `.data` does not count."""
    return x._version


def memory(x: Tensor) -> int:
    """Which storage it lies in. RuntimeError where it has none (sparse, or wrapped by torch.func)."""
    return x.untyped_storage()._cdata


def stored(x: Tensor) -> Tensor:
    """The values that a sparse tensor holds, gathered or not."""
    return x._values()


def norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The l2 norm of each, in one call of the device for all."""
    return torch._foreach_norm(list(tensors)) if tensors else []


def differences(new: Sequence[Tensor], old: Sequence[Tensor]) -> Sequence[Tensor]:
    """new - old of each, in one call of the device for all."""
    return torch._foreach_sub(list(new), list(old))


def when_backward_ends(then: Callable[[], None]) -> None:
    """From within a backward pass: call this when it ends, or when all that is to be called then has been."""
    Variable._execution_engine.queue_callback(then)


def uncompiled(model: Any) -> Any:
    """The module inside `torch.compile(model)`; any other is itself."""
    inside = getattr(model, "_orig_mod", None)
    return inside if isinstance(inside, nn.Module) else model


def compiled_call(module: nn.Module) -> Callable[..., Any] | None:
    """What `module.compile()` made."""
    return getattr(module, COMPILED_CALL)


def compiled_type() -> Any:
    """What `torch.compile(model)` returns; to import it takes two seconds."""
    from torch._dynamo.eval_frame import OptimizedModule

    return OptimizedModule


def compiles() -> Mapping[Any, Any]:
    """The backends of torch.compile that this program has used, whoever called it; None for one that only looks."""
    from torch._dynamo.eval_frame import cached_backends

    return cached_backends


def default_store() -> dist.Store:
    """The words that all processes of this training share."""
    return dist.distributed_c10d._get_default_store()
