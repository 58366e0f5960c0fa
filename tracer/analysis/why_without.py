"""The attention of a query if its head did not read some sources: the estimate with norms held, and real passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.parts import MLP, Part
from tracer.ablate.planner import planner
from tracer.analysis.why import check_cell, read_pass, visible
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import applied, visiting
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel
from tracer.model.residual_stream import At, Into
from tracer.pictures.scales import parse_head

if TYPE_CHECKING:
    import xarray as xr


@torch.no_grad()
def without(
    model: HeadModel, tokens: Int[Tensor, "1 pos"], layer: int, head: int, query: int, sources: Iterable[str],
    into: Literal["q", "k", "both"] = "both",
) -> xr.Dataset:  # fmt: skip
    """A query's attention `as_is`, and as it would be if the head did not read some sources, on [key].

    `estimate`: their entries taken out of the scores, norms held. `recomputed`: their vectors taken out of the stream
    that the head reads for its queries, keys or both, and all of its computation done again, norms too. `everywhere`:
    a forward pass with heads and MLPs switched off in the whole model, so that every later part answers; else nan.
    """
    import xarray as xr

    check_cell(model, tokens, layer, head, query, 0)
    found = read_pass(model, tokens[:, : query + 1])
    stream, call = found.stream, found.calls[layer].head(head)
    here, names = stream.layers[layer], [*map(str, stream.sources(layer))]
    chosen = list(sources)
    if unknown := sorted(set(chosen) - set(names)):
        raise ValueError(f"{', '.join(unknown)} wrote nothing before layer {layer}: there are {', '.join(names)}")
    gone = stream.parts(layer)[[names.index(one) for one in chosen]].sum(0)
    less = replace(here, resid_pre=here.resid_pre - gone)

    def scores(q: Tensor, k: Tensor) -> Tensor:
        seen = here.seen_scores(q @ k.mT * here.weights.scale, head)
        return seen.masked_fill(~visible(call, query).to(seen.device), -torch.inf)[0, 0].double()

    places: list[tuple[Into, At]] = [("q", [query]), ("k", slice(None))]
    as_is = [here.whole(side, head, at) for side, at in places]
    there, n, least = call.pattern(slice(query, None))[0, 0, 0].double(), call.positions, here.weights.sigmoid
    left = there[:n].sum().clamp(min=torch.finfo(there.dtype).tiny)  # none, where a sink has all that can be told
    beside = scores(*as_is).logsumexp(0) + there[n:].log() - left.log()  # a sink's, which nothing changes

    def row(q: Tensor, k: Tensor) -> Tensor:
        if least is not None:
            return (scores(q, k) + least).sigmoid()
        return torch.cat([scores(q, k), beside]).softmax(0)[:n]

    held, anew = [*as_is], [*as_is]
    for i, (side, at) in enumerate(places):
        if into in (side, "both"):
            held[i] = as_is[i] - here.read(side, head, gone[:, at], at)
            anew[i] = less.whole(side, head, at)
    rows = {"as_is": row(*as_is), "estimate": row(*held), "recomputed": row(*anew),
            "everywhere": _switched_off(model, tokens[:, : query + 1], chosen, (layer, head))}  # fmt: skip
    return xr.Dataset({name: ("key", value.cpu().numpy()) for name, value in rows.items()})


def _switched_off(model: HeadModel, tokens: Tensor, sources: list[str], head: Head) -> Float[Tensor, " key_pos"]:
    """A head's last row with sources switched off; nan where one of them can't be."""
    parts = [parse_part(one) for one in sources]
    rows: list[Tensor] = []

    def see(call: AttentionCall) -> None:
        if call.layer == head[0] and call.first_head <= head[1] < call.first_head + call.n_heads:
            one = call.head(head[1] - call.first_head)
            rows.append(one.mixing(slice(tokens.shape[1] - 1, None))[0, 0, 0, : one.positions].double())

    try:
        plans = planner(model, tokens)([part for part in parts if part is not None]) if all(parts) else []
    except ValueError:  # MLPs of a model that others wrote
        plans = []
    for edits in plans:
        with applied(edits), visiting(see):
            model(tokens)
    return rows[0] if rows else torch.full((tokens.shape[1],), torch.nan).double()


def parse_part(source: str) -> Part | None:
    """The head or MLP that a source is."""
    if source.startswith("MLP "):
        return MLP(int(source[4:]))
    return parse_head(source) if source.startswith("L") else None
