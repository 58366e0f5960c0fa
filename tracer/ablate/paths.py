"""Single paths from a head to an input of a later head: only that edge changes, everything else sees the stream as is.

1. Run the model and keep the stream that the receiver's layer reads, and the sender's z.
2. Add (z' - z) W_O of the sender to that stream, through the receiver's own norm, and project it with the receiver's
   W_Q, W_K or W_V.
3. That is an edit of the receiver's q, k or v; what follows from it downstream is computed as ever.

Source: path patching, Wang et al. 2022 (2211.00593); as transformer_lens.patching.get_act_patch_direct_path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.parts import Path
from tracer.interventions.edits import Edit, applied, recording
from tracer.model import Transformer


@torch.no_grad()
def reroute(
    model: Transformer, tokens: Int[Tensor, "batch pos"], paths: Iterable[Path],
    instead: Callable[[str], float | Tensor], positions: tuple[int, ...] | None = None, before: Iterable[Edit] = (),
) -> list[Edit]:  # fmt: skip
    """The edits after which each receiver reads its sender's z as `instead` (by tap) says, at `positions` of it.

    They hold for these tokens, on top of the edits `before`. Receivers of later layers read the stream that the edits
    of earlier ones have changed, so each layer of receivers costs a forward pass.
    """
    edits, by_layer = list(before), {}
    for path in paths:
        by_layer.setdefault(path.receiver[0], {}).setdefault((path.receiver[1], path.into), []).append(path.sender)
    n_before = len(edits)
    for layer, receivers in sorted(by_layer.items()):
        block, stream = model.blocks[layer], f"blocks.{layer}.hook_resid_pre"
        senders = {z_tap(sender[0]) for group in receivers.values() for sender in group}
        with applied(edits), recording(stream, "hook_pos_embed", *senders) as seen:
            model(tokens)
            here = []
            for (head, into), group in receivers.items():
                x = seen[stream]
                for sender, head_of_sender in group:
                    tap = z_tap(sender)
                    z, which = seen[tap], (head_of_sender,)
                    change = Edit(tap, which, positions, instead(tap))(z) - z
                    x = x + write(model, sender, head_of_sender, change[:, :, head_of_sender])
                x = block.ln1(x) if block.ln1 is not None else x
                if model.config.positions == "shortformer" and into != "v":
                    x = x + seen["hook_pos_embed"]
                weight = {"q": block.attn.W_Q, "k": block.attn.W_K, "v": block.attn.W_V}[into][head]
                value = einsum(x, weight, "batch pos d_model, d_model d_head -> batch pos d_head")
                here.append(Edit(f"blocks.{layer}.attn.hook_{into}", (head,), instead=value.unsqueeze(2)))
        edits += here
    return edits[n_before:]


def write(
    model: Transformer, layer: int, head: int, z: Float[Tensor, "batch pos d_head"]
) -> Float[Tensor, "batch pos d_model"]:
    """What a head adds to the stream: z W_O; without W_O, z in the head's own columns."""
    weight = model.blocks[layer].attn.W_O
    if weight is not None:
        return z @ weight[head]
    width = z.shape[-1]
    return torch.nn.functional.pad(z, (head * width, model.config.d_model - (head + 1) * width))


def z_tap(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_z"
