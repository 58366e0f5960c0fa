"""What a trace holds, whoever records it: an array for each measure on its axes, its registry row as attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tracer.measures import HEAD, HEAD_MEASURES, NO_MEANS, PARAM_MEASURES, SE, SEQUENCES, Measure, Setting
from tracer.measures.gradients import MATRICES
from tracer.store.trace import Variable

NOWHERE = Setting(0, 0, 0)
"""For values at chance that a user gave, which depend on nothing."""
HEAD_MEANS = tuple(name for name in HEAD_MEASURES if name not in NO_MEANS)
"""Of heads what is a mean over sequences, whose standard error is recorded too."""
TraceLayout = tuple[dict[str, Variable], dict[str, Any]]
"""The variables, and the coordinates as (dims, values, attributes)."""


def without_heads(
    params: Iterable[str], *, scalars: Iterable[str], depths: int, attrs: Callable[[str], dict[str, str | float]]
) -> TraceLayout:
    """What is measured of any model. `depths`: of its residual stream, at which its size is measured; 0: at none."""
    names = list(params)
    variables = {name: Variable(("param",), (len(names),), attrs=attrs(name)) for name in PARAM_MEASURES}
    variables |= {name: Variable((), (), attrs=attrs(name)) for name in scalars}
    if depths:
        variables["resid_rms"] = Variable(("depth",), (depths,), attrs=attrs("resid_rms"))
    return variables, {"param": (("param",), np.array(names), {})}


def own_variables(heads: tuple[int, int], rows: Iterable[Measure], sequences: Mapping[str, int]) -> dict[str, Variable]:
    """Of a user's measures and probes; `sequences` of each probe that a measure of heads is a mean over."""
    variables: dict[str, Variable] = {}
    for row in rows:
        shape = heads if row.dims == HEAD else ()
        variables[row.name] = own = Variable(row.dims[1:], shape, attrs=row.attributes(NOWHERE))
        if row.dims == HEAD:
            variables[row.name + SE] = _error(row.name, own, sequences[row.probe])
    return variables


def kept_prompts(text: Iterable[Sequence[int]], repeat: Iterable[Sequence[int]]) -> dict[str, Sequence[int]]:
    """The sequences whose patterns are kept, by name: token ids of held-out text, or of a batch, and of Probe R."""
    return {f"{probe} {i}": ids for probe, rows in (("text", text), ("repeat", repeat)) for i, ids in enumerate(rows)}


def _error(name: str, of: Variable, sequences: int) -> Variable:
    told = {"long_name": f"Standard error of {name}", SEQUENCES: sequences}
    same = {key: of.attrs[key] for key in ("units", "formula", "source", "probe")}  # its range is not the mean's
    return Variable(of.dims, of.shape, attrs=same | told)


def layout(
    heads: tuple[int, int],
    params: Iterable[str],
    prompts: Mapping[str, Sequence[int]],
    width: int,
    strings: Callable[[Sequence[int]], list[str]],
    *,
    scalars: Iterable[str],
    unsure: Mapping[str, int],
    attrs: Callable[[str], dict[str, str | float]],
    tokens_are: str,
) -> TraceLayout:
    """`heads`: layers, and heads in each; `prompts`: token ids whose patterns are kept, up to `width` of each, and
    `strings` what they say; `unsure`: measures whose standard errors are recorded too, and of how many sequences they
    are means."""
    tokens, said = np.full((len(prompts), width), -1, np.int64), []
    for row, ids in zip(tokens, prompts.values(), strict=True):
        kept = ids[:width]
        row[: len(kept)] = kept
        said.append(strings(kept))
    variables = {name: Variable(("layer", "head"), heads, attrs=attrs(name)) for name in HEAD_MEASURES}
    by_matrix = ("layer", "head", "matrix"), (*heads, len(MATRICES))
    variables |= {f"head_{name}": Variable(*by_matrix, attrs=attrs(f"head_{name}")) for name in PARAM_MEASURES}
    others, coords = without_heads(params, scalars=scalars, depths=heads[0] + 1, attrs=attrs)
    variables |= others
    variables |= {name + SE: _error(name, variables[name], sequences) for name, sequences in unsure.items()}
    variables["pattern"] = Variable(
        ("prompt", "layer", "head", "query_pos", "key_pos"), (len(tokens), *heads, width, width), "float16",
        attrs("pattern"),
    )  # fmt: skip
    told = {"long_name": f"token ids of {tokens_are}; -1: no token", "strings": said}
    return variables, {
        "layer": (("layer",), np.arange(heads[0]), {}),
        "head": (("head",), np.arange(heads[1]), {}),
        **coords,
        "matrix": (("matrix",), np.array(MATRICES), {}),
        "prompt": (("prompt",), np.array(list(prompts)), {}),
        "prompt_tokens": (("prompt", "query_pos"), tokens, told),
    }
