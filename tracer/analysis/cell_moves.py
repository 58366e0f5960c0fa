"""What a cell moves: the part of z that a head brings from one key, through W_O, to later heads and to the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tracer.ablate.parts import INPUTS
from tracer.analysis.why import Pass
from tracer.measures.aliases import Head
from tracer.model.residual_stream import Into

if TYPE_CHECKING:
    import xarray as xr


@torch.no_grad()
def moves(found: Pass, layer: int, head: int, query: int, key: int) -> xr.Dataset:
    """What a cell moves: the weight on that key times the value there, through W_O, into the stream at the query.

    `logits` [token]: what it adds to each logit of the token after the query, less the mean over the vocabulary; with
    the final norm held, exact, direct effects only (before a soft cap, where there is one).
    `reads` [layer, head, input]: its share of the q, k and v of every later head at the query: the part along that
    vector over its length, so that all sources together are 1; nan for heads that are not later, and of keys or queries
    that are smeared. `written`: its length.
    """
    import xarray as xr

    stream, here = found.stream, found.stream.layers[layer]
    v = found.calls[layer].head(head).v[0, key, 0]
    z = found.mixing((layer, head), query)[key].to(v) * v
    z = z if here.gate is None else z * here.gate[0, query, head].to(z)
    part = here.written((z.to(here.weights.W_O) @ here.weights.W_O[head])[None, None], [query])
    logits = stream.end.held(part, stream.final[:, [query]])[0, 0]
    widest = max(one.z.shape[2] for one in stream.layers)
    reads = torch.full((len(stream.layers), widest, len(INPUTS)), torch.nan)
    for later in range(layer + 1, len(stream.layers)):
        reader, call = stream.layers[later], found.calls[later]
        for other in range(reader.z.shape[2]):
            one = call.head(other)
            inputs: tuple[tuple[Into, Tensor | None], ...] = (("q", one.q), ("k", one.k), ("v", one.v))
            for i, (into, whole) in enumerate(inputs):
                if into in reader.weights.smear:
                    continue
                read = reader.read(into, other, part, [query])[0, 0]
                own = reader.whole(into, other, [query])[0, 0]  # in the order of `read`, which may not be the model's
                reads[later, other, i] = torch.nan if whole is None else read @ own / own.norm() ** 2
    return xr.Dataset(
        {"logits": ("token", (logits - logits.mean()).cpu().numpy()),
         "reads": (("layer", "head", "input"), reads.numpy()), "written": ((), float(part.norm()))},
        coords={"layer": range(len(reads)), "head": range(widest), "input": list(INPUTS)},
    )  # fmt: skip


def readers(moved: xr.Dataset) -> list[tuple[Head, Into, float]]:
    """Of `moves`: the later heads, which input, and its share that the cell wrote, the largest first."""
    shares = moved["reads"].stack(reader=("layer", "head", "input")).dropna("reader")
    ordered = shares.sortby(abs(shares), ascending=False)
    return [((int(layer), int(head)), into, float(share))
            for (layer, head, into), share in zip(ordered["reader"].values, ordered.values, strict=True)]  # fmt: skip
