"""One transformer for every specimen: read `layers`, then `transformer`, from top to bottom."""

from tracer.model.cache import Cache
from tracer.model.initial import init_weights
from tracer.model.layers import MLP, Attention, Block, Embed, Norm, Unembed
from tracer.model.transformer import QK_TAPS, Transformer

__all__ = [
    "MLP", "QK_TAPS", "Attention", "Block", "Cache", "Embed", "Norm", "Transformer", "Unembed", "init_weights",
]  # fmt: skip
