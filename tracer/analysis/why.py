"""Why does this head look there? The score of one cell (query, key) as an exact sum over what wrote either side.

1. With norms held, the query q and the key k of a cell are sums over what was written to the stream before
   (`tracer.model.residual_stream`). The score is scale * q . k: a sum over all pairs of a query and a key source.
2. The softmax forgets what is the same at every key. `above` is each entry less its mean over the other keys that the
   query sees: how much the pair speaks for this key rather than for another.
3. What a source head wrote it had read itself, where it attends to: its part is a sum over positions (`read_from`), and
   at each of them over what had been written there before that head (`carried`).

Source: Elhage et al. 2021 (terms of the QK circuit); Kamath et al. 2025 (QK attributions), with the parts of the model
in place of features. A source that is really taken away changes the norm as well: `tracer.analysis.why_without` does
that, and puts both patterns side by side; `tracer.analysis.cell_moves` says what the cell then does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.ablate.parts import check_heads
from tracer.analysis.prompt_over_steps import models
from tracer.heads import masks
from tracer.heads.call import AttentionCall, merged
from tracer.huggingface.any_model import any_model
from tracer.interventions.edits import exist, visiting
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel
from tracer.model.residual_stream import At, Component, Into, ResidualStream
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

OWN = "own biases"
"""The source that is not in the stream: biases of the head's own norm and projections (and shortformer's positions)."""
REST = "other sources"
"""What `largest` puts together."""
SAME = 1e-5
"""A source whose keys differ by less than this share of their length is constant over keys."""


Cell = tuple["xr.DataArray", Bool[np.ndarray, " source"]]


@dataclass(frozen=True)
class Pass:
    """One forward pass on one prompt, from which every cell of every head can be explained."""

    stream: ResidualStream
    calls: tuple[AttentionCall, ...]
    """By layer: what entered the softmax, and what hides keys."""

    def pattern(self, head: Head, query: int) -> Float[Tensor, " key_pos"]:
        """The row of a head's attention."""
        return self.calls[head[0]].head(head[1]).pattern(slice(query, query + 1))[0, 0, 0].double()

    def mixing(self, head: Head, query: int) -> Float[Tensor, " key_pos"]:
        """What the row multiplies v with."""
        return self.calls[head[0]].head(head[1]).mixing(slice(query, query + 1))[0, 0, 0].double()


@torch.no_grad()
def read_pass(model: HeadModel, tokens: Int[Tensor, "1 pos"]) -> Pass:
    """Run the model once. Memory: the stream, z, q, k and v of every layer. ValueError where the stream is no sum."""
    calls: dict[int, list[AttentionCall]] = {}
    with visiting(lambda call: calls.setdefault(call.layer, []).append(call.first(1))):
        stream = model.residual_stream(tokens)
    stream = replace(stream, logits=stream.logits[:, :, :0])  # nobody asks, and 512 of GPT-2 are 103 MB
    return Pass(stream, tuple(merged(parts) for _, parts in sorted(calls.items())))


@any_model
def why(
    model: HeadModel | Run, tokens: Int[Tensor, "1 pos"], layer: int, head: int, query: int, key: int,
    steps: Iterable[int] | None = None,
) -> xr.DataArray:  # fmt: skip
    """score[query_source, key_source] of one cell: what each pair of sources adds to the scaled score before the mask.

    Exact: it sums to the model's score (before a soft cap and ALiBi, where there are). Norms are held at this pass.
    A run in place of a model gives it at every snapshot (or at `steps`), with a dimension `step` in front.

    Coordinates: `above`, the entry less its mean over the other keys that the query sees (0 where it sees no other);
    `cancels`, by key source: it adds the same to every key, so the softmax forgets it; `query_from` and `key_from`: the
    position that a head read most of its part from, else where the source itself stands, -1 for biases. `attrs`: the
    cell, its `sum`, its weight after the softmax (`pattern`). ValueError for a cell that is not there, and for a model
    whose stream is no sum.
    """
    if isinstance(model, Run):
        import xarray as xr

        wanted = model.steps if steps is None else list(steps)
        found = {step: _asked(one, tokens, layer, head, query, key) for step, one in models(model, wanted)}
        cells = _there(list(found.values()))
        sums = {name: ("step", [one.attrs[name] for one in cells]) for name in ("sum", "pattern")}
        return xr.concat(cells, xr.Variable("step", list(found)), combine_attrs="drop").assign_coords(sums)
    return _there([_asked(model, tokens, layer, head, query, key)])[0]


