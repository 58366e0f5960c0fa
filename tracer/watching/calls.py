"""What a model is called with and what it returns, heard outside of every compiled graph.

1. Hooks on the model, of which a compiled function that calls it sees nothing.
2. `torch.compile(model)`: before its first call, and so before anything is traced, the hooks move to that wrapper.
3. `model.compile()`: the compiled call is wrapped, since hooks would be compiled with it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tracer.hooks.sites import Hook, bare
from tracer.torch_internals import COMPILED_CALL, compiled_call, compiled_type


class Calls:
    """Tells `before` the arguments of each call, and `after` the module, its named arguments and its output."""

    def __init__(
        self,
        model: nn.Module,
        before: Callable[[tuple[Any, ...], dict[str, Any]], None],
        after: Callable[[nn.Module, dict[str, Any], Any], None],
    ) -> None:
        self.model = bare(model)
        uncompiled: Any = torch.compiler.disable
        first, last = uncompiled(before), uncompiled(after)
        self._before = Hook(lambda _module, args, kwargs: first(args, kwargs))
        self._after = Hook(lambda module, _args, kwargs, output: last(module, kwargs, output))
        self._leave: list[Callable[[], object]] = []
        self._listen(model)
        _LISTENING.append(self)
        _COMPILED.__call__ = _called

    def remove(self) -> None:
        """Let go of the model, which is then as it was."""
        self._stop()
        if self in _LISTENING:
            _LISTENING.remove(self)
        if not _LISTENING:
            _COMPILED.__call__ = _CALL

    def _listen(self, at: nn.Module) -> None:
        """At this module: the model, or what wraps it."""
        self._stop()
        self.at, compiled = at, compiled_call(at)
        if compiled is None:
            hooks = (  # before FSDP's own, inside of which the model cannot be run a second time
                at.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True),
                at.register_forward_hook(self._after, with_kwargs=True),
            )
            self._leave += [hook.remove for hook in hooks]
        else:

            def call(*args: Any, **kwargs: Any) -> Any:
                self._before(at, args, kwargs)
                output = compiled(*args, **kwargs)
                self._after(at, args, kwargs, output)
                return output

            setattr(at, COMPILED_CALL, call)
            self._leave.append(lambda: setattr(at, COMPILED_CALL, compiled))

        def compile(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            if module is not at:  # a copy of the model
                return type(module).compile(module, *args, **kwargs)
            self._stop()
            try:
                module.compile(*args, **kwargs)
            finally:
                self._listen(module)

        at.compile = types.MethodType(compile, at)  # copied and pickled as the method of this name
        self._leave.append(lambda: delattr(at, "compile"))

    def _stop(self) -> None:
        while self._leave:
            self._leave.pop()()

    def moved(self, at: nn.Module) -> None:
        """The model is called through this wrapper of it."""
        if at is not self.at:
            self._listen(at)


_LISTENING: list[Calls] = []
_COMPILED = compiled_type()
_CALL = _COMPILED.__call__


def _called(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a compiled model, after those who listen to it have moved there."""
    if not torch.compiler.is_compiling():
        for one in [one for one in _LISTENING if one.model is bare(self)]:
            one.moved(self)
    return _CALL(self, *args, **kwargs)
