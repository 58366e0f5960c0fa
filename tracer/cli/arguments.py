"""Words of a command line that are looked at before its options are read."""

from __future__ import annotations

import itertools


def value(args: list[str], option: str) -> str | None:
    """What follows an option; None where it is not given."""
    for word, following in zip(args, [*args[1:], None], strict=False):
        if word == option or word.startswith(f"{option}="):
            return following if word == option else word.partition("=")[2]
    return None


def values(args: list[str], option: str) -> list[str]:
    """All that follows an option, up to the next."""
    found: list[str] = []
    for i, word in enumerate(args):
        if word == option:
            found += itertools.takewhile(lambda one: not one.startswith("--"), args[i + 1 :])
        elif word.startswith(f"{option}="):
            found.append(word.partition("=")[2])
    return found
