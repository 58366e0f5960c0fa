"""One prompt, every head: the measures, and the exact patterns or small pictures of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.data.probes import per_token_loss
from tracer.heads import HeadStats, crop, head_means, pools, thumbnail, weighting
from tracer.heads.call import AttentionCall, merged
from tracer.interventions.edits import recording, visiting
from tracer.measures.aliases import Head
from tracer.measures.gradients import fetch
from tracer.model.protocol import HeadModel
from tracer.pictures.prompt_patterns import Pool, PromptPatterns

if TYPE_CHECKING:
    from tracer.model import Transformer

THUMBNAIL = 96
"""Cells a side of a head's picture among all others."""


@dataclass(frozen=True)
class PromptAttention:
    """What every head does on one prompt, whatever its length; patterns are computed when they are asked for."""

    measures: dict[str, Float[np.ndarray, "layer head"]]
    """Means over the prompt's rows q >= 1, as in the trace, but on this prompt: induction and duplicate_token count
    rows without an earlier copy as 0, so they are only high where the prompt repeats itself."""
    thumbs: Float[np.ndarray, "layer head rows cols"]
    """The largest attention of each block of queries and keys; nan where a layer has fewer heads than others."""
    logits: Float[np.ndarray, "pos d_vocab"]
    calls: tuple[AttentionCall, ...]
    """Every layer's q and k, which all other pictures are made of."""
    lse: tuple[Float[Tensor, "head pos"], ...]

    @property
    def n(self) -> int:
        """Tokens of the prompt."""
        return self.calls[0].shape[1]

    @property
    def causal(self) -> list[bool]:
        """By layer."""
        return [call.causal for call in self.calls]

    def window(self, layer: int, head: int, rows: slice, cols: slice) -> Float[np.ndarray, "query_pos key_pos"]:
        """Exact attention from query rows to keys: 2 * rows * cols * d_head FLOPs, however long the prompt."""
        call = self.calls[layer]
        if call.weights is not None:
            return call.weights[0, head, rows, : call.positions][:, cols].cpu().numpy()
        q, k, mask = _one_head(call, head)
        lse = self.lse[layer][head]
        return crop(q, k, lse, rows, cols, scale=call.scale, causal=call.causal, mask=mask).cpu().numpy()

    def pattern(self, layer: int, head: int) -> Float[np.ndarray, "query_pos key_pos"]:
        """All of one head's pattern."""
        return self.window(layer, head, slice(None), slice(None))

    def overview(self, layer: int, head: int, size: int, pool: Pool = "max") -> Float[np.ndarray, "rows cols"]:
        """One head's pattern as a picture of at most size x size cells, each the largest or the mean of its block."""
        call = self.calls[layer]
        if call.weights is not None:
            return _pooled(call.weights[0, head, :, : call.positions], size, pool).cpu().numpy()
        q, k, mask = _one_head(call, head)
        lse = self.lse[layer][head]
        return thumbnail(q, k, lse, size, pool, scale=call.scale, causal=call.causal, mask=mask).cpu().numpy()

    def patterns(
        self, strings: list[str], names: list[str], key: tuple[object, ...] = (), step: int = 0,
        off: tuple[Head, ...] = (),
    ) -> PromptPatterns:  # fmt: skip
        """As pictures read it: with the query tokens, the paths of layers (none of ours), and what it is of. A key that
        is no position (a sink) is in no picture: its rows sum to less than 1."""
        sizes = [(call.shape[1], call.positions) for call in self.calls]
        return PromptPatterns(
            key, step, strings, self.causal, sizes, names, self.thumbs, self.window, self.overview, off
        )


def _pooled(weights: Float[Tensor, "query_pos key_pos"], size: int, pool: Pool) -> Float[Tensor, "rows cols"]:
    """A pattern that exists already, made small."""
    if pool == "max":
        return pools.thumbs(weights, size)
    rows, cols = (pools.factor(n, size) for n in weights.shape)
    of_cell = [pools.sizes(n, cell, weights) for n, cell in zip(weights.shape, (rows, cols), strict=True)]
    return pools.sum_pool(weights, rows, cols) / torch.outer(*of_cell)


