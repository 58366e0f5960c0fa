"""What the settings and the records of a run say about the cause of a finding.

1. A remedy is named where the evidence leaves one cause, and never one that the run's settings hold already.
2. Otherwise the causes that are left are named, with what would tell them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.config import Clamp
from tracer.diagnosis.findings import Advice, number, values
from tracer.measures.aliases import Head
from tracer.measures.bands import UPDATE_BANDS

if TYPE_CHECKING:
    import xarray as xr

REPLACED = UPDATE_BANDS[-1].low
"""The update ratio from which a step replaces too much of a weight."""
BEFORE, OFTEN = 18, 5
"""Records before a finding whose update ratios are asked, and of how many it is no accident."""
LOOKS = (".W_Q", ".W_K")


def setting(meta: dict[str, Any], part: str, name: str) -> Any:
    """A setting of the run's config; None where it has none, as a watched run."""
    return meta.get("config", {}).get(part, {}).get(name)


def bare(meta: dict[str, Any]) -> bool:
    """Known to have no norm."""
    return setting(meta, "model", "norm") == "none"


def held(meta: dict[str, Any]) -> set[Head]:
    """Heads that a clamp holds, so that what they do is no sign of sickness."""
    clamps = [Clamp.parse(text) for text in meta.get("config", meta).get("clamp", ())]
    layers = meta.get("layers")  # of somebody else's model
    found = set()
    for clamp in clamps:
        if layers is None:
            n = setting(meta, "model", "n_heads")
        else:  # a clamp that no pass could hold is in run.json, too
            n = layers[clamp.layer]["n_heads"] if clamp.layer < len(layers) else 0
        found |= {(clamp.layer, head) for head in clamp.heads(n) if head < n}
    return found


def free(meta: dict[str, Any], mask: np.ndarray) -> np.ndarray:
    """A condition [... layer head] without the heads that a clamp holds."""
    mask = mask.copy()
    for layer, head in held(meta):
        mask[..., layer, head] = False
    return mask


def is_bias(name: str) -> bool:
    """A vector that is added. It may hover about 0, where its update is no small part of it, and nothing is wrong."""
    last = name.rpartition(".")[2]
    return last in ("b", "bias") or last.startswith("b_") or last.endswith("_bias")


def normalises(trace: xr.Dataset) -> bool:
    """Is there a norm of q or k among the weights of a model?"""
    names = map(str, trace["param"].values if "param" in trace.coords else ())
    return any("q_norm" in name or "q_layernorm" in name for name in names)


