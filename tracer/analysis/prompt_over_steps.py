"""One prompt at every snapshot: a small picture of each head's pattern, step after step, while the model learns.

1. One model, which nobody else ever holds, takes the weights of one snapshot after the other, so no thread can meet
   another in it. All weights stacked and run at once (`torch.func.vmap`) saved 20 of 170 ms on the demo, but were not
   equal to the last bit, and need the memory of every snapshot.
2. Each forward pass shows its attention to a visitor, which keeps the largest weight of each block: the whole pattern
   where a picture has as many cells as the prompt has tokens.

Cost a snapshot: 2 * n_params * tokens FLOPs and reading its weights; nothing is kept but the picture and what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.planner import zeroed
from tracer.analysis.prompt_attention import Said, foretold, stacked
from tracer.heads.call import AttentionCall
from tracer.interventions import clamps
from tracer.interventions.edits import visiting
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel
from tracer.store import BrokenSnapshot, Run
from tracer.store.layout import snapshot_path
from tracer.store.snapshots import load_tensors

Frame = Float[np.ndarray, "layer head rows cols"]


class Shot(NamedTuple):
    """A prompt at one snapshot."""

    thumbs: Frame
    """Every head's pattern, small: those of `tracer.analysis.prompt_attention.look`, nan where a layer has fewer heads
    than others."""
    said: Said | None
    """What the model says in the same pass; None where it gives no logits of tokens."""


def film(
    run: Run, tokens: Int[Tensor, "1 pos"], steps: Iterable[int], *, size: int, off: tuple[Head, ...] = ()
) -> Iterator[tuple[int, Shot]]:
    """Each step with the picture of every head, at most size x size cells; a damaged snapshot is left out.

    `off`: heads that write nothing meanwhile.
    """
    for step, model in models(run, steps):
        with zeroed(model, tokens, off):
            taken = shot(model, tokens, size, run.about.d_vocab)
        yield step, taken


@torch.no_grad()
def shot(model: HeadModel, tokens: Int[Tensor, "1 pos"], size: int, d_vocab: int | None = None) -> Shot:
    """One forward pass; `d_vocab`: tokens that the model's logits are of."""
    found: dict[int, list[Tensor]] = {}

    def visit(call: AttentionCall) -> Tensor | None:
        seen = call.stats(z=True, thumbs=size)
        assert seen.thumbs is not None
        found.setdefault(call.layer, []).append(seen.thumbs[0])
        return seen.z

    with visiting(visit):
        logits = model(tokens)
    thumbs = stacked([parts for _, parts in sorted(found.items())], model).cpu().numpy()
    says_tokens = d_vocab is not None and logits.shape == (*tokens.shape, d_vocab)
    return Shot(thumbs, foretold(logits[0].float().cpu(), tokens.cpu()) if says_tokens else None)


def models(run: Run, steps: Iterable[int]) -> Iterator[tuple[int, HeadModel]]:
    """The model at each step. Of our own runs it is one object that takes the next weights: use one, then ask on."""
    from tracer.model import Transformer

    model: HeadModel | None = None
    for step in steps:
        try:
            if isinstance(model, Transformer):
                model.load_state_dict(load_tensors(snapshot_path(run.dir, step)), assign=True)
                model.clamps = clamps.edits(run.config, step) if run.can("recipe") else ()
            else:
                model = run.model(step)
        except BrokenSnapshot:
            continue
        yield step, model
