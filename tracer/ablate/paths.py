"""Single paths from a head to an input of a later head: only that edge changes, everything else sees the stream as is.

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

from tracer.ablate.edges import pattern_tap
from tracer.ablate.parts import Path
from tracer.interventions.edits import Edit, applied, recording
from tracer.interventions.replacements import z_tap
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel
from tracer.model.residual_stream import AttentionPass, Into, ResidualStream


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
        q, k = (found.get(into, clean).whole(into, head) for into in ("q", "k"))  # type: ignore[arg-type]
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
