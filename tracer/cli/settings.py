"""Settings on the command line: what is wrong with a value is said with the option that it was given by."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructTypeInfo

from tracer.config import DataConfig, InitConfig, ModelConfig, OptimConfig, RecordConfig, TrainConfig

PARTS: dict[type, str] = {
    TrainConfig: "", ModelConfig: "model.", InitConfig: "model.init.", DataConfig: "data.", OptimConfig: "optim.",
    RecordConfig: "record.",
}  # fmt: skip
"""How the options of each begin."""


class WrongSetting(Exception):
    """A value that a setting cannot have. No ValueError: tyro would put its own names of our dataclasses before it."""


def registry() -> ConstructorRegistry:
    """For tyro: the dataclasses of a config, made as ever, whose errors are WrongSetting."""
    made, asked = ConstructorRegistry(), set[type]()

    @made.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        if info.type not in PARTS or info.type in asked:
            return None
        asked.add(info.type)
        try:
            usual = ConstructorRegistry.get_struct_spec(info)
        finally:
            asked.remove(info.type)
        return replace(usual, instantiate=_in_words(info.type)) if isinstance(usual, StructConstructorSpec) else None

    return made


@cache
def _in_words(part: type) -> Callable[..., Any]:
    def make(**values: Any) -> Any:
        try:
            return part(**values)
        except ValueError as error:
            raise WrongSetting(options(part, str(error))) from error

    make.__doc__ = (part.__doc__ or "").partition("\n\nAttributes:")[0]  # the help prints it, and fields apart
    return make


def options(part: type, text: str) -> str:
    """An error of a part of the config, with its fields as options: d_model=3 is --model.d-model=3."""
    names = "|".join(field.name for field in fields(part))
    return re.sub(
        rf"(?<![\w.-])(?:\w+\.)?({names})=", lambda found: f"--{PARTS[part]}{found[1].replace('_', '-')}=", text
    )
