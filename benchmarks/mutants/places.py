"""All places of a file where something can be done wrong, and the file with one of them done."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

from benchmarks.mutants.operators import changes, other_defaults, spoken_for

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOGGING = {"print", "warn", "debug", "info", "warning", "error", "exception", "add_note"}
ENDS = (ast.Constant, ast.Slice, ast.Tuple, ast.comprehension, ast.Starred)
"""Nodes that say too little by themselves: what is around them is shown."""


@dataclass
class Place:
    """A node, what may stand in its place, and where in the file a test would have to come by."""

    operator: str
    instead: Sequence[ast.AST] = field(repr=False)
    parent: ast.AST = field(repr=False)
    name: str
    """The field of the parent that holds the node."""
    at: int | None
    """Its index, where the field is a list."""
    shown: ast.AST = field(repr=False)
    """What is shown of the change: the node, or an expression or a statement around it."""
    line: int
    lines: range
    """Of the node."""
    around: range
    """Of its statement, without the body; of a default, the body of the function."""
    names: frozenset[str] = frozenset()
    """What an import binds by it, where it runs at import."""
    in_function: bool = True
    """Does it run when a function does, and not at import?"""


@dataclass(frozen=True)
class Mutant:
    room: str
    file: str
    number: int
    """Of the place, in the order of the file."""
    share: float
    """0 to 1: which of what may stand there."""
    operator: str
    line: int
    text: str
    """The line of the file."""
    before: str
    after: str


def places(tree: ast.Module) -> list[Place]:
    return list(_Walk().visit(tree))


def draw(root: Path, files: list[Path], room: str, count: int, seed: str) -> list[Mutant]:
    """So many mutants of these files, each place being as likely as any other; the same for the same seed and files."""
    every = [(path, number) for path in sorted(files) for number in range(len(places(ast.parse(path.read_text()))))]
    chance = random.Random(f"{seed} {room}")
    return [
        mutant(root, path, number, room, chance.random())
        for path, number in chance.sample(every, min(count, len(every)))
    ]


def mutant(root: Path, path: Path, number: int, room: str, share: float) -> Mutant:
    """The mutant of this place; `share` of 0 to 1 chooses among what may stand there."""
    source = path.read_text()
    place, before, after, _ = changed(source, number, share)
    text = source.splitlines()[place.line - 1].strip()
    return Mutant(
        room, path.relative_to(root).as_posix(), number, share, place.operator, place.line, text, before, after
    )


def changed(source: str, number: int, share: float) -> tuple[Place, str, str, ast.Module]:
    """The place, the expression before and after, and the tree of the file with it."""
    tree = ast.parse(source)
    place = places(tree)[number]
    other, before = place.instead[int(share * len(place.instead))], ast.unparse(place.shown)
    whole = place.at is None and getattr(place.parent, place.name) is place.shown
    whole = whole or place.at is not None and getattr(place.parent, place.name)[place.at] is place.shown
    if place.at is None:
        setattr(place.parent, place.name, other)
    else:
        getattr(place.parent, place.name)[place.at] = other
    if isinstance(place.shown, ast.keyword) and isinstance(
        place.parent, ast.arguments
    ):  # a default, which stands beside its argument and not around it
        place.shown.value = other  # pyrefly: ignore[bad-assignment]
    after = ast.unparse(other if whole else place.shown)
    return place, before, after, ast.fix_missing_locations(tree)


def compiled(source: str, number: int, share: float, path: str) -> CodeType:
    return compile(changed(source, number, share)[-1], path, "exec", dont_inherit=True)


class _Walk:
    """Down the tree, with what is around: not into messages, annotations, imports and our own invariants."""

    def __init__(self) -> None:
        self.above: list[tuple[ast.AST, str, int | None]] = []
        """Each ancestor, and where in it the next one is."""
        self.done: set[int] = set()

    def visit(self, node: ast.AST) -> Iterator[Place]:
        if _left_alone(node):
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from self._defaults(node)
        if self.above and id(node) not in self.done:
            for operator, instead in changes(node):
                yield self._place(node, operator, instead)
            if isinstance(self.above[-1][0], (ast.If, ast.While)) and self.above[-1][1] == "test":
                once = isinstance(self.above[-1][0], ast.While)  # a loop without end tells nothing
                yield self._place(
                    node, "condition", [ast.Constant(value) for value in ([False] if once else [True, False])]
                )
        self.done |= set(map(id, spoken_for(node)))
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "args", "type_params"} and isinstance(
                node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.AnnAssign)
            ):
                continue
            for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(child, ast.AST):
                    self.above.append((node, name, at))
                    yield from self.visit(child)
                    self.above.pop()

    def _place(self, node: ast.AST, operator: str, instead: Sequence[ast.AST]) -> Place:
        parent, name, at = self.above[-1]
        chain = [one for one, _, _ in self.above] + [node]
        statement = next(one for one in reversed(chain) if isinstance(one, ast.stmt))
        located = next(one for one in reversed(chain) if isinstance(one, (ast.expr, ast.stmt)))
        shown = next(
            one for one in reversed(chain)
            if isinstance(one, (ast.expr, ast.stmt, ast.keyword)) and not isinstance(one, ENDS) and not _is_minus(one)
        )  # fmt: skip
        if isinstance(shown, ast.stmt) and hasattr(shown, "body"):  # a header says what the body does not
            shown = node
        return Place(
            operator, instead, parent, name, at, shown, located.lineno, _lines(located), _header(statement),
            _bound(chain), any(isinstance(one, FUNCTIONS) for one in chain),
        )  # fmt: skip

    def _defaults(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Place]:
        said = function.args
        plain = [*said.posonlyargs, *said.args]
        named = zip(plain[len(plain) - len(said.defaults) :], said.defaults, strict=True)
        keyed = zip(said.kwonlyargs, said.kw_defaults, strict=True)
        body = range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1)
        for where, pairs in (("defaults", named), ("kw_defaults", keyed)):
            for at, (argument, default) in enumerate(pairs):
                if default is not None and (instead := other_defaults(argument.annotation, default)):
                    yield Place(
                        "default", [*instead], said, where, at, ast.keyword(argument.arg, default), default.lineno,
                        body, body,
                    )  # fmt: skip


def _bound(chain: list[ast.AST]) -> frozenset[str]:
    """Names that the statements and classes of this chain bind."""
    found = set()
    for one in chain:
        if isinstance(one, ast.ClassDef):
            found.add(one.name)
        elif isinstance(one, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return frozenset(found)


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Delete():
            return True
        case ast.If(test=test) if ast.unparse(test) in {"TYPE_CHECKING", "__name__ == '__main__'"}:
            return True
        case ast.Expr(ast.Constant()):
            return True
        case ast.Call(func=func) if ast.unparse(func).split(".")[-1] in LOGGING:
            return True
        case ast.keyword(arg="strict" | "stacklevel" | "device" | "help" | "description" | "message" | "encoding"):
            return True
        case ast.Assign(value=ast.Subscript(value=ast.Name(name)) | ast.BinOp(left=ast.Name(name), op=ast.BitOr())):
            return name[:1].isupper() or name in {
                "dict",
                "list",
                "tuple",
                "type",
                "set",
                "int",
                "float",
                "str",
            }  # a type
        case ast.Subscript(value=ast.Name(name)):
            return name[:1].isupper() and not name.isupper() and len(name) > 1 and not name.startswith("W_")
    return False


def _is_minus(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _header(statement: ast.stmt) -> range:
    """The lines of a statement, of a compound one those before its body."""
    body = getattr(statement, "body", None)
    return range(statement.lineno, max(body[0].lineno, statement.lineno + 1)) if body else _lines(statement)
