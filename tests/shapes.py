"""Signatures checked while tests run: types of all arguments, and shapes where a signature names axes.

1. Not of functions defined inside another: a closure is made anew each time its function runs, and to check it costs a
   thousand times what making it does. What enters it has passed the signature around it.
2. jaxtyping binds arguments to axes at each call, at twenty times the cost of all else: only where axes are named.
3. Of what one test calls again and again, as a training does, the first twenty calls and then each fiftieth.
"""

import ast
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, _import_hook, config, install_import_hook, jaxtyped

typed: Callable[[Any], Any] = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""An int is a fine float."""
CALLS: Counter[Callable[..., Any]] = Counter()
"""Of each function in this test."""


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its signature checked at each call; a hint that has no meaning at run time is any."""
    hints = {name: _resolved(hint, function) for name, hint in function.__annotations__.items()}
    if any(map(_names_axes, hints.values())):
        inner = jaxtyped(typechecker=typed)(function)
    else:
        said, function.__annotations__ = function.__annotations__, hints
        inner = typed(function)
        function.__annotations__ = said

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if config.jaxtyping_disable:  # dynamo can trace no check
            return function(*args, **kwargs)
        CALLS[function] = calls = CALLS[function] + 1
        return (function if calls > 20 and calls % 50 else inner)(*args, **kwargs)

    return wrapper


def _resolved(hint: Any, function: Callable[..., Any]) -> Any:
    try:
        return eval(hint, function.__globals__) if isinstance(hint, str) else hint
    except Exception:  # what is imported for type checkers only
        return Any


def _names_axes(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray) or any(map(_names_axes, get_args(hint)))


class _Outermost(_import_hook.JaxtypingTransformer):
    """Decorates classes as it always does, and a function that no function is around with `checked`."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if any(isinstance(parent, ast.FunctionDef) for parent in self._parents):
            return node
        node = super().visit_FunctionDef(node)
        wrapped = node.decorator_list[-1]
        assert isinstance(wrapped, ast.Call)
        node.decorator_list[-1] = wrapped.keywords[0].value  # of jaxtyped(typechecker=checked)
        return node


def check_signatures(modules: Sequence[str]) -> None:
    """Of these modules, from their import on."""
    _import_hook.JaxtypingTransformer = _Outermost
    install_import_hook(modules, f"{__name__}.checked")
