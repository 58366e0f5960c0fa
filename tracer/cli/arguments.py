"""Words of a command line that are looked at before its options are read."""

from __future__ import annotations

import itertools
from collections.abc import Collection


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


def together(args: list[str], apart: Collection[str] = ("--set",)) -> list[str]:
    """An option that is given several times as one, with all that follows it: of several the last would hold, silently.

    Where it takes one value, what is read next refuses the others. `apart`: options that are read one by one.
    """
    names = [word.partition("=")[0] for word in args if word.startswith("--") and len(word) > 2]
    several = {name for name in names if names.count(name) > 1 and name not in apart}
    found: list[str] = []
    done = set[str]()
    inside = False
    """What follows an option that was read with its first place."""
    for word in args:
        name = word.partition("=")[0]
        if name in several:
            if name not in done:
                done.add(name)
                found += [name, *values(args, name)]
            inside = "=" not in word
        elif word.startswith("--") or not inside:
            inside = False
            found.append(word)
    return found
