"""Heads that do nothing: dead ones write nothing at all, idle ones write what nothing depends on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.diagnosis.causes import held, setting
from tracer.diagnosis.findings import Advice, Finding, at_end, finite_rows, heads_of, lasting, values
from tracer.measures.aliases import Head

if TYPE_CHECKING:
    import xarray as xr

    from tracer.store import Run

WRITES = 0.01
"""Share of what its layer's median head can write, below which a head writes nothing; a hundredth is ours."""
IDLE_LOSS = 1e-3
"""nats: the effect below which a head is called idle."""


def reach(weight_norm: np.ndarray) -> np.ndarray:
    """||W_V|| ||W_O|| of every head over that of its layer's median head, [... layer head].

    At most so much of its input a head can write: ||W_V W_O|| is no larger. Source: ours. W_V alone where there is no
    W_O; nan in a layer whose heads all write nothing, or nothing finite.
    """
    out = np.where(np.isnan(weight_norm[..., 3]), 1.0, weight_norm[..., 3])
    writes = weight_norm[..., 2] * out
    writes = np.where(np.isfinite(writes), writes, np.nan)  # just before a divergence a norm may be infinite
    unknown = np.isnan(writes).all(axis=-1, keepdims=True)
    typical = np.nanmedian(np.where(unknown, 0.0, writes), axis=-1, keepdims=True)
    return np.divide(writes, typical, out=np.full_like(writes, np.nan), where=typical > 0)


def written(meta: dict[str, Any], trace: xr.Dataset) -> np.ndarray:
    """The most that every head can write, over the stream that it is added to, [step layer head]; root mean squares.

    ||W_V|| ||W_O|| bounds the growth of a vector; what enters has size 1 behind a norm (times its typical gain, ||w|| /
    sqrt(d_model)), else the size of the stream. inf where that is not known, or where a head replaces the stream.
    """
    norms = trace["head_weight_norm"].values.astype(float)
    most = norms[..., 2] * np.where(np.isnan(norms[..., 3]), 1.0, norms[..., 3])
    stream, gains = values(trace, "resid_rms"), values(trace, "weight_norm")
    names = [] if gains is None else [str(name) for name in trace["param"].values]
    model = meta.get("config", {}).get("model", {})
    if stream is None or not model.get("residual", False):
        return np.where(most == 0, 0.0, np.inf)
    if model["norm"] == "none":
        return most
    for layer in range(most.shape[1]):
        if gains is not None and (name := f"blocks.{layer}.ln1.w") in names:
            most[:, layer] *= gains[:, names.index(name), None] / model["d_model"] ** 0.5
    size = stream[:, :-1, None]
    return np.divide(most, size, out=np.full_like(most, np.inf), where=np.isfinite(size) & (size > 0))


def dead(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Heads whose weights let them write nothing, beside their layer's median head or beside the stream."""
    trace = finite_rows(trace, "head_weight_norm")
    beside, share = written(meta, trace), reach(trace["head_weight_norm"].values)
    found = lasting(trace, (share < WRITES) | (beside < WRITES))
    if not found:
        return
    step, heads = found
    norms = trace["head_weight_norm"].values
    zero = all(not norms[-1][head][2:].any() for head in heads)
    told = f"{max(at_end(share, heads)):.2%} or less of what the median head of their layer can"
    if not all(at_end(share < WRITES, heads)):
        told = f"{max(at_end(beside, heads)):.2%} or less of the stream that it is added to"
    every = len(heads) == int(np.isfinite(norms[-1][..., 2]).sum())
    yield Finding(
        "dead", "bad" if every else "watch",
        "No head writes anything" if every else "Dead heads: they write nothing", step, heads,
        "W_V and W_O are 0" if zero else f"W_V and W_O let them write {told}", _why_dead(meta, heads, zero),
        "ours: no agreed definition of a dead head was found; ||W_V|| ||W_O|| is the most that a head can write",
    )  # fmt: skip


def _why_dead(meta: dict[str, Any], heads: tuple[Head, ...], zero: bool) -> Advice:
    if set(heads) <= held(meta):
        return Advice("nothing, unless you want them: the run's clamp holds these heads off")
    if zero:
        return Advice("start W_V and W_O from random values: while both are 0, the gradient of each is 0, too")
    causes = ["weights that started far smaller than the rest"]
    if setting(meta, "optim", "weight_decay") != 0:
        causes += ["weight decay, where the loss did not ask for them"]
    return Advice("", tuple(causes), "look at the norms of W_V and W_O at the first record: small there, or later only")


def swept(run: Run) -> xr.DataArray | None:
    """What switching heads off cost where another sequence's output stood in for theirs; None without such a sweep."""
    try:
        effects = run.effects
    except ValueError:  # none, or damaged, which Ablate says: a sweep can be made again, and hides no other finding
        return None
    known = "effect" in effects and "resample" in effects["mode"].values
    return effects["effect"].sel(mode="resample") if known else None


def idle(effects: xr.DataArray) -> Iterator[Finding]:
    """Heads that a sweep switched off at no cost."""
    effect = effects.dropna("step", how="all").isel(step=-1)
    size = np.abs(effect.transpose("probe", "layer", "head").values)
    unused = (size < IDLE_LOSS).all(axis=0)  # nan, a head that is not there, is not idle
    heads = heads_of(np.asarray(unused))
    if heads:
        yield Finding(
            "idle", "watch", "Heads that nothing depends on", int(effect["step"]), heads,
            f"{len(heads)} of {int(np.isfinite(size).all(axis=0).sum())} heads change no loss by {IDLE_LOSS} nats when "
            "another sequence's output stands in for theirs",
            Advice("", ("a model that does not need them", "other heads that do the same work, and hide each other"),
                   "switch them off together: if no loss changes then, nothing needs them"),
            "ours: no agreed definition of a dead head was found",
        )  # fmt: skip
