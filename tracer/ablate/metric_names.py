"""What a metric is called where its numbers are kept, so that they are never mixed with those of another."""

from __future__ import annotations

import sys
from functools import reduce
from hashlib import sha256
from types import CodeType
from typing import Any

from torch import Tensor

from tracer.ablate import metrics
from tracer.ablate.metrics import Metric, OwnMetric
from tracer.named_code import name_of

LONG = 8
"""Values of a field that are told; of more the first, and the hash of all."""


def told(metric: Metric | OwnMetric) -> str:
    """`kl`, `module:function` or a class with its fields. ValueError for a function that cannot be named again."""
    if isinstance(metric, OwnMetric):
        fields = {name: value for name, value in _fields(metric).items() if name not in ("function", "label", "units")}
        default = _fields(OwnMetric(metric.function))
        fields = {name: value for name, value in fields.items() if value != default[name]}
        return _call(_name(metric.function), fields)
    name = name_of(metric)
    return _call(name.rpartition(":")[2] if name.startswith(f"{metrics.__name__}:") else name, _fields(metric))


def fingerprint(metric: Metric | OwnMetric) -> str:
    """Another for another metric, for other fields, and for a function of somebody's whose own code has changed.

    What that function calls is not looked into.
    """
    function = metric.function if isinstance(metric, OwnMetric) else type(metric).of
    text = [told(metric), repr(_fields(metric, whole=True)), _code(function)]
    return sha256("\n".join(text).encode()).hexdigest()


def _name(function: Any) -> str:
    if getattr(function, "__module__", None) == metrics.__name__:
        return function.__name__
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    path = getattr(function, "__qualname__", "").split(".")
    if reduce(lambda thing, part: getattr(thing, part, None), path, home) is not function:
        raise ValueError(
            f"metric {name_of(function)} cannot be named again, and a run keeps which metric its numbers are of: "
            f"define it by `def` at the top of a module or of the notebook"
        )
    return name_of(function)


def _fields(metric: Metric | OwnMetric, whole: bool = False) -> dict[str, Any]:
    found = {name: value for name, value in vars(metric).items() if name != "function"}
    return {name: _plain(value, whole) for name, value in found.items()}


def _plain(value: Any, whole: bool) -> str:
    values = value.tolist() if isinstance(value, Tensor) else value
    if whole or not isinstance(values, list) or len(values) <= LONG:
        return repr(values)
    return f"[{', '.join(map(repr, values[:LONG]))}, ... {len(values)} in all]"


def _call(name: str, fields: dict[str, str]) -> str:
    return f"{name}({', '.join(f'{field}={value}' for field, value in fields.items())})" if fields else name


def _code(function: Any) -> str:
    """What a function does, as far as its own bytes and constants say it; nothing of ours, which versions name."""
    code = getattr(function, "__code__", None)
    if code is None or function.__module__ == metrics.__name__:
        return ""
    return "\n".join([*_bytes(code), repr(function.__defaults__), repr(function.__kwdefaults__)])


def _bytes(code: CodeType) -> list[str]:
    return [code.co_code.hex(), repr(code.co_names), *(part for const in code.co_consts for part in _const(const))]


def _const(const: Any) -> list[str]:
    if isinstance(const, CodeType):
        return _bytes(const)
    return sorted(map(repr, const)) if isinstance(const, frozenset) else [repr(const)]  # whose order no process keeps
