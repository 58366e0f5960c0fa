"""Which tests run a line: each test file has run once under coverage, and runs again when it or what it ran changes."""

from __future__ import annotations

import ast
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from benchmarks.mutants.forks import Job, Outcome, Slot
from benchmarks.mutants.house import House
from benchmarks.mutants.places import FUNCTIONS, Place

LIMIT = 3600.0
"""Seconds for one file of tests."""


class Test(NamedTuple):
    seconds: float
    fixtures: tuple[str, ...]
    """Those of more than one test."""


class Reach:
    """What the records of all test files say."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.tests: dict[str, Test] = {}
        self.fixtures: dict[str, float] = {}
        self.broken: list[str] = []
        """Tests that fail with nothing changed: they are not asked."""
        self._asking: dict[str, set[str]] = {}
        """The tests that ask for a fixture."""
        self._databases: list[sqlite3.Connection] = []
        self._masks: dict[str, list[tuple[str, int]]] = {}
        for file in house.test_files():
            record = _record(house, file)
            if not record.with_name(record.name + ".json").exists():
                continue
            said = json.loads(record.with_name(record.name + ".json").read_text())
            for name, seconds in said["fixtures"].items():
                self.fixtures[name] = max(seconds, self.fixtures.get(name, 0))
            for name, test in said["tests"].items():
                if test["passed"]:
                    self.tests[name] = Test(test["seconds"], tuple(test["fixtures"]))
                else:
                    self.broken.append(name)
            lines = record.with_name(record.name + ".lines")
            self._databases.append(sqlite3.connect(f"file:{lines}?mode=ro", uri=True, check_same_thread=False))
        for name, test in self.tests.items():
            for fixture in test.fixtures:
                self._asking.setdefault(fixture, set()).add(name)

    def of(self, file: str, place: Place) -> set[str]:
        """The tests that run this place; of what an import runs, those that use what it binds.

        They run a function that names it, or stand in a file that does.
        """
        if not place.in_function:
            lines, names = self._users(file, place.names)
            return self.running(lines or [(file, self._function_lines(file))]) | self._naming(names)
        return self.running([(file, place.lines)]) or self.running([(file, place.around)])

    def running(self, where: Iterable[tuple[str, Iterable[int]]]) -> set[str]:
        """The tests that run any of these lines, themselves or through a fixture."""
        found: set[str] = set()
        for file, lines in where:
            wanted = sum(1 << line for line in set(lines))
            for context, mask in self._of_file(file):
                if mask & wanted:
                    found |= self._asking.get(context, {context}) & self.tests.keys()
        return found

    def seconds(self, tests: Iterable[str]) -> float:
        """What these tests take in one process, which makes each shared fixture once."""
        tests = list(tests)
        fixtures = {fixture for test in tests for fixture in self.tests[test].fixtures}
        return sum(self.tests[test].seconds for test in tests) + sum(self.fixtures.get(one, 0) for one in fixtures)

    def _of_file(self, file: str) -> list[tuple[str, int]]:
        """Contexts, and the lines of this file that each ran, as bits."""
        if file not in self._masks:
            path = str(self.house.root / file)
            query = (
                "select context.context, line_bits.numbits from line_bits join file on file.id = line_bits.file_id "
                "join context on context.id = line_bits.context_id where file.path = ?"
            )
            self._masks[file] = [
                (context, int.from_bytes(bits, "little"))
                for database in self._databases
                for context, bits in database.execute(query, (path,))
                if context
            ]
        return self._masks[file]

    def _function_lines(self, file: str) -> set[int]:
        return {
            line
            for node in ast.walk(self._trees[file])
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for line in range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
        }

    def _users(self, file: str, names: Iterable[str]) -> tuple[list[tuple[str, list[int]]], set[tuple[str, str]]]:
        """Lines of functions that name any of these, here or where they are imported, or what is made of them; and
        the names that were looked for, each with the file that binds it."""
        ahead, seen, found = [(file, name) for name in names], set(), []
        while ahead:
            home, name = ahead.pop()
            if (home, name) in seen:
                continue
            seen.add((home, name))
            for other, tree in self._trees.items():
                if name not in self._texts[other]:
                    continue
                called = {name} if other == home else _imported_as(tree, name)
                near = other == home or _imports_from(tree, self.house.module(home))
                lines, bound = _mentions(tree, called, name if near else None)
                if lines:
                    found.append((other, lines))
                ahead += [(other, one) for one in bound if (other, one) not in seen]
        return found, seen

    def _naming(self, names: set[tuple[str, str]]) -> set[str]:
        """The tests of files that import any of these names, or the module or a package around it."""
        files = {
            test
            for test, text in self._test_texts.items()
            for home, name in names
            if name in text and (
                _imported_as(self._test_trees[test], name)
                or f".{name}" in text and _imports_from(self._test_trees[test], self.house.module(home), whole=True)
            )
        }  # fmt: skip
        return {test for test in self.tests if test.split("::")[0] in files}

    @cached_property
    def _test_texts(self) -> dict[str, str]:
        return {file: (self.house.root / file).read_text() for file in self.house.test_files()}

    @cached_property
    def _test_trees(self) -> dict[str, ast.Module]:
        return {file: ast.parse(text) for file, text in self._test_texts.items()}

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {path.relative_to(self.house.root).as_posix(): path.read_text() for path in self.house.source_files()}

    @cached_property
    def _trees(self) -> dict[str, ast.Module]:
        return {file: ast.parse(text) for file, text in self._texts.items()}


def make(house: House, slots: list[Slot], say: Callable[[str], None]) -> None:
    """Run each test file whose record is not there, or is of other files than those of today."""
    _folder(house).mkdir(parents=True, exist_ok=True)
    due = [file for file in house.test_files() if not _is_current(house, file)]
    free: SimpleQueue[Slot] = SimpleQueue()
    for slot in slots:
        free.put(slot)

    def one(file: str) -> tuple[str, Outcome]:
        slot, record = free.get(), _record(house, file)
        try:
            for old in record.parent.glob(record.name + ".*"):
                old.unlink()
            outcome = slot.run(Job((file,), LIMIT, lines=str(record), keep_made=True))
            if outcome.failed is None and not outcome.timed_out:
                record.with_name(record.name + ".of").write_text(json.dumps(_hashes(house, file, _ran(house, record))))
            return file, outcome
        finally:
            free.put(slot)

    with ThreadPoolExecutor(len(slots)) as pool:
        for number, (file, outcome) in enumerate(pool.map(one, due), 1):
            bad = _failing(house, file)
            if outcome.failed is not None or outcome.timed_out:
                bad = f", no record:\n{outcome.log}"
            say(f"lines {number}/{len(due)} {file} {outcome.seconds:.0f} s{bad}")


def _failing(house: House, file: str) -> str:
    """In words, how many tests fail with nothing changed, which are never asked."""
    said = _record(house, file).with_name(_record(house, file).name + ".json")
    tests = json.loads(said.read_text())["tests"] if said.exists() else {}
    names = [name for name, test in tests.items() if not test["passed"]]
    return f", {len(names)} of {len(tests)} fail by themselves: {', '.join(names[:3])}" if names else ""


def _folder(house: House) -> Path:
    return house.kept / "reach"


def _record(house: House, file: str) -> Path:
    return _folder(house) / file.removeprefix(house.tests + "/").removesuffix(".py").replace("/", ".")


def _ran(house: House, record: Path) -> list[str]:
    with sqlite3.connect(f"file:{record}.lines?mode=ro", uri=True) as database:
        return sorted(
            Path(path).relative_to(house.root).as_posix() for (path,) in database.execute("select path from file")
        )


def _hashes(house: House, file: str, ran: list[str]) -> dict[str, str]:
    """Of the test file, of what tests share, and of all sources that it ran."""
    helpers = (path for path in (house.root / house.tests).rglob("*.py") if not path.name.startswith("test_"))
    shared = [one for path in helpers if not (one := path.relative_to(house.root).as_posix()).startswith(house.without)]
    paths = [one for one in [file, *sorted(shared), *ran] if (house.root / one).exists()]
    return {one: hashlib.sha256((house.root / one).read_bytes()).hexdigest()[:16] for one in paths}


def _is_current(house: House, file: str) -> bool:
    of = _record(house, file).with_name(_record(house, file).name + ".of")
    if not of.exists():
        return False
    said = json.loads(of.read_text())
    return said == _hashes(house, file, [one for one in said if one.split("/")[0] in house.sources])


def _imported_as(tree: ast.Module, name: str) -> set[str]:
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == name
    }


def _imports_from(tree: ast.Module, module: str, whole: bool = False) -> bool:
    """Does it import from this module, or from a package that may hand on what the module holds? From the `whole`, too,
    that is the package around all."""
    froms = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return any(module == one or (whole or "." in one) and module.startswith(f"{one}.") for one in froms)


def _mentions(tree: ast.Module, called: set[str], attribute: str | None) -> tuple[list[int], set[str]]:
    """Lines of functions that name it, and names that a module or a class binds with its help."""
    lines: list[int] = []
    bound: set[str] = set()

    def down(node: ast.AST, in_function: bool, binds: frozenset[str]) -> None:
        if isinstance(node, ast.ClassDef):
            binds = binds | {node.name}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and not in_function:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            binds = binds | {one.id for each in targets for one in ast.walk(each) if isinstance(one, ast.Name)}
        is_it = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in called
        if is_it or isinstance(node, ast.Attribute) and attribute is not None and node.attr == attribute:
            if in_function:
                lines.append(node.lineno)  # pyrefly: ignore[missing-attribute]
            else:
                bound.update(binds)
        if isinstance(node, FUNCTIONS):
            body = node.body if isinstance(node.body, list) else [node.body]
            for one in ast.iter_child_nodes(node):
                down(one, in_function or one in body, binds)
        else:
            for one in ast.iter_child_nodes(node):
                down(one, in_function, binds)

    down(tree, False, frozenset())
    return lines, bound
