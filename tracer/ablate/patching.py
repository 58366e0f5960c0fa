"""Activation patching: an activation of one prompt put in its place in another prompt's run, row by row.

1. Both batches run once: row i of the clean prompts goes with row i of the corrupted ones.
2. Into each run of one batch goes one activation of the other: a head's z, or what a layer reads or writes at one
   position. What the metric then is, is the cell.
3. Cells of a layer run as one batch, as many as fit into a budget of bytes.

Source: Meng et al. 2022 (causal tracing), Wang et al. 2022; as transformer_lens.patching. Single paths between heads:
`tracer.ablate.effect(model, clean, [Path(...)], "paired", reference=corrupted)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.many_sets import BUDGET
from tracer.ablate.metrics import Metric, OwnMetric, kl, metric_of, reader
from tracer.ablate.planner import ready
from tracer.huggingface.any_model import any_model
from tracer.interventions.edits import Edit, applied, recording
from tracer.measures.aliases import Progress
from tracer.model.protocol import HeadModel

if TYPE_CHECKING:
    import xarray as xr

Where = Literal["z", "resid_pre", "attn_out", "mlp_out"]
TAPS = {"z": "attn.hook_z", "resid_pre": "hook_resid_pre", "attn_out": "hook_attn_out", "mlp_out": "hook_mlp_out"}
OfLogits = Callable[[Float[Tensor, "batch pos d_vocab"]], Float[Tensor, " batch"]]


@any_model
@torch.no_grad()
def patch(
    model: HeadModel, clean: Int[Tensor, "batch pos"], corrupted: Int[Tensor, "corrupted_batch corrupted_pos"],
    at: Where | str = "z", metric: Metric | OwnMetric | OfLogits | str = "kl", *,
    into: Literal["corrupted", "clean"] | str = "corrupted", dims: Sequence[str] | None = None, rows: bool = False,
    budget: int = BUDGET, progress: Progress | None = None,
) -> xr.DataArray:  # fmt: skip
    """The metric after each activation is patched, mean over rows: patched[layer, head] of z, else patched[layer, pos].

    `into="corrupted"` puts clean activations into the corrupted run (what suffices to restore the answer), "clean" the
    other way round (what is needed). `dims` says what is patched at once: of z ("layer", "head"), at all positions,
    ("layer", "head", "pos"), ("layer", "pos") or ("layer",); of the others ("layer", "pos") or ("layer",). `metric`:
    `LogitDifference`, `Probability`, `LogProb`, `Loss`, a function from logits [batch pos d_vocab] to one number a row,
    "kl", KL(clean || patched) in nats at the last position, or `OwnMetric(function)`, or its name "module:function",
    whose clean logits are those of the clean prompts and whose targets are the next tokens of the prompts that are
    patched. `rows`: keep the axis batch.
    attrs `clean` and `corrupted` are the metric of both runs as they are: (patched - corrupted) / (clean - corrupted)
    is the share that was restored. Costs a forward pass a cell. ValueError for prompts that are not pairs.
    """
    import xarray as xr

    _check(model, clean, corrupted, at, into)
    dims = tuple(dims or ()) or (("layer", "head") if at == "z" else ("layer", "pos"))
    allowed = {("layer",), ("layer", "pos")} | ({("layer", "head"), ("layer", "head", "pos")} if at == "z" else set())
    if dims not in allowed:
        raise ValueError(f"at={at!r} cannot be patched by {dims}; by: {', '.join(map(str, sorted(allowed)))}")
    given, other = (corrupted, clean) if into == "corrupted" else (clean, corrupted)
    with recording(*(_tap(layer, at) for layer in range(model.n_layers))) as source:
        of_other = model(other)
    if not source:
        raise ValueError(f"at={at!r}: {model.why_no_stream}; heads (at='z') can be patched")
    of_given = model(given)
    of_clean, of_corrupted = (of_other, of_given) if into == "corrupted" else (of_given, of_other)
    read, (long_name, units) = _reader(metric, given, of_clean)
    heads = range(model.n_heads) if "head" in dims else (None,)
    cells = list(product(heads, range(given.shape[1]) if "pos" in dims else (None,)))
    size = len(given) * given.shape[1] * (2 * model.d_vocab + 16 * _width(source)) * of_given.element_size()
    at_once, done, found = max(1, budget // size), 0, []
    of = sum(model.heads_of_layers) * len(cells) // len(heads) if "head" in dims else len(cells) * model.n_layers
    for layer in range(model.n_layers):
        tap = _tap(layer, at)
        here = [cell for cell in cells if cell[0] is None or cell[0] < source[tap].shape[2]]
        values = of_given.new_full((len(cells), len(given)), float("nan"))  # of heads that this layer has not
        for start in range(0, len(here), at_once):
            some = here[start : start + at_once]
            with applied([Edit(tap, instead=Patches(source[tap], tuple(some)))]):
                logits = model(given.repeat(len(some), 1)).unflatten(0, (len(some), -1))
            for cell, one in zip(some, logits, strict=True):
                values[cells.index(cell)] = read(one)
            done += len(some)
            if progress:
                progress(done, of)
        found.append(values)
    lengths = {"layer": model.n_layers, "head": model.n_heads, "pos": given.shape[1]}
    table = torch.stack(found).view([lengths[dim] for dim in dims] + [len(given)]).double().cpu().numpy()
    made = xr.DataArray(
        table, dims=(*dims, "batch"), coords={dim: np.arange(lengths[dim]) for dim in dims}, name="patched",
        attrs={"long_name": long_name, "units": units, "at": at, "into": into,
               "clean": float(read(of_clean).mean()), "corrupted": float(read(of_corrupted).mean())},
    )  # fmt: skip
    return made if rows else made.mean("batch", keep_attrs=True)


@dataclass(frozen=True, eq=False)
class Patches:
    """Of some copies of a batch, one after the other, each with what another batch has there: (head, position)."""

    source: Float[Tensor, "batch *place d"]
    cells: tuple[tuple[int | None, int | None], ...]

    def __call__(self, activation: Tensor) -> Tensor:
        after = activation.clone().unflatten(0, (len(self.cells), -1))
        for copy, (head, pos) in zip(after, self.cells, strict=True):
            place = (slice(None), slice(None) if pos is None else pos, head)  # None: an axis more, here as there
            copy[place] = self.source[place].to(copy)
        return after.flatten(0, 1)


def _tap(layer: int, at: str) -> str:
    return f"blocks.{layer}.{TAPS[at]}"


def _width(source: dict[str, Tensor]) -> int:
    return max(x.shape[2:].numel() for x in source.values())


def _check(model: HeadModel, clean: Tensor, corrupted: Tensor, at: str, into: str) -> None:
    for tokens in (clean, corrupted):
        ready(model, tokens)
    if clean.shape != corrupted.shape:
        raise ValueError(
            f"row i of the clean prompts goes with row i of the corrupted ones, position by position: "
            f"{list(clean.shape)} and {list(corrupted.shape)} are not pairs"
        )
    if at not in TAPS:
        raise ValueError(f"at={at!r} is nothing that can be patched; there are: {', '.join(TAPS)}")
    if into not in ("corrupted", "clean"):
        raise ValueError(f"into={into!r}: activations go into the 'corrupted' run (default) or into the 'clean' one")
    if at == "mlp_out" and getattr(getattr(model, "config", None), "attn_only", False):
        raise ValueError("this model is attention only: it has no MLP to patch")


def _reader(metric: Any, tokens: Tensor, of_clean: Tensor) -> tuple[OfLogits, tuple[str, str]]:
    """From logits [batch pos d_vocab] to a number a row, with its name and unit."""
    if metric == "kl":
        last, targets = of_clean[:, -1:], tokens[:, -1:]  # targets, which `kl` is given and does not read
        return lambda logits: kl(logits[:, -1:], targets, last), ("KL(clean || patched) of the next token", "nats")
    if isinstance(metric, str) and ":" in metric:
        metric = metric_of(metric)
    if isinstance(metric, OwnMetric | Metric):
        of_logits = reader(metric, tokens, of_clean.shape[1], of_clean.shape[2], lambda: of_clean)
        return lambda logits: of_logits(logits).mean(1), (metric.long_name, metric.units)
    if not callable(metric):
        raise ValueError(f"metric={metric!r} is none: give 'kl', LogitDifference(right, wrong), ... or a function")

    def read(logits: Tensor) -> Tensor:
        found = metric(logits)
        if not isinstance(found, Tensor) or found.shape != (len(tokens),):
            what = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"metric returned {what} for {len(tokens)} rows: it must return one number a row")
        return found

    return read, (getattr(metric, "__name__", "metric"), "")
