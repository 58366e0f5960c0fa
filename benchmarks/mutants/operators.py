"""What can be done wrong at one node of a syntax tree, and be Python still."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}  # fmt: skip
STATISTICS = {
    "mean": ("median", "sum"), "median": ("mean",), "nanmean": ("nanmedian", "nansum"), "nanmedian": ("nanmean",),
    "sum": ("mean",), "nansum": ("nanmean",), "fmean": ("median",), "min": ("max",), "max": ("min",),
    "amin": ("amax",), "amax": ("amin",), "argmin": ("argmax",), "argmax": ("argmin",), "nanmin": ("nanmax",),
    "nanmax": ("nanmin",), "minimum": ("maximum",), "maximum": ("minimum",), "cummin": ("cummax",),
    "cummax": ("cummin",), "any": ("all",), "all": ("any",), "floor": ("ceil",), "ceil": ("floor",),
    "std": ("var",), "var": ("std",), "tril": ("triu",), "triu": ("tril",), "isnan": ("isfinite",),
}  # fmt: skip
STEPS = {
    "abs", "sqrt", "exp", "log", "square", "clamp", "clip", "nan_to_num", "sorted", "reversed", "flip", "tril", "triu",
    "masked_fill", "round", "cumsum", "relu", "softmax", "log_softmax", "normalize", "clone", "copy", "rsqrt",
}  # fmt: skip
"""Calls that can be left out, so that what they are given stands in their place."""
AXIS_NAMES = {"dim", "dims", "axis", "axes"}
AXIS_METHODS = {
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "cat", "chunk", "cummax", "cumprod", "cumsum", "diff",
    "flatten", "flip", "gather", "index_select", "log_softmax", "logsumexp", "max", "mean", "median", "min", "movedim",
    "nanmean", "nanmedian", "nansum", "norm", "prod", "repeat_interleave", "roll", "size", "softmax", "sort", "split",
    "squeeze", "stack", "std", "sum", "swapaxes", "topk", "transpose", "unbind", "unflatten", "unsqueeze", "var",
}  # fmt: skip
"""Methods whose whole numbers count axes."""
Node = TypeVar("Node", bound=ast.AST)
One = TypeVar("One")
LIBRARIES = {"torch", "np", "numpy", "math", "F", "statistics"}
UNTOUCHED = {
    "strict", "stacklevel", "encoding", "newline", "errors", "device", "non_blocking", "help", "description", "message",
    "title", "label", "repr", "daemon", "flush", "text", "usage",
}  # fmt: skip
"""Arguments that no number depends on: messages, and guards that a right call never trips."""


def changes(node: ast.AST) -> Iterator[tuple[str, Sequence[ast.AST]]]:
    """Each operator that applies to this node, with the nodes that could stand in its place.

    A child that is changed by its parent's rule, as the bound of a slice, is in `spoken_for`.
    """
    match node:
        case ast.Compare():
            for number, op in enumerate(node.ops):
                yield "comparison", [_with(node, ops=_put(node.ops, number, new())) for new in COMPARISONS[type(op)]]
        case ast.BinOp(left, op, right):
            yield from _binary(node, left, op, right)
        case ast.BoolOp(op, values):
            yield "logic", [_with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())]
            yield "dropped term", [_joined(node, values[:at] + values[at + 1 :]) for at in range(len(values))]
        case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
            yield "logic", [operand]
        case ast.UnaryOp(ast.USub(), operand) if _whole(node) is None:
            yield "sign", [operand]
        case ast.IfExp(body=body, orelse=orelse):
            yield "dropped term", [body, orelse]
        case ast.comprehension(ifs=[_, *_]):
            yield "condition", [_with(node, ifs=_put(node.ifs, at)) for at in range(len(node.ifs))]
        case ast.AugAssign(op=ast.Add() | ast.Sub()) if not _is_text(node.value):
            yield "sign", [_with(node, op=ast.Sub() if isinstance(node.op, ast.Add) else ast.Add())]
        case ast.Slice(lower, upper):
            yield from (
                ("off by one", found)
                for found in (_bounds(node, "lower", lower), _bounds(node, "upper", upper))
                if found
            )
        case ast.Call():
            yield from _call(node)
        case ast.Constant() | ast.UnaryOp(ast.USub(), ast.Constant()) if found := _other_constants(node):
            yield "constant", found


def spoken_for(node: ast.AST) -> list[ast.AST]:
    """Children that are changed by the rule of this node, or by none."""
    match node:
        case ast.Slice():
            return [one for one in (node.lower, node.upper) if one is not None and _whole(one) is not None]
        case ast.Call(func, args, keywords):
            name = _called(func)
            axes = [one.value for one in keywords if one.arg in AXIS_NAMES] + (args if _has_axes(func) else [])
            counts = args if name in {"range", "arange"} else []
            return [one for one in [*axes, *counts] if _whole(one) is not None or isinstance(one, ast.Tuple)]
        case ast.UnaryOp(ast.USub(), operand) if isinstance(operand, ast.Constant):
            return [operand]
    return []


def other_defaults(annotation: ast.expr | None, default: ast.expr) -> list[ast.expr]:
    """Other values of a default: of a number or truth, and of a text whose annotation lists the choices."""
    if isinstance(default, ast.Constant) and isinstance(default.value, str):
        listed = [
            one.value
            for literal in ast.walk(annotation or default)
            if isinstance(literal, ast.Subscript) and ast.unparse(literal.value).endswith("Literal")
            for one in ast.walk(literal.slice)
            if isinstance(one, ast.Constant)
        ]
        return [ast.Constant(one) for one in listed if one != default.value]
    return _other_constants(default)


def _binary(node: ast.BinOp, left: ast.expr, op: ast.operator, right: ast.expr) -> Iterator[tuple[str, list[ast.AST]]]:
    if _is_text(left) or _is_text(right):
        return
    listed = isinstance(left, (ast.List, ast.ListComp, ast.Tuple)) or isinstance(
        right, (ast.List, ast.ListComp, ast.Tuple)
    )
    swapped = _with(node, left=right, right=left)
    match op:
        case ast.Add():
            if not listed:
                yield "sign", [_with(node, op=ast.Sub())]
            yield "dropped term", [left, right]
        case ast.Sub():
            yield "sign", [_with(node, op=ast.Add()), swapped]
            yield "dropped term", [left]
        case ast.Mult():
            yield "dropped term", [left, right]
        case ast.Div():
            yield "dropped term", [left, swapped]
        case ast.FloorDiv() | ast.Mod() | ast.Pow():
            yield "dropped term", [left]
        case ast.BitAnd() | ast.BitOr():
            yield "logic", [_with(node, op=ast.BitOr() if isinstance(op, ast.BitAnd) else ast.BitAnd())]
            yield "dropped term", [left, right]


def _call(node: ast.Call) -> Iterator[tuple[str, list[ast.AST]]]:
    name, func, args = _called(node.func), node.func, node.args
    plain = isinstance(func, ast.Name) or isinstance(func, ast.Attribute) and _is_library(func.value)
    if name in STATISTICS and (args or not plain):
        yield "statistic", [_with(node, func=_renamed(func, other)) for other in STATISTICS[name]]
    if name in STEPS and (args or not plain):
        yield "dropped term", [args[0] if plain else func.value]  # pyrefly: ignore[missing-attribute]
    if name == "sorted" and not any(one.arg == "reverse" for one in node.keywords):
        yield "order", [_with(node, keywords=[*node.keywords, ast.keyword("reverse", ast.Constant(True))])]
    for at, one in enumerate(args):
        if _has_axes(func) and (found := _other_axes(one)):
            yield "axis", [_with(node, args=_put(args, at, other)) for other in found]
        if name in {"range", "arange"} and at == min(1, len(args) - 1):
            yield "off by one", [_with(node, args=_put(args, at, _plus(one, more))) for more in (1, -1)]
    for at, word in enumerate(node.keywords):
        if word.arg in AXIS_NAMES and (found := _other_axes(word.value)):
            others = [_with(word, value=other) for other in found]
            yield "axis", [_with(node, keywords=_put(node.keywords, at, other)) for other in others]
        elif word.arg is not None and word.arg not in UNTOUCHED | AXIS_NAMES and not _is_prose(word.value):
            yield "dropped term", [_with(node, keywords=_put(node.keywords, at))]


def _bounds(node: ast.Slice, which: str, bound: ast.expr | None) -> list[ast.AST]:
    if bound is None:
        return []
    if _whole(bound) in (0, -1):  # one more would be the other end
        return [_with(node, **{which: _plus(bound, -1 if _whole(bound) else 1)}), _with(node, **{which: None})]
    return [_with(node, **{which: _plus(bound, more)}) for more in (1, -1)]


def _other_axes(axis: ast.expr) -> list[ast.expr]:
    if isinstance(axis, ast.Tuple):
        return [_with(axis, elts=_put(axis.elts, at)) for at in range(len(axis.elts)) if len(axis.elts) > 1]
    number = _whole(axis)
    if number is None:
        return []
    return [_number(one) for one in ((number - 1, 0) if number < 0 else (number + 1, number - 1)) if one != number]


def _other_constants(node: ast.AST) -> list[ast.expr]:
    """A large whole number doubled and halved, as a size is mistaken; a small one by one more and one less."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [ast.Constant(not node.value)]
    if (whole := _whole(node)) is not None:
        return [_number(one) for one in ((2 * whole, whole // 2) if abs(whole) >= 16 else (whole + 1, whole - 1))]
    minus = isinstance(node, ast.UnaryOp)
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(value, ast.Constant) and isinstance(value.value, float):
        others = [float(f"{by * value.value:.12g}") for by in (1.5, 0.5)] if value.value else [1.0]
        return [ast.UnaryOp(ast.USub(), ast.Constant(one)) if minus else ast.Constant(one) for one in others]
    return []


def _whole(node: ast.AST) -> int | None:
    """The whole number that it is, written out."""
    match node:
        case ast.Constant(value) if isinstance(value, int) and not isinstance(value, bool):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(value)) if isinstance(value, int) and not isinstance(value, bool):
            return -value
    return None


def _number(value: int) -> ast.expr:
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)


def _plus(node: ast.expr, more: int) -> ast.expr:
    whole = _whole(node)
    if whole is not None:
        return _number(whole + more)
    return ast.BinOp(node, ast.Add() if more > 0 else ast.Sub(), ast.Constant(abs(more)))


def _joined(node: ast.BoolOp, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else _with(node, values=values)


def _renamed(func: ast.expr, name: str) -> ast.expr:
    return _with(func, attr=name) if isinstance(func, ast.Attribute) else ast.Name(name, ast.Load())


def _called(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _has_axes(func: ast.expr) -> bool:
    """Is it a method, or a function of torch, whose whole numbers count axes? Not the max of Python."""
    return isinstance(func, ast.Attribute) and func.attr in AXIS_METHODS


def _is_library(node: ast.expr) -> bool:
    return ast.unparse(node).split(".")[0] in LIBRARIES


def _is_text(node: ast.expr) -> bool:
    """Is it text for sure, which the operators of numbers mean something else to?"""
    match node:
        case ast.Constant(value):
            return isinstance(value, (str, bytes))
        case ast.BinOp(left, _, right):
            return _is_text(left) or _is_text(right)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_text(body) or _is_text(orelse)
    return isinstance(node, ast.JoinedStr)


def _is_prose(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(node, ast.Constant) and " " in str(node.value)


def _with(node: Node, **fields: object) -> Node:
    """The same node with other fields; its children are shared."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _put(items: Iterable[One], at: int, *instead: One) -> list[One]:
    """The items with others, or none, in the place of one."""
    items = list(items)
    return [*items[:at], *instead, *items[at + 1 :]]