def _asked(model: HeadModel, tokens: Tensor, layer: int, head: int, query: int, key: int) -> Cell:
    check_cell(model, tokens, layer, head, query, key)
    return _cell(read_pass(model, tokens[:, : query + 1]), layer, head, query, key)


def check_cell(model: HeadModel, tokens: Tensor, layer: int, head: int, query: int, key: int) -> None:
    """ValueError for a prompt or a cell that is not there."""
    if len(tokens) != 1:
        raise ValueError(f"tokens has {len(tokens)} rows: a cell is of one prompt, [1 pos]")
    check_heads(model, [(layer, head)])
    exist([query, key], tokens.shape[1], "position", "the prompt has positions")
    if key > query:
        raise ValueError(f"key {key} comes after query {query}: a causal head does not look ahead")


def cell(found: Pass, layer: int, head: int, query: int, key: int) -> xr.DataArray:
    """`why` of a pass that is kept: no forward pass, for any cell of the prompt."""
    return _there([_cell(found, layer, head, query, key)])[0]


def _there(cells: list[Cell]) -> list[xr.DataArray]:
    """Without the sources that are there in none of them: a model without biases, say, has no such source."""
    kept = np.flatnonzero(np.any([there for _, there in cells], axis=0))
    return [one.isel(query_source=kept, key_source=kept) for one, _ in cells]


@torch.no_grad()
def _cell(found: Pass, layer: int, head: int, query: int, key: int) -> Cell:
    """With all sources, and which of them give anything to the query or to the key."""
    import xarray as xr

    here, seen = found.stream.layers[layer], visible(found.calls[layer].head(head), query)
    names = [*map(str, found.stream.sources(layer)), OWN]
    q, keys = (
        here.weights.scale * _sides(found, layer, head, "q", [query])[:, 0],
        _sides(found, layer, head, "k", slice(None)),
    )
    k, others = keys[:, key], seen.clone()
    others[key] = False
    mean = keys[:, others].mean(1) if others.any() else k
    spread = (keys[:, seen] - k[:, None]).norm(dim=-1).amax(1) / k.norm(dim=-1).clamp(min=1e-30)
    scores = q @ k.T
    from_q = origins(found, layer, head, "q", query, here.weights.scale * k.sum(0))
    from_k = origins(found, layer, head, "k", key, q.sum(0))
    dims = ("query_source", "key_source")
    table = xr.DataArray(
        scores.numpy(), dims=dims, name="score",
        coords={
            "query_source": names, "key_source": names, "above": (dims, (scores - q @ mean.T).numpy()),
            "cancels": ("key_source", (spread <= SAME).tolist()),
            "query_from": ("query_source", from_q), "key_from": ("key_source", from_k),
        },
        attrs={"layer": layer, "head": head, "query": query, "key": key, "sum": float(scores.sum()),
               "pattern": float(found.pattern((layer, head), query)[key])},
    )  # fmt: skip
    return table, (q.any(1) | k.any(1)).numpy()


def largest(found: xr.DataArray, most: int = 8) -> xr.DataArray:
    """The `most` sources of either side that do most for this key rather than others, and all the rest as one: "other
    sources". Its sum, and that of `above`, stay what they are."""
    import xarray as xr

    table = xr.Dataset({"score": found.drop_vars(found.coords), "above": found["above"].drop_vars(found.coords)})
    for side, other in (("query_source", "key_source"), ("key_source", "query_source")):
        names = found[side].values
        order = abs(found["above"]).sum(other).values.argsort()[::-1]
        kept = sorted(order[:most].tolist()) if len(names) > most + 1 else list(range(len(names)))
        rest = [i for i in range(len(names)) if i not in kept]
        parts = [table.isel({side: kept})] + ([table.isel({side: rest}).sum(side).expand_dims(side)] if rest else [])
        table = xr.concat(parts, side).assign_coords({side: [*names[kept], *([REST] if rest else [])]})
    return table["score"].assign_coords(above=table["above"].transpose(*table["score"].dims)).transpose(*found.dims)


def _sides(found: Pass, layer: int, head: int, into: Into, at: At) -> Float[Tensor, "source pos d_head"]:
    """What each source, and last what is constant, gives to a head's q, k or v at some positions."""
    constant = found.stream.layers[layer].constant(into, head, at)
    return torch.cat([found.stream.read(layer, into, head, at), constant[None]])[:, 0].double().cpu()


