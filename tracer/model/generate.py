"""Text from a model: the next token again and again."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from tracer.model import Transformer


@torch.no_grad()
def generate(
    model: Transformer, tokens: Int[Tensor, "batch pos"], n_new: int, temperatures: list[float], seed: int = 0
) -> Int[Tensor, "batch pos_new"]:
    """Continue each row by `n_new` tokens at its own temperature (0: the most likely token); the context slides.

    FloatingPointError when the model's logits are not finite: then no token can be drawn.
    """
    if len(temperatures) != len(tokens):
        raise ValueError(f"{len(temperatures)} temperatures for {len(tokens)} rows: give one for each")
    generator, given = torch.Generator().manual_seed(seed), tokens.shape[1]
    training = model.training
    model.eval()
    for _ in range(n_new):
        logits = model(tokens[:, -model.config.n_ctx :])[:, -1].float().cpu()
        if not logits.isfinite().all():
            model.train(training)
            raise FloatingPointError("the logits are not finite")
        picks = [
            row.argmax() if t == 0 else torch.multinomial((row / t).softmax(-1), 1, generator=generator)[0]
            for row, t in zip(logits, temperatures, strict=True)
        ]
        tokens = torch.cat([tokens, torch.stack(picks)[:, None].to(tokens.device)], 1)
    model.train(training)
    return tokens[:, given:]
