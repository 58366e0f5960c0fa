"""A record as a flat dict of floats, and the part of it that a tracker can show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracer.measures import HEAD_MEASURES, MEASURES
from tracer.measures.gradients import MATRICES
from tracer.measures.measure import HEAD, HEAD_MATRIX, LAYER, PARAM, SE

FOLLOWED = {"entropy": -1, "induction": 1, "previous_token": 1, "max_logit": 1}
"""Measures that have a curve for single heads, and which end stands out: the sharpest, or the highest."""
OWN = {0: ("step",), 1: LAYER, 2: HEAD}
"""Dimensions of a number that no registry knows, by those of its value in a row."""
SHOWN = ("loss/", "train/", "stream/", "own/", "layer/")
TOP, MOST = 4, 16
"""Heads that stand out at a time, and that are ever followed in one measure; of a model with no more, all are."""
SUMMARIES = {"mean": np.mean, "min": np.min, "max": np.max}


def scalars(row: Mapping[str, Any], params: Sequence[str] = ()) -> dict[str, float]:
    """Every number of a record by a readable name; what was not measured (NaN) is left out.

    `loss/train`, `train/learning_rate`, `attn/L3H5/entropy`, `attn/L3H5/grad_norm/Q`, `param/<name>/grad_norm`,
    `stream/2/resid_rms`; of somebody's own `own/<name>`, `layer/2/<name>`, `attn/L3H5/<name>`. `params` names the
    entries of what is measured for each parameter tensor, in order.
    """
    found: dict[str, float] = {}
    for name, value in row.items():
        if name.endswith(SE):
            continue
        x = np.asarray(value, np.float64)
        dims = MEASURES[name].dims if name in MEASURES else OWN.get(x.ndim, ())
        if dims == ("step",):
            found[_whole(name)] = float(x)
        elif dims == LAYER:
            found |= {f"layer/{layer}/{name}": float(v) for layer, v in enumerate(x)}
        elif dims == HEAD:
            found |= {f"attn/{label}/{name}": v for label, v in _by_head(x)}
        elif dims == HEAD_MATRIX:
            short = name.removeprefix("head_")
            found |= {
                f"attn/{label}/{short}/{m}": v for i, m in enumerate(MATRICES) for label, v in _by_head(x[..., i])
            }
        elif dims == PARAM:
            found |= {f"param/{param}/{name}": float(v) for param, v in zip(params, x, strict=False)}
        elif name == "resid_rms":
            found |= {f"stream/{depth}/{name}": float(v) for depth, v in enumerate(x)}
    return {name: v for name, v in found.items() if not math.isnan(v)}


class Readable:
    """`scalars`, cut to what a person can read: about a hundred curves, for 4 heads or for 1,024.

    Heads keep their curve once they have one, so that no curve has holes.
    """

    def __init__(self) -> None:
        self.followed: dict[str, list[tuple[int, int]]] = {name: [] for name in FOLLOWED}

    def __call__(self, row: Mapping[str, Any]) -> dict[str, float]:
        found = {name: v for name, v in scalars(row).items() if name.startswith(SHOWN)}
        own = [name for name, x in row.items() if name not in MEASURES and not name.endswith(SE) and np.ndim(x) == 2]
        for name in (*HEAD_MEASURES, *own):
            x = np.asarray(row.get(name, np.nan), np.float64)
            if np.isnan(x).all():
                continue
            found |= {f"attn/{word}/{name}": float(of(x[~np.isnan(x)])) for word, of in SUMMARIES.items()}
            found |= {f"attn/L{a}H{b}/{name}": float(x[a, b]) for a, b in self._follow(name, x)}
        for name in ("grad_norm", "grad_norm_clipped", "weight_norm"):
            if not np.isnan(x := np.asarray(row.get(name, np.nan), np.float64)).all():
                found[f"train/{name}"] = float(np.sqrt(np.nansum(x * x)))
        if not np.isnan(x := np.asarray(row.get("update_ratio", np.nan), np.float64)).all():
            found["train/update_ratio/median"] = float(np.nanmedian(x))
        return found

    def _follow(self, name: str, x: np.ndarray) -> list[tuple[int, int]]:
        """The heads of a measure [layer head] with a curve, which those that stand out now get while there is room."""
        heads = self.followed.get(name, [])
        if name in FOLLOWED and len(heads) < MOST:
            there = [(int(a), int(b)) for a, b in np.argwhere(~np.isnan(x))]
            ranked = sorted(there, key=lambda head: -FOLLOWED[name] * x[head])
            new = [head for head in (there if len(there) <= MOST else ranked[:TOP]) if head not in heads]
            heads += new[: MOST - len(heads)]
        return [head for head in heads if not np.isnan(x[head])]


def _whole(name: str) -> str:
    if name not in MEASURES:
        return f"own/{name}"
    return f"loss/{name.removesuffix('_loss')}" if name.endswith("_loss") else f"train/{name}"


def _by_head(x: np.ndarray) -> list[tuple[str, float]]:
    return [(f"L{layer}H{head}", float(v)) for (layer, head), v in np.ndenumerate(x)]