def visible(call: AttentionCall, query: int) -> Bool[Tensor, " key_pos"]:
    """The keys that a query of a head sees."""
    if call.weights is not None:
        read = (call.weights[0, 0, query, : call.positions] > 0).cpu()
        if read.any():
            return read
        keys = torch.arange(call.positions)  # a sink has all that can be told of the row
        return keys <= query if call.causal else keys >= 0
    mask = call.full_mask(slice(query, query + 1))
    if mask is None:
        return torch.ones(call.positions, dtype=torch.bool)
    seen = masks.as_bias(mask[:1], torch.float32) > masks.NO_KEY
    return seen.expand(1, 1, 1, call.shape[2])[0, 0, 0, : call.positions].cpu()


def origins(
    found: Pass, layer: int, head: int, into: Literal["q", "k"], position: int, wanted: Float[Tensor, " d_head"]
) -> list[int]:
    """By source: the position that a head read most of this part from; of others, where they stand; -1 of biases."""
    by_head: dict[Component, int] = {}
    for earlier in range(layer):
        parts = read_from(found, earlier, layer, head, into, position, wanted)
        most = (parts * parts.sum(1, keepdim=True).sign()).argmax(1).tolist()
        by_head |= {Component("head", earlier, i): place for i, place in enumerate(most)}
    elsewhere = {"attn_bias": -1}
    places = [by_head.get(one, elsewhere.get(one.kind, position)) for one in found.stream.sources(layer)]
    return [*places, -1 if found.stream.layers[layer].beside is None else position]


def read_from(
    found: Pass, earlier: int, layer: int, head: int, into: Literal["q", "k"], position: int,
    wanted: Float[Tensor, " d_head"],
) -> Float[Tensor, "head key_pos"]:  # fmt: skip
    """What each head of an earlier layer gives to q . wanted (or k . wanted) at a position, by the position it read."""
    call = found.calls[earlier]
    carriers = _carriers(found, earlier, layer, head, into, position, wanted)
    of_groups = rearrange(carriers, "(kv_head group) d -> kv_head group d", kv_head=call.v.shape[2])
    reads = einsum(call.v[0].to(carriers), of_groups, "key_pos kv_head d, kv_head group d -> kv_head group key_pos")
    weights = call.mixing(slice(position, position + 1))[0, :, 0]
    return (weights * reads.flatten(0, 1)).double()[:, : call.positions]


def _carriers(
    found: Pass, earlier: int, layer: int, head: int, into: Literal["q", "k"], position: int,
    wanted: Float[Tensor, " d_head"],
) -> Float[Tensor, "head d_value"]:  # fmt: skip
    """What the z of each head of an earlier layer is multiplied with to give what reaches q . wanted or k . wanted."""
    out, here = found.stream.layers[earlier], found.stream.layers[layer]
    with torch.enable_grad():  # it is linear: the gradient of what arrives is what each number is multiplied with
        z = torch.zeros_like(out.weights.W_O[..., 0]).requires_grad_()
        gated = out.gated(z[None, None], [position])
        part = out.written(
            einsum(gated, out.weights.W_O, "batch pos head d, head d d_model -> head batch pos d_model"), [position]
        )
        arrived = here.read(into, head, part, [position]).sum((0, 1, 2)) @ wanted.to(z)
    return torch.autograd.grad(arrived, z)[0]


@torch.no_grad()
def carried(
    found: Pass, source: Head, layer: int, head: int, query: int, key: int, into: Literal["q", "k"]
) -> tuple[int, dict[str, float]]:
    """What a source head carried into a cell's score from the position that it read most from: that position, and the
    sum over what had been written there before that head, by name."""
    here = found.stream.layers[layer]
    at, other = (query, key) if into == "q" else (key, query)
    wanted = here.whole("k" if into == "q" else "q", head, [other])[0, 0].double() * here.weights.scale
    parts = read_from(found, source[0], layer, head, into, at, wanted)[source[1]]
    place = int((parts * parts.sum().sign()).argmax())
    u = (
        found.mixing(source, at)[place] * _carriers(found, source[0], layer, head, into, at, wanted)[source[1]].double()
    ).cpu()
    values = _sides(found, *source, "v", [place])[:, 0] @ u
    names = [*map(str, found.stream.sources(source[0])), OWN]
    return place, dict(zip(names, values.tolist(), strict=True))
