"""The grammar of what is asked for, of heads by the finder and of runs by `--find`.

    line       = condition { "or" condition }
    condition  = term { ["and" | "," | "&"] term }      terms that stand side by side must all hold
    term       = { "not" } plain                        of heads or of runs: their readers say
    comparison = "=" | "!=" | "<" | "<=" | ">" | ">="

Source: ours.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
SIGN = r"!=|[<>]=?|="
JOINS = ("and", ",", "&")


class Joined(Protocol):
    """What a term stands for: heads, or a condition on runs."""

    def __and__(self, other: Self, /) -> Self: ...
    def __or__(self, other: Self, /) -> Self: ...
    def __invert__(self) -> Self: ...


T = TypeVar("T", bound=Joined)


class LineReader(ABC, Generic[T]):
    """Reads one line from left to right, of tokens (kind, text); ValueError says which word is not understood."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self.tokens, self.at = tokens, 0

    @abstractmethod
    def plain(self) -> T:
        """What stands between the words that join; it steps over at least one token."""

    @property
    def next(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, *texts: str) -> bool:
        """Step over the next word if it is one of these."""
        if self.next[0] != "end" and self.next[1] in texts:
            self.at += 1
            return True
        return False

    def line(self) -> T:
        found = self._condition()
        while self.take("or"):
            found = found | self._condition()
        return found

    def _condition(self) -> T:
        found = self._term()
        while True:
            joined = self.take(*JOINS)
            if joined and self.next[1] == "or":  # "induction > 0.5, or L1H2"
                return found
            if not joined and (self.next[0] == "end" or self.next[1] == "or"):
                return found
            found = found & self._term()

    def _term(self) -> T:
        negated = False
        while self.take("not"):
            negated = not negated
        found = self.plain()
        return ~found if negated else found

    def shown(self) -> str:
        return f"“{self.next[1]}”" if self.next[0] != "end" else "The end of the line"
