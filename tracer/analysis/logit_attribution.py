"""Which part of the model raised a token's logit: direct logit attribution, and the logit lens.

1. Without a norm after the blocks a logit is a sum over everything that was added to the stream.
2. With one, its scale is held at what it was in this forward pass; then the logit is that sum again, exactly.
3. A part's share is its own vector through the held norm and W_U's column of the token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from tracer.interventions.edits import recording

if TYPE_CHECKING:
    from tracer.model import Transformer


@dataclass(frozen=True)
class Attribution:
    """What each part adds to the logit of one target at every position; everything sums to `logit`."""

    embed: Float[Tensor, "batch pos"]
    """The token's own embedding, and its position's where that is added to the stream."""
    heads: Float[Tensor, "layer head batch pos"]
    mlps: Float[Tensor, "layer batch pos"]
    """Biases inside an MLP belong to it; 0 where there is none."""
    biases: Float[Tensor, "batch pos"]
    """b_O of every layer, and the final norm's own."""
    logit: Float[Tensor, "batch pos"]


def refuse_unless_sum(model: Transformer) -> None:
    """ValueError for a model whose logits are no sum of its parts, naming the options that stand in the way."""
    config = model.config
    reasons = [
        reason
        for stands, reason in (
            (not config.residual, "residual=False: each sublayer replaces the stream"),
            (
                config.norm != "none" and config.norm_position == "post",
                "norm_position=post: each norm rescales the sum",
            ),
            (bool(config.unembed_hidden), f"unembed_hidden={config.unembed_hidden}: logits are no linear map of it"),
            (not config.attn_out, "attn_out=False: heads write side by side, without W_O"),
        )
        if stands
    ]
    if reasons:
        raise ValueError(f"logits of this model are not the sum of what its parts write: {'; '.join(reasons)}")


@torch.no_grad()
def logit_attribution(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, "batch pos"],
    *,
    against: Int[Tensor, "batch pos"] | None = None,
) -> Attribution:
    """What every head, MLP and embedding adds to the logit of `targets`, minus that of `against` or the mean logit.

    Source: Elhage et al. 2021; transformer-lens ActivationCache.logit_attrs. Exact for the scale of the final norm held
    at this pass; indirect effects, through later parts, are not in it. Costs a forward pass and 2 d_model FLOPs for
    each part, position and target.
    """
    refuse_unless_sum(model)
    n_layers, config = model.n_layers, model.config
    with recording("hook_embed", "hook_pos_embed", "hook_z", "hook_mlp_out", "hook_scale") as seen:
        logits = model(tokens)
    columns = model.W_U.detach().T
    reference = columns.mean(0) if against is None else columns[against]
    direction = columns[targets] - reference  # [batch pos d_model]
    final = seen.get("ln_final.hook_scale")
    gain = getattr(model.ln_final, "w", None)
    direction = direction if gain is None else direction * gain.detach()
    if config.norm == "layer" and final is not None:
        direction = direction - direction.mean(-1, keepdim=True)  # centring is linear and its own transpose
    held = direction if final is None else direction / final

    def share(vector: Tensor) -> Tensor:
        return einsum(vector, held, "batch pos d_model, batch pos d_model -> batch pos")

    embed = share(seen["hook_embed"])
    if config.positions in ("learned", "sinusoidal"):
        embed = embed + share(seen["hook_pos_embed"].expand_as(seen["hook_embed"]))
    heads = torch.stack([
        einsum(seen[f"blocks.{layer}.attn.hook_z"], _out(model, layer), held,
               "batch pos head d_head, head d_head d_model, batch pos d_model -> head batch pos")
        for layer in range(n_layers)
    ])  # fmt: skip
    nothing = torch.zeros_like(embed)
    mlps = torch.stack([
        share(seen[name]) if (name := f"blocks.{layer}.hook_mlp_out") in seen else nothing for layer in range(n_layers)
    ])  # fmt: skip
    biases = torch.zeros_like(held[0, 0])
    for block in model.blocks:
        biases = biases if block.attn.b_O is None else biases + block.attn.b_O.detach()
    by_pos = einsum(biases, held, "d_model, batch pos d_model -> batch pos")
    last = getattr(model.ln_final, "b", None)
    if last is not None:
        by_pos = by_pos + einsum(last.detach(), columns[targets] - reference, "d_model, batch pos d_model -> batch pos")
    chosen = logits.gather(-1, targets[..., None])[..., 0]
    base = logits.mean(-1) if against is None else logits.gather(-1, against[..., None])[..., 0]
    return Attribution(embed, heads, mlps, by_pos, chosen - base)


def _out(model: Transformer, layer: int) -> Tensor:
    weight = model.blocks[layer].attn.W_O
    assert weight is not None
    return weight.detach()


@torch.no_grad()
def logit_lens(
    model: Transformer, tokens: Int[Tensor, "batch pos"], targets: Int[Tensor, "batch pos"]
) -> tuple[Float[Tensor, "layer1 batch pos"], Int[Tensor, "layer1 batch pos"]]:
    """log p of `targets`, and their rank (0: the first), if the model stopped before each layer and at its end.

    Source: nostalgebraist 2020. The final norm is computed anew from each stream. layer1 runs over n_layers + 1 places.
    """
    names = [f"blocks.{layer}.hook_resid_pre" for layer in range(model.n_layers)]
    last = f"blocks.{model.n_layers - 1}.hook_resid_post"
    with recording(*names, last) as seen:
        model(tokens)
    found = [model.logits(seen[name]) for name in (*names, last)]
    log_p = torch.stack([x.log_softmax(-1).gather(-1, targets[..., None])[..., 0] for x in found])
    ranks = torch.stack([(x > x.gather(-1, targets[..., None])).sum(-1) for x in found])
    return log_p, ranks
