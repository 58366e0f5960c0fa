"""Signatures checked while tests run: of every function of a module but those defined inside another.

A closure is made anew each time its function runs, and to check it costs a thousand times what making it does: half of
all work where hooks are closures. What enters it has passed the signature around it.
"""

import ast
from collections.abc import Sequence

from beartype import BeartypeConf, beartype
from jaxtyping import _import_hook, install_import_hook

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""An int is a fine float."""


class _Outermost(_import_hook.JaxtypingTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        inside = any(isinstance(parent, ast.FunctionDef) for parent in self._parents)
        return node if inside else super().visit_FunctionDef(node)


def check_signatures(modules: Sequence[str]) -> None:
    """Of these modules, from their import on: types, and shapes where they are named."""
    _import_hook.JaxtypingTransformer = _Outermost
    install_import_hook(modules, f"{__name__}.checked")
