"""One score of one head, as a record has it, alone and with its gradient."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tracer.heads import pattern
from tracer.heads.definitions import ROWS, of_rows
from tracer.heads.explicit import ALL_KEYS
from tracer.interventions.edits import recording
from tracer.interventions.replacements import pattern_tap
from tracer.measures import CONTROLS, REPEAT_MEASURES
from tracer.measures.aliases import Head
from tracer.model import QK_TAPS, Transformer
from tracer.model.layers import shares, with_sink
from tracer.training.probe_recorder import ProbeRecorder

WITHOUT = {control: score for score, control in CONTROLS.items()}
SCORES = (*ROWS, *WITHOUT)
"""Those that are means over rows; the largest logit is none."""


class HeadScore:
    """`recorder.measure(model)[measure][layer, head]`, at the cost of a forward pass up to that head.

    Memory: the head's own patterns on the probe, [row 1 query_pos key_pos], and what the layers below keep for the
    gradient.
    """

    def __init__(self, recorder: ProbeRecorder, head: Head, measure: str) -> None:
        if measure not in SCORES:
            raise ValueError(f"{measure!r} is no mean over rows, which has a gradient: {', '.join(SCORES)}")
        if measure == "entropy_normalised" and recorder.config.looks_nowhere:
            raise ValueError("entropy_normalised counts a sink's key, too, and has no gradient here: ask of 'entropy'")
        self.layer, self.head, self.name = *head, WITHOUT.get(measure, measure)
        n = len(recorder.repeat_tokens)
        if measure in (*REPEAT_MEASURES, *WITHOUT):
            part = slice(n, None) if measure in WITHOUT else slice(n)
            self.tokens, self.keys, self.rows = (
                recorder.both[part], recorder.both_repeat[part], recorder.repeat.second_copy,
            )  # fmt: skip
        else:
            self.tokens = self.keys = recorder.val[:, :-1]
            self.rows = slice(1, None)

    @torch.no_grad()
    def read(self, model: Transformer) -> float:
        """The score."""
        return float(self._mean(self._pattern(model)))

    def gradient(self, model: Transformer) -> tuple[float, dict[str, Tensor]]:
        """The score and its gradient by every weight, 0 for those that it does not hang on."""
        params: dict[str, Any] = {name: p for name, p in model.named_parameters() if p.requires_grad}
        with torch.enable_grad():
            weights = self._pattern(model)
            held = weights.detach().requires_grad_(True)
            score = self._mean(held)
            (by_weight,) = torch.autograd.grad(score, held)
            # where a key is hidden, or a row has no value, a measure's slope may be anything, and weighs nothing
            by_weight = by_weight.nan_to_num(0, 0, 0)
            found = torch.autograd.grad(weights, list(params.values()), by_weight, allow_unused=True)
        return float(score.detach()), {
            name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(params.items(), found, strict=True)
        }

    def _pattern(self, model: Transformer) -> Float[Tensor, "batch 1 query_pos key_pos"]:
        training, layer, here = model.training, self.layer, slice(self.head, self.head + 1)
        model.eval()
        held = pattern_tap(layer) if self.head in model.held(layer) else None
        with recording(*QK_TAPS, *([held] if held else [])) as seen:
            x, attn_pos = model.start(self.tokens)
            for block in model.blocks[:layer]:
                x = block(x, attn_pos, self.tokens)
            last = model.blocks[layer]
            last.attn.heads(last.attn_in(x), attn_pos, self.tokens)
        model.train(training)
        if held:
            found = seen[held][:, here]
            found = shares(found)[0] if model.config.attention == "sigmoid" else found
            return with_sink(found) if model.config.looks_nowhere and self.name in ALL_KEYS else found
        q, k = (seen[name] for name in model.qk_taps(layer))
        mask = model.visible(layer, q)
        mask = mask if mask is None or mask.shape[1] == 1 else mask[:, here]
        return pattern(q[:, :, here], k[:, :, here], scale=model.config.scale, mask=mask)

    def _mean(self, weights: Float[Tensor, "batch 1 query_pos key_pos"]) -> Float[Tensor, ""]:
        by_row = of_rows(self.name, weights, self.keys).masked_fill(weights.sum(-1) == 0, float("nan"))
        return by_row[..., self.rows].nanmean()