def _one_head(call: AttentionCall, head: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """q, k and mask [query_pos|1 key_pos] of a head in the first sequence."""
    one = call.head(head)
    assert one.q is not None and one.k is not None
    mask = None if one.mask is None else one.mask[0, 0, :, : one.positions]
    return one.q[0, :, 0], one.k[0, : one.positions, 0], mask


@torch.no_grad()
def look(model: HeadModel, tokens: Int[Tensor, "1 pos"], *, thumbs: int = THUMBNAIL) -> PromptAttention:
    """Run the model once and keep what every picture of its heads is made of.

    Memory: q and k of every layer (2 * pos * d_model floats a layer) and one block of scores; no pattern is stored.
    The heads' outputs come from the same pass as the statistics, so logits equal the model's own to float32 rounding.
    """
    calls: dict[int, list[AttentionCall]] = {}
    found: dict[int, list[HeadStats]] = {}

    def visit(call: AttentionCall) -> Tensor | None:
        seen = call.stats(tokens, z=True, thumbs=thumbs)
        calls.setdefault(call.layer, []).append(call.first(1, values=False))
        found.setdefault(call.layer, []).append(seen)
        return seen.z

    with visiting(visit):
        logits = model(tokens)
    layers = [parts for _, parts in sorted(found.items())]
    means = [[head_means(seen) for seen in parts] for parts in layers]
    measures = {name: stacked([[mean[name] for mean in of_layer] for of_layer in means], model) for name in means[0][0]}
    pictures = stacked([[seen.thumbs[0] for seen in parts if seen.thumbs is not None] for parts in layers], model)
    arrays = fetch({**measures, "thumbs": pictures, "logits": logits[0]})
    return PromptAttention(
        {name: arrays[name] for name in measures}, arrays["thumbs"], arrays["logits"],
        tuple(merged(parts) for _, parts in sorted(calls.items())),
        tuple(torch.cat([seen.lse[0] for seen in parts]) for parts in layers),
    )  # fmt: skip


def stacked(layers: list[list[Tensor]], model: HeadModel) -> Float[Tensor, "layer head *rest"]:
    """The heads of each layer, whichever calls computed them, nan where a layer has fewer heads than others."""
    whole = [torch.cat(parts) for parts in layers]
    full = whole[0].new_full((len(whole), model.n_heads, *whole[0].shape[1:]), float("nan"))
    for row, part in zip(full, whole, strict=True):
        row[: len(part)] = part
    return full


@torch.no_grad()
def induction(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], rows: slice, repeats: Int[Tensor, "batch pos"] | None = None
) -> Float[Tensor, "layer head"]:
    """The induction score of every head over some query rows (Probe R's second copy), under the edits in force.

    Source: Olsson et al. 2022, as `tracer.heads.head_means`; it reads q and k, so patterns that an edit holds do not
    show. `repeats`: of these tokens the keys are taken, while the model reads `tokens`, Probe R's control.
    """
    found = torch.full((model.n_layers, model.n_heads), float("nan"), device=tokens.device)

    def visit(call: AttentionCall) -> None:
        score = head_means(call.stats(tokens if repeats is None else repeats), rows)["induction"]
        found[call.layer, call.heads] = score

    with visiting(visit):
        model(tokens)
    return found


@torch.no_grad()
def next_token(model: HeadModel, tokens: Int[Tensor, "1 pos"], position: int) -> Float[Tensor, " d_vocab"]:
    """The model's probabilities of the token after `position`, under the edits in force."""
    return model(tokens)[0, position].softmax(-1)


@dataclass(frozen=True)
class Said:
    """What a causal model says on a prompt."""

    following: Float[np.ndarray, " d_vocab"]
    """The probability of each token after the last."""
    loss: float
    """Nats a token, the mean of all but the first; nan of one token."""


def foretold(logits: Float[Tensor, "pos d_vocab"], tokens: Int[Tensor, "1 pos"]) -> Said:
    """Of a pass that was made: what comes next, and the loss of what came."""
    loss = per_token_loss(logits[None], tokens).mean()
    return Said(logits[-1].softmax(-1).numpy(), float(loss))


def foretold_by(found: PromptAttention, tokens: Int[Tensor, "1 pos"], d_vocab: int | None) -> Said | None:
    """Of a look; None where the model foretells no tokens."""
    logits = torch.from_numpy(found.logits)
    return foretold(logits, tokens.cpu()) if all(found.causal) and logits.shape == (found.n, d_vocab) else None


@torch.no_grad()
def read_norms(model: Transformer, tokens: Int[Tensor, "1 pos"]) -> Float[np.ndarray, "layer head key_pos"]:
    """||v_k W_O|| of every head on a prompt: how long what it reads there is (`tracer.heads.weighting`)."""
    with recording("hook_v") as seen:
        model(tokens)
    values = [seen[f"blocks.{layer}.attn.hook_v"][0] for layer in range(model.n_layers)]
    norms = [weighting.read_norms(v, block.attn.W_O) for v, block in zip(values, model.blocks, strict=True)]
    return torch.stack(norms).cpu().numpy()
