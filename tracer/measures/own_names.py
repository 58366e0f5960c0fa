"""What a variable of a person's own may be called: a name that no run has by itself."""

from __future__ import annotations

import re

from tracer.measures.measure import SE
from tracer.measures.registry import MEASURES

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")
TAKEN = {
    "step", "layer", "head", "param", "matrix", "prompt", "prompt_tokens", "query_pos", "key_pos", "pos", "depth",
    "row", "target", "token", "told", "tokens", "held_out_tokens", "held_out_counted",
}  # fmt: skip
"""Coordinates, arrays beside the variables, and columns that are kept beside a loss."""


def why_no_name(name: object) -> str:
    """Why no variable of one's own can be called this; empty where one can."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return "a name is made of letters, digits and _, begins with a letter and has at most 80 characters"
    if name in MEASURES or name in TAKEN or name.endswith(SE):
        return "every run has a number of this name: choose another"
    return ""
