"""Two tiers of tests, told apart by folder and by case, here and nowhere else.

The first (`make test`, `pytest`) says that the product works: one oracle for each measure, edit, store and model
function, one test a page, the main job in a browser. The second lies in folders named `thorough` and in
`tests/attacks`: every family, shape, width and layout, kills, many processes, other people's services. `pytest
--thorough` runs both, with the signatures of `tracer` checked at run time, which doubles the cost of a call. `make
test-all`, which comes after `make test`, leaves out what that ran and what gains nothing from these checks
(`--after-first`): pages, commands, files and loops, whose calls with arrays other tests make as well, and of each test
that runs again all cases but the last. A path that is named on the command line runs whatever its tier.
Where the cases of one test differ in family, kind or size alone, `quick` names those of the first tier.
"""

import sys
from collections.abc import Container, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

SECOND = {"thorough", "attacks"}
# Modules whose signatures, shapes included, can be checked at run time. Not so config, presets,
# store and cli: people hand them wrong values, and they answer with a ValueError of their own.
PARTS = (
    "ablate", "analysis", "data", "export", "heads", "hooks", "huggingface", "interventions", "measures", "model",
    "store.trace_layout", "tracking", "training.first_order", "training.head_score",
    "training.job", "training.loop", "training.optim", "training.own_loss", "training.probe_recorder",
    "training.qk_clip", "training.sigma_reparam", "watching",
)  # fmt: skip
FIRST_ALONE = {
    "browser", "cli", "dashboard", "diagnosis", "export", "pictures", "questions", "site", "specimens", "store",
    "tests", "training", "watching",
}  # fmt: skip
"""Folders whose tests of the first tier do not run again with signatures checked: others call the same functions."""
T = TypeVar("T")


class Cases(list[T]):
    """Of one test, where the tiers differ in them."""

    first: Container[T] = ()


THOROUGH = False
"""Does the second tier run, too?"""
SHAPE_CHECKED = [f"tracer.{part}" for part in PARTS]


def pytest_addoption(parser: pytest.Parser) -> None:
    help = "the second tier of tests too, and the signatures of tracer checked at run time"
    parser.addoption("--thorough", action="store_true", help=help)
    help = "leave out tests of the first tier that gain nothing from running again with signatures checked"
    parser.addoption("--after-first", action="store_true", help=help)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before the first conftest imports any of tracer: signatures are checked from a module's import on."""
    global THOROUGH
    THOROUGH = early_config.known_args_namespace.thorough
    if THOROUGH:
        from tests.shapes import check_signatures

        check_signatures(SHAPE_CHECKED)


def quick(cases: Iterable[T], first: Container[T]) -> Cases[T]:
    """Of the cases of one test those of the first tier; all of them where the second runs too."""
    found = Cases(case for case in cases if THOROUGH or case in first)
    found.first = first
    return found


def is_further_case(item: pytest.Item) -> bool:
    """Of a test of which the first tier runs others?"""
    for mark in item.iter_markers("parametrize"):
        names, cases = mark.args[:2]
        if isinstance(cases, Cases) and isinstance(item, pytest.Function):
            names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
            case = tuple(item.callspec.params[name] for name in names)
            if (case[0] if len(case) == 1 else case) not in cases.first:
                return True
    return False


def name_of_test(item: pytest.Item) -> tuple[object, ...]:
    """The same for all cases of a test."""
    return item.path, getattr(item, "cls", None), getattr(item, "originalname", item.name)


def pytest_runtest_setup() -> None:
    if shapes := sys.modules.get("tests.shapes"):
        shapes.CALLS.clear()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The second tier's folders; pytest does not ask about a path that is named on the command line."""
    if collection_path.name in SECOND and not config.getoption("thorough"):
        return True
    again = collection_path.parent.name in FIRST_ALONE and collection_path.name.startswith("test_")
    if again and config.getoption("after_first") and "quick(" not in collection_path.read_text(encoding="utf-8"):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow files first, and of them those without a browser: meanwhile one worker trains what the others show."""
    if config.getoption("after_first"):
        again = [item for item in items if item.path.parent.name not in FIRST_ALONE]
        last = {*{name_of_test(item): item for item in again}.values()}
        items[:] = [
            item for item in items
            if SECOND & {*item.path.relative_to(config.rootpath).parts} or is_further_case(item) or item in last
        ]  # fmt: skip
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, "browser" in item.path.parts))
