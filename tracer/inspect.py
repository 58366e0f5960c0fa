"""One prompt, every head: the exact patterns and the head measures on it."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.edits import recording
from tracer.gradients import fetch
from tracer.heads import pattern, scores, stats
from tracer.model import QK_TAPS, Transformer


@torch.no_grad()
def look(model: Transformer, tokens: Int[Tensor, "1 pos"]) -> dict[str, np.ndarray]:
    """`pattern` [layer head query_pos key_pos], `logits` [pos d_vocab], and each head measure [layer head].

    Measures are means over the prompt's rows q >= 1, as in the trace, but on this prompt: induction and duplicate_token
    count rows without an earlier copy as 0, so they are only high where the prompt repeats itself.
    """
    with recording(*QK_TAPS) as seen:
        logits = model(tokens)
    scale = model.config.scale
    patterns, measures = [], []
    for layer in range(model.config.n_layers):
        q, k = (seen[tap] for tap in model.qk_taps(layer))
        patterns.append(pattern(q, k, scale=scale)[0])
        measures.append(scores(stats(q, k, tokens, scale=scale)))
    rows = {name: torch.stack([m[name] for m in measures]) for name in measures[0]}
    return fetch({"pattern": torch.stack(patterns), "logits": logits[0], **rows})


@torch.no_grad()
def induction(model: Transformer, tokens: Int[Tensor, "batch pos"], rows: slice) -> Float[Tensor, "layer head"]:
    """The induction score of every head over some query rows (Probe R's second copy), under the edits in force.

    Source: Olsson et al. 2022, as `tracer.heads.scores`; it reads q and k, so patterns that an edit holds do not show.
    """
    with recording(*QK_TAPS) as seen:
        model(tokens)
    layers = [model.qk_taps(layer) for layer in range(model.config.n_layers)]
    per_layer = [scores(stats(seen[q], seen[k], tokens, scale=model.config.scale), rows) for q, k in layers]
    return torch.stack([measures["induction"] for measures in per_layer])


@torch.no_grad()
def next_token(model: Transformer, tokens: Int[Tensor, "1 pos"], position: int) -> Float[Tensor, " d_vocab"]:
    """The model's probabilities of the token after `position`, under the edits in force."""
    return model(tokens)[0, position].softmax(-1)
