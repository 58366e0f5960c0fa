"""What a trace holds, whoever records it: an array for each measure on its axes, its registry row as attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from tracer.measures import HEAD_MEASURES, PARAM_MEASURES, SE, SEQUENCES
from tracer.measures.gradients import MATRICES
from tracer.store.trace import Variable

Layout = tuple[dict[str, Variable], dict[str, Any]]
"""The variables, and the coordinates as (dims, values, attributes)."""


def layout(
    heads: tuple[int, int],
    params: Iterable[str],
    prompts: Iterable[str],
    tokens: Int[np.ndarray, "prompt width"],
    strings: list[list[str]],
    *,
    scalars: Iterable[str],
    unsure: Mapping[str, int],
    attrs: Callable[[str], dict[str, str | float]],
    tokens_are: str,
) -> Layout:
    """`heads`: layers, and heads in each; `unsure`: measures whose standard errors are recorded too, and of how many
    sequences they are means."""
    names, width = list(params), tokens.shape[1]
    axes: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    axes |= {name: (("layer", "head"), heads) for name in HEAD_MEASURES}
    axes |= {name: (("param",), (len(names),)) for name in PARAM_MEASURES}
    axes |= {f"head_{name}": (("layer", "head", "matrix"), (*heads, len(MATRICES))) for name in PARAM_MEASURES}
    axes |= {name: ((), ()) for name in scalars}
    axes["resid_rms"] = (("depth",), (heads[0] + 1,))
    variables = {name: Variable(*axes[name], attrs=attrs(name)) for name in axes}
    for name, sequences in unsure.items():
        told = {"long_name": f"Standard error of {name}", SEQUENCES: sequences}
        variables[name + SE] = Variable(*axes[name], attrs=attrs(name) | told)
    variables["pattern"] = Variable(
        ("prompt", "layer", "head", "query_pos", "key_pos"), (len(tokens), *heads, width, width), "float16",
        attrs("pattern"),
    )  # fmt: skip
    told = {"long_name": f"token ids of {tokens_are}; -1: no token", "strings": strings}
    return variables, {
        "layer": (("layer",), np.arange(heads[0]), {}),
        "head": (("head",), np.arange(heads[1]), {}),
        "param": (("param",), np.array(names), {}),
        "matrix": (("matrix",), np.array(MATRICES), {}),
        "prompt": (("prompt",), np.array(list(prompts)), {}),
        "prompt_tokens": (("prompt", "query_pos"), tokens, told),
    }
