"""Pairs of prompts by template, clean and corrupted, for patching: IOI, greater-than, docstring.

Each template is filled with names by a seed; the corrupted prompt has the same words in the same places, but for the
one that decides the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from tracer.config.field_docs import fields_in_help
from tracer.data.tokenizer import ids_of

NAMES = ("Mary", "John", "Tom", "James", "Sarah", "Anna", "Paul", "Mark", "Lisa", "David", "Peter", "Laura")
PLACES = ("store", "park", "school", "office", "station", "garden")
THINGS = ("drink", "book", "ring", "letter", "ball", "key")
EVENTS = ("war", "project", "trial", "campaign", "journey", "famine")
ARGUMENTS = ("size", "name", "file", "path", "text", "data", "mode", "line", "key", "index", "value", "color")


class TokenPairs(NamedTuple):
    """What `tracer.patch` and `LogitDifference` take."""

    clean: Int[Tensor, "batch pos"]
    corrupted: Int[Tensor, "batch pos"]
    right: Int[Tensor, " batch"]
    """The first token of what follows each clean prompt, and of what follows its corrupted one."""
    wrong: Int[Tensor, " batch"]


@fields_in_help
@dataclass(frozen=True)
class Pairs:
    """Row i of each goes with row i of the others."""

    clean: list[str]
    """Prompts."""
    corrupted: list[str]
    """The same, with what the answer hangs on replaced."""
    right: list[str]
    """What comes next after the clean prompt."""
    wrong: list[str]
    """What comes next after the corrupted one."""

    def tokens(self, tokenizer: Any, bos: int | None = None) -> TokenPairs:
        """By a tokenizer (of `tokenizers` or `transformers`); `bos` goes in front, as `model.bos` says.

        ValueError, with the prompt, where a row is not as long as the first: positions would not correspond.
        """
        start = [] if bos is None else [bos]
        rows = [start + ids_of(tokenizer, text) for text in (*self.clean, *self.corrupted)]
        for text, row in zip((*self.clean, *self.corrupted), rows, strict=True):
            if len(row) != len(rows[0]):
                raise ValueError(
                    f"{text!r} has {len(row)} tokens and {self.clean[0]!r} has {len(rows[0])}: with this tokenizer not "
                    f"all words of the template are one token; take other names, or drop such rows"
                )
        answers = torch.tensor([[ids_of(tokenizer, text)[0] for text in side] for side in (self.right, self.wrong)])
        clean, corrupted = torch.tensor(rows).chunk(2)
        return TokenPairs(clean, corrupted, *answers)


def ioi(n: int = 8, seed: int = 0, names: tuple[str, ...] = NAMES) -> Pairs:
    """Who gets it? The name that was said once; corrupted, the other gives (Wang et al. 2022, 2211.00593)."""

    def row(draw: random.Random) -> tuple[str, str, str, str]:
        a, b = draw.sample(names, 2)
        place, thing = draw.choice(PLACES), draw.choice(THINGS)
        start = f"When {a} and {b} went to the {place}, "
        return f"{start}{b} gave a {thing} to", f"{start}{a} gave a {thing} to", f" {a}", f" {b}"

    return _pairs(row, n, seed)


def greater_than(n: int = 8, seed: int = 0) -> Pairs:
    """When did it end? Not before it began: one later year against one earlier (after Hanna et al. 2023, 2305.00586).

    Corrupted, it began in 01, after which both years come.
    """

    def row(draw: random.Random) -> tuple[str, str, str, str]:
        event, century, year = draw.choice(EVENTS), draw.choice((11, 13, 15, 17)), draw.randint(12, 88)
        prompt = f"The {event} lasted from the year {century}{{}} to the year {century}"
        return prompt.format(f"{year}"), prompt.format("01"), f"{year + 1}", f"{year - 1}"

    return _pairs(row, n, seed)


def docstring(n: int = 8, seed: int = 0, arguments: tuple[str, ...] = ARGUMENTS) -> Pairs:
    """Which argument is described next? The third of the signature; corrupted, it has another there
    (Heimersheim and Janiak 2023)."""

    def row(draw: random.Random) -> tuple[str, str, str, str]:
        a, b, c, d = draw.sample(arguments, 4)
        body = f'    """Do it.\n\n    :param {a}: the {a}\n    :param {b}: the {b}\n    :param'
        return (f"def run(self, {a}, {b}, {c}):\n{body}", f"def run(self, {a}, {b}, {d}):\n{body}", f" {c}", f" {d}")

    return _pairs(row, n, seed)


def _pairs(row: Callable[[random.Random], tuple[str, str, str, str]], n: int, seed: int) -> Pairs:
    if n < 1:
        raise ValueError(f"n={n}: at least one pair is needed")
    draw = random.Random(seed)
    return Pairs(*(list(column) for column in zip(*(row(draw) for _ in range(n)), strict=True)))
