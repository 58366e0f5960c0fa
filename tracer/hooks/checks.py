"""Is what was seen of an attention what the model computes?

Of q and k each attention is asked once, and later calls of it are trusted; weights are asked every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from tracer.heads.call import AttentionCall
from tracer.hooks.discovered import DiscoveredAttention
from tracer.hooks.sites import Key


@torch.no_grad()
def check(
    found: DiscoveredAttention,
    key: Key,
    call: AttentionCall,
    z: Tensor | None,
    own: Callable[[], Tensor] | None,
    dropout: float,
) -> None:
    """Compare z with what the model's own kernel makes of the same call; where it differs, `problems` says so."""
    try:
        if call.weights is not None:
            _check_weights(found, key, call.weights)
        elif z is not None and own is not None and not dropout:
            _compare(found, key, z, own(), call.v)
        else:  # the model's own z holds dropout, or nobody made one: the first sequence again, without it
            one = call.first(1)
            _compare(found, key, *_twice(one), one.v)
    except Exception as error:  # somebody's forward pass is under way: it goes on, and `problems` tells
        found.problem(f"{key[0]} could not be checked ({type(error).__name__}: {error})")


def _check_weights(found: DiscoveredAttention, key: Key, weights: Tensor) -> None:
    """Of every sequence in every pass: what is done after the softmax may be done to some of them only."""
    total = weights.sum(-1, dtype=torch.promote_types(weights.dtype, torch.float32))
    if not bool(total.isfinite().all()):
        return
    found.checked.add(key)
    total = total.masked_fill(total == 0, 1.0)  # emptied after the softmax: a row that sees no key
    precise = weights.dtype in (torch.float32, torch.float64)
    if float(weights.min()) < 0 or float((total - 1).abs().max()) > (1e-3 if precise else 2e-2):
        found.problem(
            f"{key[0]}: what is multiplied with the values sums to {float(total.min()):.3g} to "
            f"{float(total.max()):.3g} over the keys of a query, not to 1, so it is no attention pattern; is "
            f"something masked or scaled after the softmax?"
        )


def _compare(found: DiscoveredAttention, key: Key, ours: Tensor, theirs: Tensor, v: Tensor) -> None:
    """A row that sees no key is 0 in ours; in theirs it is nan, or the even mean of all values, where a mask adds the
    same large number everywhere."""
    ours, theirs = ours.float(), theirs.detach()
    precise = theirs.dtype in (torch.float32, torch.float64)
    theirs = theirs.float()
    largest = float(theirs.nan_to_num(0.0).abs().max())
    if math.isinf(largest) or not bool(ours.isfinite().all()):
        return
    found.checked.add(key)
    most, off = (1e-4 if precise else 3e-2) * max(1.0, largest), (ours - theirs).nan_to_num(0.0).abs()
    if float(off.max()) > most and bool((blind := (ours == 0).all(-1, keepdim=True)).any()):
        even = v.float().mean(1, keepdim=True).repeat_interleave(ours.shape[2] // v.shape[2], 2)
        off = off.where(~blind | ((theirs - even).abs().amax(-1, keepdim=True) > most), 0)
    if (error := float(off.max())) > most:
        found.problem(
            f"{key[0]}: heads recomputed from q, k and v differ from the model's own by {error:.2g}; its "
            f"attention is not softmax(scale * q k + mask) v"
        )


def _twice(one: AttentionCall) -> tuple[Tensor, Tensor]:
    """z as the row blocks and as torch's kernel compute it, without dropout."""
    assert one.q is not None and one.k is not None
    ours = one.stats(z=True).z
    assert ours is not None
    q, k, v = (rearrange(t, "batch pos head d -> batch head pos d") for t in (one.q, one.k, one.v))
    theirs = F.scaled_dot_product_attention(
        q,
        k,
        v,
        one.full_mask() if one.extra else one.mask,
        0.0,
        one.causal and one.mask is None and not one.extra,
        scale=one.scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return ours, rearrange(theirs, "batch head pos d -> batch pos head d")
