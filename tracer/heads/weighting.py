"""How much a head brings from each key, which attention alone does not say."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from tracer.heads.definitions import group_size


@torch.no_grad()
def read_norms(
    v: Float[Tensor, "key_pos kv_head d_value"],
    W_O: Float[Tensor, "head d_value d_model"] | None = None,
    *,
    n_heads: int | None = None,
) -> Float[Tensor, "head key_pos"]:
    """||v_k W_O^h||: how long the vector is that head h adds to the stream per unit of attention to key k.

    Source: Kobayashi et al. 2020 (2004.10102), "Attention is Not Only a Weight", ||f(x)|| without the output's bias.
    Attention times it is what a head really reads. Without W_O a head writes v to columns of its own: ||v_k||, where
    `n_heads` says how many heads share the values (default: none do).
    """
    n_heads = len(W_O) if W_O is not None else n_heads or v.shape[1]
    shared = group_size(n_heads, v.shape[1])
    of_head = (v[:, head // shared] for head in range(n_heads))
    return torch.stack(
        [(x if W_O is None else x @ W_O[head]).norm(dim=-1) for head, x in enumerate(of_head)]
    )  # one head at a time: key_pos * d_model floats
