"""Which part of the model raised a token's logit: direct logit attribution, and the logit lens.

1. Without a norm after the blocks a logit is a sum over everything that was added to the stream.
2. With one, its scale is held at what it was in this forward pass; then the logit is that sum again, exactly.
3. A part's share is its own vector through the held norm and W_U's column of the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from tracer.huggingface.any_model import any_model
from tracer.interventions.edits import recording
from tracer.model.protocol import HeadModel, check_vocabulary

if TYPE_CHECKING:
    import xarray as xr


@any_model
@torch.no_grad()
def logit_attribution(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, "batch pos"] | None = None,
    *,
    against: Int[Tensor, "batch pos"] | None = None,
) -> xr.Dataset:
    """What every head, MLP and embedding adds to the logit of `targets`, minus that of `against` or the mean logit.

    embed[batch, pos] (positions included, where they are added to the stream), heads[layer, head, batch, pos],
    mlps[layer, batch, pos] (their own biases included), biases[batch, pos]; they sum to logit[batch, pos]. `targets`:
    default the token that comes next, at the last position the likeliest.

    Source: Elhage et al. 2021; transformer-lens ActivationCache.logit_attrs. Exact for the scales of norms held at this
    pass; indirect effects, through later parts, are not in it. Where logits are capped (Gemma 2) it is the logit before
    the cap. Costs a forward pass and 2 d_model FLOPs for each part, position and target. ValueError, with the reason,
    where logits are no sum of what parts write.
    """
    import xarray as xr

    stream = model.residual_stream(tokens)
    targets, end = _chosen(tokens, stream.logits, targets), stream.end
    against = None if against is None else _chosen(tokens, stream.logits, against)
    columns = end.W_U.T
    direction = columns[targets] - (columns.mean(0) if against is None else columns[against])  # [batch pos d_model]
    b_U = torch.zeros_like(direction[..., 0])
    if end.b_U is not None:
        b_U = end.b_U[targets] - (end.b_U.mean() if against is None else end.b_U[against])
    normed = stream.final if end.norm is None else end.norm(stream.final)
    logit = ((normed * direction).sum(-1) + b_U) * end.times  # those of all tokens would cost as much as some layers
    biases = b_U
    if end.norm is not None:
        if end.norm.bias is not None:
            biases = biases + direction @ end.norm.bias
        direction = direction if end.norm.gain is None else direction * end.norm.gain
        if end.norm.centre:
            direction = direction - direction.mean(-1, keepdim=True)  # centring is linear and its own transpose
        direction = direction / end.norm.scale(stream.final)

    def share(vectors: Float[Tensor, "*parts batch pos d_model"]) -> Float[Tensor, "*parts batch pos"]:
        return einsum(vectors, direction, "... batch pos d_model, batch pos d_model -> ... batch pos") * end.times

    embed = share(stream.embed if stream.pos_embed is None else stream.embed + stream.pos_embed)
    heads = torch.stack([share(layer.heads_out()) for layer in stream.layers])
    mlps = torch.stack([torch.zeros_like(embed) if mlp is None else share(mlp) for mlp in stream.mlp_out])
    biases = biases * end.times + sum(share(layer.bias_out) for layer in stream.layers)
    rows = {"batch": np.arange(len(tokens)), "pos": np.arange(tokens.shape[1])}
    found = {
        "embed": (("batch", "pos"), embed), "heads": (("layer", "head", "batch", "pos"), heads),
        "mlps": (("layer", "batch", "pos"), mlps), "biases": (("batch", "pos"), biases),
        "logit": (("batch", "pos"), logit),
        "target": (("batch", "pos"), targets),
    }  # fmt: skip
    return xr.Dataset(
        {name: (dims, x.cpu().numpy()) for name, (dims, x) in found.items()},
        {"layer": np.arange(len(heads)), "head": np.arange(heads.shape[1]), **rows},
        {"long_name": "direct logit attribution", "units": "logits",
         "against": "the mean logit" if against is None else "the logit of another token",
         "note": "norms held at the scale of this pass; before the cap of logits" if end.cap else
                 "norms held at the scale of this pass"},
    )  # fmt: skip


@any_model
@torch.no_grad()
def logit_lens(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], targets: Int[Tensor, "batch pos"] | None = None, *,
    positions: Sequence[int] | None = None,
) -> xr.Dataset:  # fmt: skip
    """What the model would say next if it stopped before each layer, or at its end (layer = n_layers).

    log_p[layer, batch, pos] of `targets` (default as in `logit_attribution`) in nats, their rank (0: the first), and
    top, the likeliest token; of all positions or of these. Costs a forward pass, and the logits of each layer at each
    of the positions. Source: nostalgebraist 2020. The final norm is computed anew from each stream.
    """
    import xarray as xr

    names = [f"blocks.{layer}.hook_resid_pre" for layer in range(model.n_layers)]
    last = f"blocks.{model.n_layers - 1}.hook_resid_post"
    with recording(*names, last) as seen:
        logits = model(tokens)
    if last not in seen:
        raise ValueError(model.why_no_stream)
    at = range(tokens.shape[1]) if positions is None else positions
    index = torch.as_tensor(at, device=tokens.device)
    wanted = _chosen(tokens, logits, targets)[:, index, None]
    log_p, ranks, top = [], [], []
    for name in (*names, last):
        found = model.logits(seen[name][:, index]).log_softmax(-1)
        own = found.gather(-1, wanted)
        log_p.append(own[..., 0])
        ranks.append((found > own).sum(-1))
        top.append(found.argmax(-1))
    return xr.Dataset(
        {name: (("layer", "batch", "pos"), torch.stack(x).cpu().numpy())
         for name, x in (("log_p", log_p), ("rank", ranks), ("top", top))}
        | {"target": (("batch", "pos"), wanted[..., 0].cpu().numpy())},
        {"layer": np.arange(model.n_layers + 1), "batch": np.arange(len(tokens)), "pos": list(at)},
        {"long_name": "logit lens", "units": "nats"},
    )  # fmt: skip


def _chosen(tokens: Int[Tensor, "batch pos"], logits: Tensor, given: Tensor | None) -> Int[Tensor, "batch pos"]:
    """Those given, or the token that comes next; at the last position the likeliest."""
    if given is None:
        return torch.cat([tokens[:, 1:], logits[:, -1:].argmax(-1)], 1)
    if given.shape != tokens.shape:
        raise ValueError(f"targets are one token a position, {list(tokens.shape)}, not {list(given.shape)}")
    check_vocabulary(given, logits.shape[-1])
    return given
