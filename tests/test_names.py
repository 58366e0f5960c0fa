"""One name, one thing: a search for a module or a class finds no other of its name."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONVENTIONS = {"__init__", "__main__", "page", "data", "figures"}
"""Modules that any folder may have, named after what they do in it."""
SOURCES = {str(path.relative_to(ROOT)): path.read_text()
           for top in ("tracer", "dashboard") for path in sorted((ROOT / top).rglob("*.py"))}  # fmt: skip


def twins(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that are given more than once, and where; from pairs of a name and a place."""
    places = defaultdict(list)
    for name, place in named:
        places[name].append(place)
    return {name: where for name, where in places.items() if len(where) > 1}


def classes(source: str) -> list[str]:
    """Those at the top of a module."""
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]


def modules(path: str) -> list[str]:
    """The module's name with its house: the dashboard may name a module after that of tracer whose answers it shows."""
    top, stem = Path(path).parts[0], Path(path).stem
    return [] if stem in CONVENTIONS else [f"{stem} in {top}"]


def test_twins_are_found() -> None:
    sources = {
        "tracer/a/one.py": "class A: ...\nclass B: ...", "tracer/b/one.py": "class B:\n    class A: ...",
        "dashboard/a/one.py": "", "tracer/a/__init__.py": "", "tracer/b/__init__.py": "",
    }  # fmt: skip
    assert twins((name, path) for path, source in sources.items() for name in classes(source)) == {
        "B": ["tracer/a/one.py", "tracer/b/one.py"]
    }
    assert twins((name, path) for path in sources for name in modules(path)) == {
        "one in tracer": ["tracer/a/one.py", "tracer/b/one.py"]
    }


def test_no_two_classes_have_one_name() -> None:
    assert len(SOURCES) > 300
    assert twins((name, path) for path, source in SOURCES.items() for name in classes(source)) == {}


def test_no_two_modules_have_one_name() -> None:
    assert twins((name, path) for path in SOURCES for name in modules(path)) == {}
