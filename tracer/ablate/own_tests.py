"""Tests of a user's on the verdict card: a function of a model and a head, with what makes it a row.

    @tracer.head_test(label="attention to the start", at_least=0.4, chance=0.1, text="Where heads rest.")
    def rests(model, tokens, layer, head):
        pattern = model.run_with_cache(tokens)[1]["pattern", layer][:, head, 16:]
        return pattern[..., 0].mean(-1), pattern[..., 1].mean(-1)  # one number a sequence, and its control

Such a row never changes what makes a head an induction head, and what goes wrong in it is said in its place.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tracer.ablate.estimates import estimate
from tracer.ablate.induction_tests import HeadTest, number, without_number
from tracer.data.own_probe import Probe
from tracer.data.probes import Tokens
from tracer.huggingface.building import same_dice
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel
from tracer.named_code import kind_of, name_of, named

TAKEN = ("prefix matching", "copying", "copying by its weights", "ablation", "previous-token partners")
LONGEST = 300
"""Characters of what a function raises that a card has room for."""


@dataclass(frozen=True, eq=False)
class OwnTest:
    """A function of (model, tokens, layer, head), and the row that it is."""

    name: str
    code: str
    """Where it is, `module:name`."""
    function: Callable[..., Any]
    at_least: float
    chance: float | None
    text: str
    rows: Probe | None
    """The tokens that it is asked on; None: those of the card."""

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)


Tests = str | OwnTest | Sequence[Any]
"""What may be given as `tests=`: what `head_test` makes of a function, `module:name` of it, or several."""


def head_test(
    function: Callable[..., Any] | None = None, *, at_least: float | None = None, chance: float | None = None,
    label: str = "", text: str = "", tokens: Any = None,
) -> Any:  # fmt: skip
    """Make a row of the verdict card of a function of (model, tokens, layer, head).

    It returns one number a sequence, [batch], or two of them: the numbers and their control, which is one number or
    [batch]. Passed where the mean is `at_least` as high and the low end of its 95 % interval over sequences is above
    `chance` and above the mean of the control. `label`: of the row; else the function's name. `text`: what it measures;
    else the first line of the docstring. `tokens`: ids [batch pos] or a `tracer.Probe`, that it is called with in place
    of the repeated random tokens of the card. It is called without gradients, with the same dice of torch each
    time. ValueError for what makes no row.
    """
    if function is None:
        return partial(head_test, at_least=at_least, chance=chance, label=label, text=text, tokens=tokens)
    if "<lambda>" in (code := name_of(function)):
        raise ValueError("head_test: a lambda has no name by which it could be asked for again: write a function (def)")
    name = label.strip() or code.rpartition(":")[2].rpartition(".")[2].replace("_", " ").strip()
    if not name or not name.isprintable():
        raise ValueError(f"head_test {code}: label={label!r} is no name for a row")
    if name.lower() in TAKEN:
        raise ValueError(f"head_test {code}: {name!r} is the name of one of ours; give another label=")
    if not _finite(at_least):
        raise ValueError(f"head_test {code}: at_least={at_least!r}: say which mean passes it, such as at_least=0.4")
    if chance is not None and not _finite(chance):
        raise ValueError(f"head_test {code}: chance={chance!r} is no number; leave it out where nobody knows it")
    if chance is not None and at_least <= chance:
        raise ValueError(f"head_test {code}: at_least={at_least:g} is not above chance={chance:g}")
    said = " ".join((text or (function.__doc__ or "").strip().split("\n")[0]).split())
    rows = tokens if tokens is None or isinstance(tokens, Probe) else Probe(tokens)
    return OwnTest(name, code, function, float(at_least), chance, said, rows)


def given_tests(tests: Any) -> tuple[OwnTest, ...]:
    """Those that a person gave (`Tests`). ValueError for what is none, and for two of one name."""
    if not isinstance(tests, Sequence | OwnTest):
        raise ValueError(f"tests={tests!r:.60}: make each with tracer.head_test, or name it as module:name")
    found: list[OwnTest] = []
    for one in _each(tests):
        thing = named(one, "tests") if isinstance(one, str) else one
        for each in thing if isinstance(thing, list | tuple) else [thing]:
            if not isinstance(each, OwnTest):
                raise ValueError(f"tests={name_of(one)}: make it with tracer.head_test")
            found.append(each)
    names = [one.name.lower() for one in found]
    if twice := [one.name for one in found if names.count(one.name.lower()) > 1]:
        raise ValueError(f"tests: two are called {twice[0]!r}; give one another label=")
    return tuple(found)


def asked_again(tests: Tests) -> str:
    """The tests as Python, so that a call is given the same again; empty where there are none.

    One that no module has under its name stands there as a variable: whoever made it has it.
    """
    words = [repr(one) if isinstance(one, str) else _word(one) for one in _each(tests)]
    return f", tests=[{', '.join(words)}]" if words else ""


def own_test(test: OwnTest, model: HeadModel, head: Head, tokens: Tokens) -> HeadTest:
    """The row of one test; `tokens` are those of the card."""
    rows = tokens
    if test.rows is not None:
        try:
            rows = test.rows.fitting(f"of {test.name!r}", model.d_vocab, model.n_ctx).to(tokens.device)
        except ValueError as error:
            return _not_measured(test, f"cannot be asked, as {error}")
    if len(rows) < 2:
        return _not_measured(test, "was asked on one sequence, which has no interval")
    try:
        with same_dice():
            torch.manual_seed(0)
            returned = test(model, rows.clone(), *head)
    except Exception as error:  # somebody's code, which raises whatever it runs into
        return _not_measured(test, f"raised {type(error).__name__}: {error}")
    try:
        values, control = _read(returned, len(rows))
    except ValueError as error:
        return _not_measured(test, f"returned {error}")
    found, chance = estimate(values), math.nan if test.chance is None else test.chance
    beaten = not any(found.low <= other for other in (chance, control))  # of nan, which is not known, nothing is
    return HeadTest(
        test.name, found.mean, found.low, found.high, chance, found.mean >= test.at_least and beaten,
        _sentence(test, control), code=test.code,
    )  # fmt: skip


def _sentence(test: OwnTest, control: float) -> str:
    above = ["chance"] * (test.chance is not None) + [f"its control, {number(control)}"] * (not math.isnan(control))
    said = [f"{test.text.rstrip('.')}."] if test.text else []
    said.append(f"At least {test.at_least:g} is needed{', with an interval above ' if above else ''}"
                f"{' and above '.join(above)}.")  # fmt: skip
    said += ["There is no control."] * math.isnan(control)
    return " ".join([*said, f"Measured by {test.code}."])


def _not_measured(test: OwnTest, why: str) -> HeadTest:
    said = textwrap.shorten(f"Not measured: {test.code} {why}".rstrip("."), LONGEST, placeholder=" …")
    return replace(without_number(test.name, None, f"{said}."), code=test.code)


def _read(returned: object, n: int) -> tuple[Float[np.ndarray, " batch"], float]:
    """One number a sequence, and the mean of the control; nan without one. ValueError with what it is instead."""
    pair = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    values = _numbers(pair[0])
    if values.shape != (n,):
        raise ValueError(f"{_shape(values)}, and not one number a sequence, here [{n}]")
    if pair[1] is None:
        return values, math.nan
    control = _numbers(pair[1])
    if control.shape not in ((), (n,)):
        raise ValueError(f"a control of {_shape(control)}, and not one number, or one a sequence, here [{n}]")
    return values, float(control.mean())


def _numbers(found: Any) -> Float[np.ndarray, "*any"]:
    try:
        if isinstance(found, Tensor):
            found = found.detach().cpu().double()
        values = None if found is None else np.asarray(found, np.float64)
    except (TypeError, ValueError):
        values = None
    if values is None:
        raise ValueError(f"{'nothing' if found is None else kind_of(found)}, and no numbers")
    if not np.isfinite(values).all():
        raise ValueError(f"{int((~np.isfinite(values)).sum())} of {values.size} numbers that are not finite")
    return values


def _shape(values: np.ndarray) -> str:
    return f"numbers {list(values.shape)}" if values.shape else "one number"


def _each(tests: Any) -> list[Any]:
    return [tests] if isinstance(tests, str | OwnTest) else list(tests)


def _word(test: OwnTest) -> str:
    try:
        found = named(test.code, "tests") is test
    except ValueError:
        found = False
    return repr(test.code) if found else test.code.rpartition(":")[2].rpartition(".")[2]


def _finite(x: Any) -> TypeGuard[float]:
    return isinstance(x, int | float) and math.isfinite(x)
