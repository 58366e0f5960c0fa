"""A head that only signals that its token was there before costs the same, whatever stands in its place."""

from __future__ import annotations

import math

import torch

from tracer.ablate.repeats import Repeats
from tracer.config import ModelConfig
from tracer.data.probes import repeated
from tracer.model import Transformer

VOCAB, CTX, SURE = 65, 64, 12.0
COST = 3.30
"""Nats that the right token loses when its logit falls from SURE to WORTH, that of the other 64 tokens being 0."""
WORTH = math.log((VOCAB - 1) / (math.exp(COST) - 1))


def signalling() -> Transformer:
    """L0H0 writes the token before; L1H0 copies what followed the same token, and L1H1 says that there was one.

    Without that word a large constant stands in the stream, which the last norm shares out: so L1H0's logit is WORTH
    and not SURE. L1H1 writes minus that constant where its token was there before, and nothing elsewhere, where both
    rest on the start token.
    """
    token, place, before, out = (slice(a, b) for a, b in ((0, 65), (65, 129), (129, 194), (194, 259)))
    constant, width = 259, 260
    config = ModelConfig(
        n_layers=2, n_heads=2, d_model=width, d_head=VOCAB + 1, n_ctx=CTX, d_vocab=VOCAB, norm="rms", attn_scale="none"
    )
    model = Transformer(config).double().eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.fill_(float(name.endswith(".w")))
    large = 2 * ((SURE / WORTH) ** 2 - 1) ** 0.5  # beside a token, a place, the token before and what is copied: 4
    entering, between = (((n + large**2) / width) ** 0.5 for n in (2, 3))
    words, places = torch.eye(VOCAB).double(), torch.eye(CTX).double()
    model.embed.W_E[:, token], model.pos_embed.W_pos[:, place] = words, places
    model.pos_embed.W_pos[:, constant] = large
    model.W_U[out] = SURE * (4 / width) ** 0.5 * words
    first, second = (block.attn for block in model.blocks)
    assert first.W_O is not None and second.W_O is not None
    first.W_Q[0, place, :CTX], first.W_K[0, place, :CTX] = 2000 * places.roll(-1, 1), places  # q at p asks for p - 1
    first.W_V[0, token, :VOCAB], first.W_O[0, :VOCAB, before] = entering * words, words
    for head in (0, 1):
        second.W_Q[head, token, :VOCAB], second.W_K[head, before, :VOCAB] = 2000 * words, words
        second.W_Q[head, token, VOCAB], second.W_K[head, 0, VOCAB] = 1000, 1  # nothing matches: the start token
    second.W_V[0, token, :VOCAB], second.W_O[0, :VOCAB, out] = between * words, words
    second.W_V[1, 1:VOCAB, 0], second.W_O[1, 0, constant] = between, -large
    return model


def test_given_rows_without_their_repeats() -> None:
    rows = Repeats(repeated(VOCAB, CTX, at=16, batch=4).tokens)
    new = rows.without(VOCAB, times=2)
    assert new is not None and new.shape == (8, rows.tokens.shape[1]) and not Repeats(new).seen.any()
    assert torch.equal(new[::2][~rows.seen], rows.tokens[~rows.seen]) and not torch.equal(new[::2], new[1::2])
    assert Repeats(torch.tensor([[0, 1, 2, 3, 1, 2, 3]])).without(6) is None  # 2 tokens for 3 places
