"""Does an attention look ahead?"""

from __future__ import annotations

import torch
from torch import Tensor

from tracer.heads import masks
from tracer.heads.call import AttentionCall


def is_causal(call: AttentionCall, but_for_padding: bool = False) -> bool:
    """Does no query see a later key? Read from the flag, the mask, or the weights.

    Keys that are no positions are nobody's future. Padding that may see nothing is often spread evenly over all keys:
    such rows are forgiven, where z does not come from it, unless all rows are like that.
    """
    n = call.shape[1]
    if n != call.positions:
        return False
    if call.causal or n == 1:
        return True
    if call.weights is not None:
        weights = call.weights.detach()[..., :n]
        return _none_ahead(weights.triu(1).any(-1), weights.amax(-1) == weights.amin(-1))
    if call.mask is None or call.mask.shape[2] == 1:
        return False
    future = torch.ones(n, n, dtype=torch.bool, device=call.mask.device).triu(1)
    seen = (call.mask if call.mask.dtype == torch.bool else masks.visible(call.mask))[..., :n]
    return _none_ahead((seen & future).any(-1), seen.all(-1) & but_for_padding)


def _none_ahead(ahead: Tensor, forgiven: Tensor) -> bool:
    return not bool((ahead & ~forgiven).any() if not bool(forgiven.all()) else ahead.any())
