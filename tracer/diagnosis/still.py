"""Weights that do not change: blocks that were frozen before the run, and updates that round away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.diagnosis.findings import Advice, Finding, finite_rows, number, values

if TYPE_CHECKING:
    import xarray as xr

BLOCK = re.compile(r"^(.*?\.)(\d+)\.")
"""A weight of one of several blocks: `blocks.1.attn.W_Q`, `transformer.h.1.attn.c_attn.weight`."""
EMBEDDING = re.compile(r"(?<!un)emb|wte|wpe|W_E", re.IGNORECASE)
"""In the names of what comes in front of the blocks."""
LOW = ("float16", "bfloat16")
SAME = {True: 0.5, False: 0.9}
"""Share of weights that are equal from record to record, in low precision or not. In float32 a usual step changes
nearly all; 0.9 leaves room for matrices that get no gradient. Both are ours."""
SHOWN = 3
"""Records, at least."""


def blocks(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Whole blocks that ask for no gradient, above weights that are trained.

    Left alone are weights that are frozen on purpose as it is usually done: parts of blocks (embeddings, adapters such
    as LoRA), and blocks from the bottom up, below which nothing is trained.
    """
    fixed: list[str] = list(meta.get("untrained") or ())
    trained = [str(name) for name in trace["param"].values]
    still, moving = _blocks(fixed), _blocks(trained)
    if any(index in moving.get(stem, ()) for stem, all_of in still.items() for index in all_of):
        return  # blocks of which a part is trained: adapters
    for stem, all_of in still.items():
        others = moving.get(stem, set())
        below = any(EMBEDDING.search(name) for name in trained if not name.startswith(stem))
        wrong = sorted(index for index in all_of if below or any(other < index for other in others))
        if not others or not wrong:
            continue
        names = ", ".join(f"{stem}{index}" for index in wrong[:4]) + (
            f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        )
        yield Finding(
            "frozen", "watch", "Blocks that are not trained", int(trace["step"].values[0]), (),
            f"no weight of {names} asks for a gradient, while {len(others)} other block{'s' * (len(others) > 1)} and "
            "what is below are trained",
            Advice("", ("requires_grad that was switched off before the run, on purpose or not", "a model that was "
                        "loaded or built with this part frozen"),
                   "print `p.requires_grad` of its weights; set it, and give them to the optimiser"),
            "requires_grad; no threshold",
        )  # fmt: skip


def _blocks(names: list[str]) -> dict[str, set[int]]:
    """By what stands in front of a number, the numbers."""
    found: dict[str, set[int]] = {}
    for name in names:
        if match := BLOCK.match(name):
            found.setdefault(match[1], set()).add(int(match[2]))
    return found


def rounding(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Most weights are the same to the bit from record to record, although gradients arrive and steps are made."""
    trace = finite_rows(trace, "unmoved")
    share, rates = trace["unmoved"].values, values(trace, "learning_rate")
    ratios, grads = values(trace, "update_ratio"), values(trace, "grad_norm")
    if len(share) >= SHOWN and (share == 1).all() and (ratios is None or np.isnan(ratios).all()):
        yield _untouched(trace)
        return
    if len(share) < SHOWN or ratios is None or grads is None or not np.nan_to_num(grads).any():
        return
    if rates is not None and not np.nan_to_num(rates).any():  # a learning rate of 0
        return
    low = meta.get("dtype") in LOW
    usual = float(np.median(share))
    if usual < SAME[low]:
        return
    kind = f" in {meta['dtype']}" if meta.get("dtype") else ""
    given = "" if rates is None else f" (learning rate {number(float(np.nanmedian(rates)))})"
    yield Finding(
        "rounding", "bad", "Updates do not change the weights", int(trace["step"].values[0]), (),
        f"{usual:.0%} of the weights{kind} are the same to the bit from one record to the next, in the median matrix, "
        f"although gradients arrive and steps are made{given}",
        Advice("keep the weights in float32, and use autocast for the rest: steps that are smaller than half the "
               "distance between two numbers are lost") if low else
        Advice("", ("updates that round away: a step that is tiny beside the weights", "weights that are rounded to "
                    "low precision after each step, or put back"),
               "compare a weight before and after optimizer.step(), and once more before the next"),
        "the weights of two records, compared to the bit; the share is ours",
    )  # fmt: skip


def _untouched(trace: xr.Dataset) -> Finding:
    return Finding(
        "rounding", "bad", "The weights never change: no optimiser steps", int(trace["step"].values[0]), (),
        f"every weight is the same to the bit in {len(trace['step'])} records, and no optimiser was seen to step",
        Advice("", ("optimizer.step() that is never reached (an accumulation that never fills, a condition, an error "
                    "that is caught)", "an optimiser of another copy of the model", "a loop that only evaluates"),
               "print a weight before and after an update, and count the calls of optimizer.step()"),
        "the weights of all records, compared to the bit; no threshold",
    )  # fmt: skip
