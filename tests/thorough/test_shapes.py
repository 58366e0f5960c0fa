"""What is checked of a signature while tests run, and what is not."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation
from jaxtyping import TypeCheckError

from tests.shapes import check_signatures

SOURCE = """
from __future__ import annotations
from typing import TYPE_CHECKING
from jaxtyping import Float
from torch import Tensor
if TYPE_CHECKING:
    from nowhere import Thing
Rows = Float[Tensor, "row"]
def both(a: Rows, b: Float[Tensor, "row col"] | None = None) -> Float[Tensor, "row"]:
    return a if b is None else b[0]
def plain(n: float, thing: Thing | None = None) -> float:
    return n
class Kept:
    def twice(self, n: int) -> int:
        def inner(m: str): return m
        return inner(n) * 2
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("checked")
    Path(folder / "signed_by_a_test.py").write_text(SOURCE)
    hooks = list(sys.meta_path)
    try:
        check_signatures(["signed_by_a_test"])
        sys.path.insert(0, str(folder))
        import signed_by_a_test  # pyrefly: ignore[missing-import]
    finally:
        sys.path.remove(str(folder))
        sys.meta_path[:] = hooks
    return signed_by_a_test


def test_axes_agree_within_a_signature_also_by_an_alias(module: ModuleType) -> None:
    assert module.both(torch.ones(2)).shape == (2,)
    for wrong in [(torch.ones(2, 2),), (torch.ones(2), torch.ones(3, 2)), (torch.ones(2), torch.ones(2, 3))]:
        with pytest.raises(TypeCheckError):
            module.both(*wrong)


def test_types_are_checked_where_nothing_has_axes(module: ModuleType) -> None:
    assert module.plain(1) == 1, "an int is a fine float"
    assert module.plain(1, thing="what only a type checker knows is any") == 1
    for call in (lambda: module.plain("1"), lambda: module.Kept().twice("1")):
        with pytest.raises(BeartypeCallHintParamViolation):
            call()


def test_closures_are_left_alone(module: ModuleType) -> None:
    assert module.Kept().twice(2) == 4


def test_what_is_called_again_and_again_is_checked_at_each_fiftieth_call(module: ModuleType) -> None:
    found = []
    for call in range(1, 141):
        try:
            module.both(torch.ones(2, 2))
        except TypeCheckError:
            found.append(call)
    assert found == [*range(1, 21), 50, 100]
