"""Makes `help()` of a dataclass say what each of its fields is.

The text below a field is for readers of the source; Python drops it. It is read again from there when somebody asks for
the class's `__doc__`, and not before.
"""

from __future__ import annotations

from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def fields_in_help(cls: C) -> C:
    """The dataclass itself, whose docstring ends with its fields, as "Attributes:"."""
    cls.__doc__ = _WithFields(cls.__doc__ or "")  # pyrefly: ignore[bad-assignment]
    return cls


def field_texts(cls: type) -> dict[str, str]:
    """What stands below each field of a dataclass and of those it is made of; "" below one without."""
    import ast
    import inspect
    import textwrap

    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        if "__dataclass_fields__" not in vars(one):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, below in zip(body, [*body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                said = below.value if isinstance(below, ast.Expr) else None
                text = said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else ""
                found[field.target.id] = inspect.cleandoc(text)
    return found


class _WithFields:
    """A class's docstring, which is made when it is asked for."""

    def __init__(self, about: str) -> None:
        self._about = about

    def __get__(self, one: Any, cls: type) -> str:
        import inspect

        about = inspect.cleandoc(self._about)
        try:
            texts = field_texts(cls)
        except (OSError, TypeError, SyntaxError):  # without its source
            return about
        said = [
            f"    {name}: {text}".rstrip().replace("\n", "\n        ") for name, text in texts.items() if name[0] != "_"
        ]
        return "\n".join([about, "", "Attributes:", *said, ""])
