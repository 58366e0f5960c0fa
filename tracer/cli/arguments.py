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


SEVERAL = {
    "--clamp", "--measures", "--probes", "--scalars", "--rules", "--tags", "--track", "--seeds", "--tests", "--roles",
    "--modes", "--revisions", "--tries", "--without", "--beside",
}  # fmt: skip
"""Options that take several words,"""
SEVERAL_OF = {"view": {"--build"}, "sweep": {"--steps"}}
"""and those that do so of one command. `--set` may be repeated as it is."""


def together(args: list[str]) -> list[str]:
    """An option that takes several words and is given several times, as one: else the last would hold, silently.

    Of an option that takes one word the last holds, as everywhere.
    """
    names = [word.partition("=")[0] for word in args]
    several = {one for one in SEVERAL | SEVERAL_OF.get(args[0] if args else "", set()) if names.count(one) > 1}
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
