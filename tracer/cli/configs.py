"""Configurations from a file, and many from one: each seed, and each value of each setting."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from tracer.cli.output import say
from tracer.config import OWN_CODE, Clamp, TrainConfig
from tracer.config.fields import from_dict, to_dict
from tracer.named_code import note_clamp, note_named
from tracer.presets import PRESETS

Code = Mapping[str, tuple[str, ...]]
"""What a file names of a person's code, by the word of the option."""
NO_CODE: Code = {"measures": (), "probes": (), "scalars": (), "rules": (), "loss": (), "build": ()}

ALONE = {"loss": "--loss next-token", "build": "--build mymodule:make"}
"""Of these a run has one, without which it is another training; and what else could be named."""


def read(path: str | Path) -> tuple[TrainConfig, str | None]:
    """The configuration of a YAML or JSON file, and its preset: what it leaves out is the preset's, or the default.

    The run.json of a run is such a file; a run of that name is there, so it gets another. Code that any other file
    names may run.
    """
    settings: dict[str, Any] = {name: x for name, x in _content(path).items() if name not in NO_CODE}
    preset = settings.pop("preset", None)
    of_a_run = _of_a_run(path, settings)
    if "format" in settings:
        settings["config"] = settings.get("config") or settings.get("built_with")
        if not isinstance(settings["config"], Mapping):
            raise ValueError(f"{path} is of a run that `tracer train` did not make: it holds no configuration of ours")
        settings = {**settings["config"], "run": None}
    if preset is not None and preset not in tuple(PRESETS):
        raise ValueError(f"{path}: preset={preset!r} is not one of {', '.join(PRESETS)}")
    try:
        config = merged(PRESETS[preset].config if preset else TrainConfig(), settings)
        if not of_a_run:
            allow(config.data.corpus)
            name_clamps(config.clamp)
        return config, preset
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def code(path: str | Path, said: Collection[str] = ()) -> Code:
    """The code that such a file names, by option. Of a run.json nothing: it is said what is left out.

    ValueError where that would be the loss or the model, unless `said` holds the option, as the command line does.
    """
    content, found = _content(path), dict[str, tuple[str, ...]]()
    ours = _of_a_run(path, content)
    for option in NO_CODE:
        given = content.get(option) or ()
        names = (given,) if isinstance(given, str) else given
        names = list(names) if ours and isinstance(names, Mapping) else names  # a run.json says what its probes hold
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{path}: {option}={given!r:.60} is no list of module:name")
        if option in ALONE and len(names) > 1:
            raise ValueError(f"{path}: {option}={given!r:.60}: a run has one")
        if option in ALONE and names and ours and option not in said:
            raise ValueError(
                f"{path} is of a training with {option}={names[0]}, code that is never taken from a run directory: "
                f"name it, --{option} {names[0]}, or another, such as {ALONE[option]}"
            )
        if names and ours and option not in ALONE:
            again = "module:name" if option == "probes" else " ".join(names)
            say(f"{path} names code, {option}={', '.join(names)}, which is never taken from a run directory: give it "
                f"with --{option} {again}")  # fmt: skip
        found[option] = () if ours else tuple(names)
    return found


def _of_a_run(path: str | Path, content: Mapping[str, Any]) -> bool:
    """Is it the run.json of a run, from which nothing is imported? By its name too: what it holds may be anything."""
    return "format" in content or Path(path).name == "run.json"


def _content(path: str | Path) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = json.loads(text) if Path(path).suffix == ".json" else _yaml(text)
    except (UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path} is not readable: {error}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} holds no settings: write `preset: demo` and, say, `steps: 500` on lines of their own")
    return dict(content)


def allow(corpus: str) -> None:
    """A person has named this corpus: where it is code, it may run in this process."""
    if OWN_CODE.fullmatch(corpus):
        note_named(corpus, "data.corpus")


def name_clamps(clamps: Sequence[str]) -> None:
    """A person has named these clamps: where they are functions, these may run in this process."""
    for clamp in map(Clamp.parse, clamps):
        if clamp.code:
            note_clamp(clamp.code, str(clamp))


def merged(config: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """The configuration with these settings, nested as it is, in place of its own."""

    def over(ours: dict[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
        nested = {
            n: over(ours[n], v) for n, v in theirs.items() if isinstance(v, Mapping) and isinstance(ours.get(n), dict)
        }
        return {**ours, **theirs, **nested}

    return from_dict(TrainConfig, over(to_dict(config), settings))


def many(config: TrainConfig, name: str, seeds: Sequence[int], settings: Sequence[str]) -> Iterator[TrainConfig]:
    """One configuration for each combination of settings ("optim.lr=1e-3,3e-3") and seeds, named after what differs."""
    axes, folder = [_axis(text) for text in settings], Path(name).parent
    if twice := [".".join(path) for path, _ in axes if [one for one, _ in axes].count(path) > 1]:
        raise ValueError(f"--set {twice[0]} stands there twice: write its values in one, {twice[0]}=1,2")
    for path, values in axes:
        if path == ["data", "corpus"]:
            for corpus in values:
                allow(str(corpus))
        if instead := {"seed": "--seeds 1 2", "run": "--run NAME"}.get(".".join(path)):
            raise ValueError(f"--set {path[0]} would be overruled, as seed and name are given apart: write {instead}")
    taken: set[str] = set()
    for values in itertools.product(*(values for _, values in axes)):
        one, words = config, [Path(name).name]
        for (path, _), value in zip(axes, values, strict=True):
            nested: Any = value
            for part in reversed(path):
                nested = {part: nested}
            one, words = merged(one, nested), [*words, f"{path[-1]}-{value}"]
        for seed in seeds or (config.seed,):
            named = "-".join([*words, str(seed)])
            named = re.sub(r"[^A-Za-z0-9._-]+", "-", named)
            if named in taken:
                raise ValueError(
                    f"two of these runs would be called {named}: train one of them apart, with another --run"
                )
            taken.add(named)
            yield replace(one, seed=seed, run=str(folder / named))


def _axis(text: str) -> tuple[list[str], list[Any]]:
    path, equals, values = text.partition("=")
    if not equals or not values:
        raise ValueError(f"--set {text!r} is not understood: write optim.lr=1e-3,3e-3")
    return path.replace("-", "_").split("."), [_yaml(value) for value in values.split(",")]


def _yaml(text: str) -> Any:
    """YAML 1.1, in which 1e-3 would be a word and `no` a truth value, with 1e-3 as a number and `no` as a word."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: ClassVar = {  # pyrefly: ignore[bad-override]
            first: [one for one in resolvers if one[0] != "tag:yaml.org,2002:bool" or first in "tTfF"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
    )
    try:
        return yaml.load(text, Loader)  # noqa: S506 (a safe one)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
