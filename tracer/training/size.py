"""How large a model will be, before there is one: the shapes of `tracer.model.transformer`, counted."""

from __future__ import annotations

from tracer.config import ModelConfig


def n_params(config: ModelConfig) -> int:
    """Parameters of a `Transformer` of this config, whose d_vocab is set."""
    d, vocab = config.d_model, config.d_vocab
    assert vocab is not None
    norm = d * config.norm_gain * {"none": 0, "rms": 1, "layer": 2}[config.norm]
    block = d * config.n_heads * config.head_width * (3 + config.attn_out + config.attn_gate) + d * config.attn_out_bias
    block += 2 * config.head_width * config.norm_gain * config.qk_norm
    block += config.n_heads * ((config.sink == "learned") + (config.smear != "none"))
    block += norm * (1 + bool(config.mlp_hidden)) + _mlp(d, config.mlp_hidden, d) * bool(config.mlp_hidden)
    out = _mlp(d, config.unembed_hidden, vocab) if config.unembed_hidden else d * vocab * (not config.tie_embeddings)
    positions = config.n_ctx * d * (config.positions in ("learned", "shortformer"))
    return vocab * d + positions + config.n_layers * block + norm * config.final_norm + out


def step_flops(config: ModelConfig, batch_size: int) -> float:
    """Multiplications and additions of one update, forward and backward: 6 a weight that a token passes, and scores."""
    passed = n_params(config) - (config.d_vocab or 0) * config.d_model * (not config.tie_embeddings)
    scores = 2 * config.n_layers * config.n_heads * config.head_width * config.n_ctx
    return 6.0 * batch_size * config.n_ctx * (passed + scores)


def _mlp(d_in: int, hidden: tuple[int, ...], d_out: int) -> int:
    widths = (d_in, *hidden, d_out)
    return sum(a * b + b for a, b in zip(widths[:-1], widths[1:], strict=True))
