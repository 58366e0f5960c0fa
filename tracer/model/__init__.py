"""One transformer for every specimen: read `layers`, then `transformer`, from top to bottom."""

from tracer.model.activation_cache import Cache
from tracer.model.initial import init_weights
from tracer.model.layers import Block, CausalAttention, Embed, FeedForward, Norm, Unembed
from tracer.model.transformer import QK_TAPS, Transformer

__all__ = [
    "QK_TAPS", "Block", "Cache", "CausalAttention", "Embed", "FeedForward", "Norm", "Transformer", "Unembed",
    "init_weights",
]  # fmt: skip