def replaced(trace: xr.Dataset, step: int) -> list[str]:
    """Weights of which five steps or more, of the records before this one, replaced a tenth or more; of few, most."""
    ratios = values(trace, "update_ratio")
    if ratios is None:
        return []
    rows = np.flatnonzero(trace["step"].values < step)[-BEFORE:]
    often = (np.nan_to_num(ratios[rows]) >= REPLACED).sum(axis=0) >= min(OFTEN, len(rows) // 2 + 1)
    names = map(str, trace["param"].values)
    return [name for name, there in zip(names, often, strict=True) if there and not is_bias(name)]


def too_large(meta: dict[str, Any], trace: xr.Dataset, step: int) -> Advice | None:
    """The advice about steps, where those before this one were seen to be too large for most weights, or for W_Q, W_K.

    What grows in the few weights that are left says nothing about the rest: there the cause stays open.
    """
    advice = smaller_steps(meta, trace, names) if (names := replaced(trace, step)) else Advice()
    return advice if advice.remedy else None


def smaller_steps(meta: dict[str, Any], trace: xr.Dataset, names: list[str]) -> Advice:
    """Of steps that replace a tenth or more of these weights: it is the learning rate where it hits most of them."""
    rate, decay, factor = (setting(meta, "optim", name) for name in ("lr", "weight_decay", "qk_lr_factor"))
    if rate and decay and rate * decay >= REPLACED:
        taken = f"with the learning rate it takes {rate * decay:.0%} of every weight at each step"
        return Advice(f"lower the weight decay: {taken}")
    if factor and factor > 1 and all(name.endswith(LOOKS) for name in names):
        return Advice(
            f"lower qk_lr_factor, {number(factor)}: the steps of W_Q and W_K are too large, the others are not"
        )
    weights = [name for name in map(str, trace["param"].values) if not is_bias(name)]
    if 2 * len(names) >= len(weights):
        given = "" if rate is None else f", {number(rate)}"
        return Advice(
            f"lower the learning rate{given}: a step replaced a tenth or more of {len(names)} of {len(weights)} weights"
        )
    few = ", ".join(names[:3])
    causes = (f"too high a learning rate for {few}", "weights that are small, or made small", "something beside the "
              "optimiser that changes them")  # fmt: skip
    return Advice("", causes, "compare their norm, and lr / norm, with those of the other weights over the steps")


def lasting_causes(meta: dict[str, Any]) -> tuple[str, ...]:
    """Ways to keep numbers small that a run may lack, each only where it is not in force."""
    optim = {name: setting(meta, "optim", name) for name in ("clip", "warmup")}
    causes = ["steps that are too large (lower the learning rate)"]
    causes += ["gradients that nothing clips (set optim.clip)"] if "config" in meta and optim["clip"] is None else []
    causes += ["no warm-up (set optim.warmup)"] if optim["warmup"] == 0 else []
    causes += ["no norm in front of the sublayers (set model.norm)"] if bare(meta) else []
    return tuple(causes)


def growth_advice(meta: dict[str, Any], trace: xr.Dataset, step: int, *more: str) -> Advice:
    """Of something that grew until this step."""
    if advice := too_large(meta, trace, step):
        return advice
    return Advice(
        "", (*lasting_causes(meta), *more),
        "train on from a state before it (`tracer remedy`) with one change each: what stays small then, was the cause",
    )  # fmt: skip


def score_advice(meta: dict[str, Any], trace: xr.Dataset, step: int) -> Advice:
    """Of scores that are too far apart since this step."""
    unscaled = setting(meta, "model", "attn_scale") == "none"
    if step == int(trace["step"].values[0]):
        return _from_the_start(meta, unscaled)
    if advice := too_large(meta, trace, step):
        return advice
    causes = ["scores that are not divided by sqrt(d_head)"] if unscaled else []
    causes += ["steps of W_Q and W_K that are too large"]
    causes += [] if normalises(trace) else ["q and k that nothing normalises"]
    if setting(meta, "optim", "weight_decay") in (None, 0):
        causes += ["no decay of W_Q and W_K"]
    return Advice(
        "", tuple(causes),
        f"train on from a state before step {step:,} (`tracer remedy`) with one change each, and look at the largest "
        "score",
    )  # fmt: skip


def _from_the_start(meta: dict[str, Any], unscaled: bool) -> Advice:
    """No update has been made yet: it is the weights that the run began with, what enters, or the scale."""
    model = meta.get("config", {}).get("model")
    if model is None:
        causes = (
            "scores that are not divided by sqrt(d_head)",
            "W_Q and W_K that start too large",
            "inputs that are too large",
        )
        return Advice("", causes, "at step 0, print the size of the input, of W_Q and of W_K, and the scale")
    init, width = model["init"]["attn"], model["d_model"]
    large = isinstance(init, int | float) and init > width**-0.5
    wide = bare(meta)
    helps = {}
    if unscaled:
        helps["scores that are not divided by sqrt(d_head)"] = "divide the scores by sqrt(d_head): set model.attn_scale"
    if large or not (unscaled or wide):
        helps["W_Q and W_K that start too large"] = "start W_Q and W_K smaller: lower model.init.attn"
    if wide and not unscaled:
        helps["embeddings that start too large, with no norm behind them"] = (
            "start W_E and W_pos smaller, or set model.norm"
        )
    if len(helps) == 1:
        return Advice(next(iter(helps.values())))
    return Advice("", tuple(helps), "train one step with one change each: the entropy at step 0 tells")
