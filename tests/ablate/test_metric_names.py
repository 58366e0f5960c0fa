"""What a sweep by a metric of one's own is kept under."""

from typing import Any

import pytest

from tracer.ablate.metrics import _code


def named(logits: Any) -> bool:
    return logits in {0, 8}


def test_the_code_of_a_function_is_the_same_in_every_process() -> None:
    """0 and 8 have the same place in a set, and stand in the order they came in; text has another in each process."""
    code = named.__code__
    at = next(i for i, const in enumerate(code.co_consts) if isinstance(const, frozenset))
    said = set()
    for items in ([0, 8], [8, 0]):
        assert list(frozenset(items)) == items
        consts = (*code.co_consts[:at], frozenset(items), *code.co_consts[at + 1 :])
        named.__code__ = code.replace(co_consts=consts)
        said.add(_code(named))
    named.__code__ = code
    assert len(said) == 1


@pytest.mark.parametrize("other", [lambda logits: logits in {0, 16}, lambda logits: logits not in {0, 8}])
def test_other_code_has_another_name(other: Any) -> None:
    assert _code(other) != _code(named)
