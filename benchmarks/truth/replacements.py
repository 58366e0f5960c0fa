"""Attacks on what stands in for a head on repeated tokens: a head that says that tokens repeat, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from benchmarks.truth.attack import Attack
from tracer.ablate import MODES, effect, verdict
from tracer.config import ModelConfig
from tracer.data.probes import PROBE_SEED, repeated
from tracer.model import Transformer

VOCAB, CTX, SURE, COST = 65, 64, 12.0, 3.30


def attacks() -> Iterator[Attack]:
    model = _denier()
    probe = repeated(VOCAB, CTX)
    found: dict[str, float] = {mode: one.mean for mode, one in verdict(model, 1, 1).effects.items()}
    repeating = repeated(VOCAB, CTX, batch=256, seed=PROBE_SEED + 1).tokens
    before: dict[str, float] = {
        mode: effect(model, probe.tokens, [(1, 1)], mode, reference=repeating if mode == "mean" else None)
        .over(probe.predictable).mean
        for mode in MODES
    }  # fmt: skip
    yield Attack(
        "Zero, mean and resample on repeated tokens switch off a head that only signals a repeat",
        "Ablate, the card; tracer.ablate.verdict",
        "a model by hand: the start token is the likeliest next one until L1H1, where its token was there before, "
        f"takes its logit back; the loss without that is {COST} nats higher by arithmetic",
        f"{_listed(found)} nats; with replacements from rows that repeat, too, as it was: {_listed(before)}",
        all(abs(one - COST) < 0.01 for one in found.values()),
    )  # fmt: skip


def _listed(found: dict[str, float]) -> str:
    return ", ".join(f"{mode} {one:.2f}" for mode, one in found.items())


def _denier() -> Transformer:
    """L0H0 writes the token before; L1H0 copies what followed the same token; L1H1 denies the start token there."""
    token, place, before, out = (slice(a, b) for a, b in ((0, 65), (65, 129), (129, 194), (194, 259)))
    config = ModelConfig(
        n_layers=2, n_heads=2, d_model=260, d_head=VOCAB + 1, n_ctx=CTX, d_vocab=VOCAB, norm="none", attn_scale="none"
    )
    model = Transformer(config).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    wrong = math.log(
        (math.exp(COST) - 1) * (math.exp(SURE) + VOCAB - 1) + 1
    )  # of the start token's logit, 1 being known
    words, places = torch.eye(VOCAB).double(), torch.eye(CTX).double()
    model.embed.W_E[:, token], model.pos_embed.W_pos[:, place] = words, places
    model.pos_embed.W_pos[:, out.start] = wrong
    model.W_U[out] = words
    first, second = (block.attn for block in model.blocks)
    assert first.W_O is not None and second.W_O is not None
    first.W_Q[0, place, :CTX], first.W_K[0, place, :CTX] = 400 * places.roll(-1, 1), places
    first.W_V[0, token, :VOCAB], first.W_O[0, :VOCAB, before] = words, words
    for head in (0, 1):
        second.W_Q[head, token, :VOCAB], second.W_K[head, before, :VOCAB] = 400 * words, words
        second.W_Q[head, token, VOCAB], second.W_K[head, 0, VOCAB] = 200, 1
    second.W_V[0, token, :VOCAB], second.W_O[0, :VOCAB, out] = words, SURE * words
    second.W_V[1, 1:VOCAB, 0], second.W_O[1, 0, out.start] = 1, -wrong
    return model
