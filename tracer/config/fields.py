"""Dataclasses of plain values: their fields are of the declared types, and they survive JSON."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import reprlib
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal

MOST = 10**12
"""Of any whole number in a config."""

_hints = functools.cache(typing.get_type_hints)
"""The types of a config's fields; every page of the dashboard asks for them several times."""


def check_fields(config: Any) -> None:
    """A value of the wrong kind is an error that says what is expected; of words, which there are."""
    for name, hint in _hints(type(config)).items():
        value = getattr(config, name)
        if _fits(value, hint):
            if isinstance(value, numbers.Integral) and abs(int(value)) > MOST:
                raise ValueError(f"{name}={reprlib.repr(int(value))} is more than {MOST:,}")
            continue
        hints = (hint, *typing.get_args(hint))
        choices = [word for h in hints if typing.get_origin(h) is Literal for word in typing.get_args(h)]
        if choices and isinstance(value, str):
            raise ValueError(f"{name}={value!r:.100} is not one of {', '.join(choices)}")
        raise ValueError(f"{name}={reprlib.repr(value)} must be {_words(hint)}")


RANGES: dict[str, Callable[[float], bool]] = {
    "be at least 1": lambda number: number >= 1,
    "be positive and finite": lambda number: 0 < number < math.inf,
    "not be negative or infinite": lambda number: 0 <= number < math.inf,
}


def check_range(config: Any, names: Iterable[str], wanted: str, of: str = "") -> None:
    """A number outside one of RANGES is an error that names it; `of`: the part of the config, as the error names it."""
    for name in names:
        if not all(map(RANGES[wanted], numbers_in(value := getattr(config, name)))):
            raise ValueError(f"{of}{name}={value} must {wanted}")


def numbers_in(value: Any) -> list[Any]:
    """The numbers of a field: its own or a tuple's; a word and None are none."""
    return [one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, numbers.Real)]


def _fits(value: Any, hint: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return isinstance(value, str) and value in args
    if args and origin is not tuple:  # a union
        return any(_fits(value, one) for one in args)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) <= 1000 and all(_fits(item, args[0]) for item in value)
    if isinstance(value, bool) and hint is not bool:
        return False
    return isinstance(value, {int: numbers.Integral, float: numbers.Real}.get(hint, hint))


def _words(hint: Any) -> str:
    """A type as a person says it."""
    names = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", types.NoneType: "None"}
    if typing.get_origin(hint) is tuple:
        return f"a tuple, each item {_words(typing.get_args(hint)[0])}"
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(typing.get_args(hint))
    return names.get(hint) or " or ".join(map(_words, typing.get_args(hint))) or hint.__name__


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON values."""
    return dataclasses.asdict(config)


def from_dict(cls: type, values: dict[str, Any]) -> Any:
    """The inverse of to_dict; a field that this version does not know is an error that names it."""
    if not isinstance(values, dict):
        raise ValueError(f"{cls.__name__} is made of named fields, not of {reprlib.repr(values)}")
    hints = _hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {', '.join(unknown)}; it has {', '.join(hints)}")
    return cls(**{name: _convert(hints[name], value) for name, value in values.items()})


def _convert(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value)
    if isinstance(value, list) and not isinstance(hint, types.UnionType):
        return tuple(value)
    return value
