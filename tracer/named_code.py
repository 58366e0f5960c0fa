"""Code that a person names: `module:name` on a command line or in a file, or a Python object; one word for both.

What is named travels in run.json as text. From there nothing is ever imported: whoever goes on with a run names its
code again.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SHARE, FREE_SECONDS = 0.1, 10.0
"""Of the time of a training whose records are at fixed steps, and seconds besides, that a person's measures may take
together, and their functions of the model together: else they are asked at fewer records."""


def named(text: str, what: str) -> Any:
    """The object at `module:name`, of a module that can be imported from the working directory.

    `what`: the word of the option, which errors begin with. ValueError where there is none.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise ValueError(f"{what}={text!r}: write module:name, such as mymodule:my_function")
    main = sys.modules.get("__main__")
    if module in ("__main__", _stem(main)):  # the program itself, which is not to run again
        found: Any = main
    else:
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)
        try:
            found = importlib.import_module(module)
        except Exception as error:  # somebody's code, which raises whatever it runs into
            raise ValueError(
                f"{what}={text!r}: {module} cannot be imported from {here}: {type(error).__name__}: {error}"
            ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ValueError(f"{what}={text!r}: {module} has no {name}")
    return found


def name_of(thing: Any) -> str:
    """`module:name` of a function, a class or an object that was given instead of its name."""
    if isinstance(thing, str):
        return thing
    if isinstance(thing, functools.partial):
        raise ValueError(f"{thing!r:.80} has no name by which it could be asked for again: write a function (def)")
    told = thing if hasattr(thing, "__qualname__") else type(thing)
    module = getattr(thing, "__module__", None) or told.__module__
    if module == "__main__":
        module = _stem(sys.modules.get("__main__")) or module
    return f"{module}:{told.__qualname__}"


NAMED: dict[str, Any] = {}
"""By module:name, what a person has named in this process: what run.json says is looked up here, and not imported."""


NEXT_TOKEN = "next-token"
"""The word for the loss that is trained on where nobody names a function."""


def note_named(thing: Any, what: str) -> str:
    """Notes in NAMED what a person names, `module:name` or the object itself, and returns its `module:name`."""
    text = name_of(thing)
    NAMED[text] = named(text, what) if isinstance(thing, str) else thing
    return text


def why_no_corpus(corpus: str) -> str:
    """In words, why this function that makes data is not run in this process; empty where a person has named it."""
    if corpus in NAMED:
        return ""
    return (
        f"data.corpus={corpus} is code, which is never taken from a run directory: name it, `--data.corpus {corpus}` "
        f"(`tracer resume RUN --corpus {corpus}`), or in Python corpus={corpus!r}"
    )


CLAMPS, MEASURES = "MANYEYES_CLAMP", "MANYEYES_MEASURES"
TESTS, ROLES, RULES = "MANYEYES_HEAD_TESTS", "MANYEYES_HEAD_ROLES", "MANYEYES_RULES"
"""Settings of the environment: functions that clamp heads, measures, tests of a verdict, roles of heads and rules of
Health that a person named for this process and those that it starts, with "," between."""


def remember(setting: str, *codes: str) -> None:
    """Notes `module:name` in a setting of the environment, after what was named there before."""
    os.environ[setting] = ",".join(dict.fromkeys((*remembered(setting), *codes)))


def remembered(setting: str) -> tuple[str, ...]:
    """What a person named for this process, in order."""
    return tuple(filter(None, os.environ.get(setting, "").split(",")))


def note_clamp(code: Any, where: str) -> None:
    """A person named this function of a head, or gave it. ValueError, with the clamp's words, where it is none."""
    name = note_named(code, "clamp")
    if not callable(NAMED[name]):
        what = type(NAMED.pop(name)).__name__
        raise ValueError(f"clamp {where!r}: {name} is a {what}, and no function of a head")


def allow_clamps(*codes: str) -> None:
    """Name functions that clamp heads, for this process and those that it starts. ValueError where there is none."""
    for code in codes:
        note_clamp(code, code)
    remember(CLAMPS, *codes)


def no_clamp(clamps: Iterable[Any]) -> str:
    """In words for a page, why a model with these clamps (`tracer.config.Clamp`) cannot be run; empty where it can."""
    missing = [clamp for clamp in clamps if why_no_clamp(str(clamp), clamp.code)]
    if not missing:
        return ""
    again = " ".join(f'"{clamp}"' for clamp in missing)
    return (
        f"The code of {missing[0].code}, which clamps heads of it, is not in the run (where you trust it: `manyeyes "
        f"--clamp {again}`)"
    )


def why_no_clamp(clamp: str, code: str) -> str:
    """In words, why this clamp's function is not run in this process; empty where a person has named it."""
    if code in NAMED:
        return ""
    if code in remembered(CLAMPS):
        try:
            note_clamp(code, clamp)
        except ValueError as error:
            return str(error)
        return ""
    return (
        f'clamp "{clamp}" is code, which is never taken from a run directory: name it, `--clamp "{clamp}"`, or in '
        f"Python clamp='{clamp}', run.model(step, clamps='{clamp}')"
    )


def all_same(run: str, code: Mapping[str, tuple[Sequence[str], Sequence[str]]], more: bool = False) -> None:
    """ValueError with the words that have it, where a run that names code is gone on with and not all is named again.

    `code`: by the word of the option, what run.json says and what the person says, which may be `more`.
    """
    wrong = {
        what: (before, now) for what, (before, now) in code.items()
        if not (list(before) == list(now) or more and set(before) <= set(now))
    }  # fmt: skip
    if not wrong:
        return
    said = "; ".join(
        f"with {what}={', '.join(before) or 'nothing'}, not with {', '.join(now) or 'nothing'}"
        for what, (before, now) in wrong.items()
    )
    options = {what: f"--{what.replace('_', '-')}" for what in code}
    named = [f"{options[what]} {' '.join(before)}" for what, (before, _) in code.items() if before]
    again = (
        f"name the same again, {' '.join(named)}" if named else f"leave {' and '.join(options[w] for w in wrong)} out"
    )
    raise ValueError(f"{run} was trained {said}. Code is never taken from a run directory: {again}")


def _stem(main: Any) -> str:
    """The module name of the program that runs, as another program would import it."""
    return Path(getattr(main, "__file__", None) or "").stem


def kind_of(thing: object) -> str:
    """Its class with the article before it: "a str", "an int"."""
    name = type(thing).__name__
    return f"{'an' if name[:1] in 'aeioAEIO' else 'a'} {name}"
