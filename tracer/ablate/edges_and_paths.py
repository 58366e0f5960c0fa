"""Less than a head: single query -> key edges, and single paths from a head to an input of a later head.

An edge is attention mass taken away, or given to the row's other keys. Of a path only that input changes, everything
else sees the stream as is:

1. Run the model and keep the stream that the receiver's layer reads, and the sender's z.
2. Add (z' - z) W_O of the sender to that stream, read it through the receiver's own norm, computed anew, and its W_Q,
   W_K or W_V.
3. Of our own models that is an edit of the receiver's q, k or v. Where others wrote the model, heads may share keys and
   values, so it is one of the receiver's pattern (by how much its scores change), and of its z.

Source: path patching, Wang et al. 2022 (2211.00593); as transformer_lens.patching.get_act_patch_direct_path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.parts import Edge, Path
from tracer.interventions.edits import Edit, applied, exist, recording
from tracer.interventions.replacements import pattern_tap, z_tap
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel
from tracer.model.residual_stream import AttentionPass, Into, ResidualStream


def cut(edges: Iterable[Edge], instead: Callable[[str], float | Tensor]) -> list[Edit]:
    """The edits that put the mass of `instead` (by tap) at the edges."""
    groups: dict[tuple[int, bool], list[tuple[int, int, int]]] = {}
    for edge in edges:
        groups.setdefault((edge.layer, edge.renormalise), []).append((edge.head, edge.query, edge.key))
    return [
        Edit(pattern_tap(layer), instead=Cut(tuple(places), renormalise, instead(pattern_tap(layer))))
        for (layer, renormalise), places in groups.items()
    ]


@dataclass(frozen=True)
class Cut:
    """A pattern whose mass at some (head, query, key) is `mass`, the rest of those rows kept or rescaled.

    Source: ours. With `renormalise` a row keeps its sum; where nothing is left to rescale, the rest stays 0.
    """

    edges: tuple[tuple[int, int, int], ...]
    renormalise: bool = False
    mass: float | Tensor = 0.0
    """Broadcast to the pattern; only its values at the edges count."""

    def __call__(
        self, pattern: Float[Tensor, "batch head query_pos key_pos"]
    ) -> Float[Tensor, "batch head query_pos key_pos"]:
        _there_are(self.edges, pattern)
        rows: dict[tuple[int, int], list[int]] = {}
        for head, query, key in self.edges:
            rows.setdefault((head, query), []).append(key)
        heads, queries = (list(places) for places in zip(*rows, strict=True))
        hidden = torch.zeros(len(rows), pattern.shape[-1], dtype=torch.bool, device=pattern.device)
        for row, keys in zip(hidden, rows.values(), strict=True):
            row[keys] = True
        before = pattern[:, heads, queries]
        mass = torch.as_tensor(self.mass, dtype=pattern.dtype, device=pattern.device)
        mass = mass.expand_as(pattern)[:, heads, queries]
        rest = before.masked_fill(hidden, 0)
        if self.renormalise:
            taken = mass.masked_fill(~hidden, 0).sum(-1, keepdim=True)
            left = rest.sum(-1, keepdim=True).clamp_min(torch.finfo(rest.dtype).tiny)
            rest = rest * ((before.sum(-1, keepdim=True) - taken) / left)
        after = pattern.clone()
        after[:, heads, queries] = torch.where(hidden, mass, rest)
        return after


def _there_are(edges: tuple[tuple[int, int, int], ...], pattern: Float[Tensor, "batch head query_pos key_pos"]) -> None:
    heads, queries, keys = zip(*edges, strict=True)
    for places, size, what, there_are in (
        (heads, pattern.shape[1], "head", "this layer has heads"),
        (queries, pattern.shape[2], "position", "the input has positions"),
        (keys, pattern.shape[3], "position", "the input has positions"),
    ):
        exist(places, size, what, there_are)


@torch.no_grad()
def reroute(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], paths: Iterable[Path],
    instead: Callable[[str], float | Tensor], positions: tuple[int, ...] | None = None, before: Iterable[Edit] = (),
) -> list[Edit]:  # fmt: skip
    """The edits after which each receiver reads its sender's z as `instead` (by tap) says, at `positions` of it.

    They hold for these tokens, with the edits `before` in force too, of which those of a same tap come after. Receivers
    of later layers read the stream that the edits of earlier ones have changed, so each layer of receivers costs a
    forward pass. ValueError where the stream is no sum of what heads write.
    """
    before, edits, by_layer = list(before), [], {}
    for path in paths:
        by_head = by_layer.setdefault(path.receiver[0], {}).setdefault(path.receiver[1], {})
        by_head.setdefault(path.into, []).append(path.sender)
    for layer, receivers in sorted(by_layer.items()):
        with applied([*edits, *before]):
            stream, patterns = read_layer(model, tokens, layer)
        for head, senders in receivers.items():
            edits += reroute_into(model, (layer, head), senders, stream, patterns, instead, positions)
    return edits


def read_layer(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], layer: int
) -> tuple[ResidualStream, Float[Tensor, "batch head query_pos key_pos"]]:
    """A forward pass, with the patterns of one layer."""
    with recording(tap := pattern_tap(layer)) as seen:
        stream = model.residual_stream(tokens)
    return stream, seen[tap]


def reroute_into(
    model: HeadModel, receiver: Head, senders: dict[Into, list[Head]], stream: ResidualStream,
    patterns: Float[Tensor, "batch head query_pos key_pos"], instead: Callable[[str], float | Tensor],
    positions: tuple[int, ...] | None = None,
) -> list[Edit]:  # fmt: skip
    """`reroute` of the paths into one receiver, on a pass that was read before: it costs none."""
    layer, head = receiver
    clean = stream.layers[layer]
    found: dict[Into, AttentionPass] = {}
    for into, some in senders.items():
        x = clean.resid_pre + sum(_change(stream, sender, instead, positions) for sender in some)
        found[into] = replace(clean, resid_pre=x)
    if (taps := model.input_taps(layer)) is not None:
        return [Edit(taps[into], (head,), instead=read.whole(into, head).unsqueeze(2)) for into, read in found.items()]
    return _outputs(layer, head, clean, found, patterns[:, head].to(clean.z.dtype))


def _change(
    stream: ResidualStream, sender: Head, instead: Callable[[str], float | Tensor], positions: tuple[int, ...] | None
) -> Float[Tensor, "batch pos d_model"]:
    layer, head = sender
    one, tap = stream.layers[layer], z_tap(layer)
    after = Edit(tap, (head,), positions, instead(tap))(one.z)
    return one.rewritten(one.gated(after - one.z)[:, :, head] @ one.weights.W_O[head])


def _outputs(
    layer: int, head: int, clean: AttentionPass, found: dict[Into, AttentionPass], pattern: Tensor
) -> list[Edit]:
    edits = []
    if "q" in found or "k" in found:
        q, k = (found.get(into, clean).whole(into, head) for into in ("q", "k"))
        after = clean.seen_scores(q @ k.mT * clean.weights.scale, head)
        scored = Rescored(after - clean.seen_scores(clean.scores(head), head))
        edits.append(Edit(pattern_tap(layer), (head,), instead=lambda x: scored(x[:, head]).unsqueeze(1)))
        pattern = scored(pattern)
    if "v" in found:
        more = pattern @ (found["v"].whole("v", head) - clean.whole("v", head))
        edits.append(Edit(z_tap(layer), (head,), instead=lambda z: z + more.unsqueeze(2).to(z)))
    return edits


@dataclass(frozen=True, eq=False)
class Rescored:
    """A pattern whose scores change by this, its sums kept: what was masked stays so."""

    by: Float[Tensor, "batch query_pos key_pos"]

    def __call__(self, pattern: Float[Tensor, "batch query_pos key_pos"]) -> Tensor:
        after = (pattern.log() + self.by.to(pattern)).softmax(-1)
        return after * pattern.sum(-1, keepdim=True)
