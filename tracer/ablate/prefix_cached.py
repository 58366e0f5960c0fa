"""A clean run, and every set of heads' way from there to the end.

1. The clean pass keeps what enters each block, the heads' z and what they write.
2. A set of heads begins at its first layer: a replacement z' changes what is written there by (z' - z) W_O, gated where
   there is a gate. From there on every block runs for all sets together; sets that begin alike are one state until they
   part.
3. Only the positions that are read go through the last block's MLP.
4. Replacements come from clean runs, too: of a reference batch, whose sum, or the rows that are drawn, are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from tracer.interventions.edits import recording
from tracer.interventions.own_clamps import Beside
from tracer.interventions.replacements import Mode, another, mean_of_others, pattern_tap
from tracer.measures.aliases import Head
from tracer.model import Transformer

States = Float[Tensor, "state batch pos d_model"]
Replacement = Callable[[int, int, int, Tensor], Tensor]
"""What stands for the z of a layer's head in a draw, beside the clean one; it broadcasts to [batch pos d_head]."""
Sources = Callable[[slice], Replacement]
"""From some sequences of the input to their replacements."""


class Variant(NamedTuple):
    """A set of heads, sorted, and the draw of their replacements."""

    heads: tuple[Head, ...]
    draw: int = 0

    def until(self, layer: int) -> Variant:
        """What of it is off when this layer ends."""
        return Variant(tuple(head for head in self.heads if head[0] <= layer), self.draw)

    def at(self, layer: int) -> list[tuple[int, int]]:
        """The heads that this layer loses, with the draw."""
        return [(head, self.draw) for where, head in self.heads if where == layer]


class Kept(NamedTuple):
    """One block of the clean run."""

    x: Float[Tensor, "batch pos d_model"]
    """What enters it."""
    z: Float[Tensor, "batch pos head d_head"]
    attn_out: Float[Tensor, "batch pos d_model"]


def clean_run(
    model: Transformer, tokens: Int[Tensor, "batch pos"]
) -> tuple[list[Kept], Float[Tensor, "batch pos d_model"]]:
    """Every block of a pass with nothing off, and what leaves the last."""
    (x, attn_pos), kept = model.start(tokens), []
    for block in model.blocks:
        z = block.attn.heads(block.attn_in(x), attn_pos, tokens)
        kept.append(Kept(x, z, block.write(x, z)))
        x = block.finish(x, kept[-1].attn_out)
    return kept, x


class PrefixCachedForward:
    """What leaves the last block at the positions `where`, for any sets of heads on the same sequences."""

    def __init__(
        self, model: Transformer, tokens: Int[Tensor, "batch pos"], where: Int[Tensor, "batch read"],
        replacement: Replacement, frozen: bool,
    ) -> None:  # fmt: skip
        self.model, self.where, self.replacement, self.frozen = model, where, replacement, frozen
        self.tokens = tokens
        self.kept, self.final = clean_run(model, tokens)
        self.attn_pos = model.start(tokens[:1])[1]
        self.rows = torch.arange(len(tokens), device=tokens.device)[:, None]
        everywhere = torch.arange(tokens.shape[1], device=tokens.device)
        self.reads_all = where.shape == tokens.shape and bool((where == everywhere).all())

    def clean(self) -> Float[Tensor, "1 batch read d_model"]:
        return self._read(self.final[None])

    def run(self, variants: Sequence[Variant]) -> Float[Tensor, "variant batch read d_model"]:
        """The stream after the last block with each set off; no set may be empty, nor be there twice."""
        x: Tensor | None = None
        states: list[Variant] = []
        for layer in range(min(variant.heads[0][0] for variant in variants), self.model.n_layers):
            after = distinct(variant.until(layer) for variant in variants)
            after = [state for state in after if state.heads]
            known = {state: row for row, state in enumerate(states)}
            grown = [state for state in after if state.until(layer - 1) in known]
            born = [state for state in after if not state.until(layer - 1).heads]
            parts = []
            if x is not None:
                parts.append(self._grow(layer, x, [known[state.until(layer - 1)] for state in grown], grown))
            if born:
                parts.append(self._bear(layer, born))
            streams, outs = (torch.cat(part) if len(parts) > 1 else part[0] for part in zip(*parts, strict=True))
            x = (
                self.model.blocks[layer]
                .finish(streams.flatten(0, 1), outs.flatten(0, 1))
                .unflatten(0, streams.shape[:2])
            )
            states = grown + born
        assert x is not None
        row = {state: i for i, state in enumerate(states)}
        order = [row[variant] for variant in variants]
        return x if order == list(range(len(order))) else x[order]

    def _grow(self, layer: int, x: States, parents: list[int], states: list[Variant]) -> tuple[Tensor, Tensor]:
        """The stream that enters and what the heads write, where something was off before this layer."""
        z = self._z(layer, x)
        if parents != list(range(len(x))):
            x, z = x[parents], z[parents]
        return self._write(layer, x, z, states)

    def _write(self, layer: int, x: States, z: Tensor, states: list[Variant]) -> tuple[Tensor, Tensor]:
        """z, which is lost, with the heads replaced that each state loses here; then W_O of all of them."""
        gone: dict[tuple[int, int], list[int]] = {}
        for row, state in enumerate(states):
            for member in state.at(layer):
                gone.setdefault(member, []).append(row)
        for (head, draw), rows in gone.items():
            z[rows, :, :, head] = self.replacement(layer, head, draw, self.kept[layer].z[:, :, head])
        if layer == self.model.n_layers - 1:
            x, z = self._read(x), self._read(z)
        return x, self.model.blocks[layer].write(x.flatten(0, 1), z.flatten(0, 1)).unflatten(0, z.shape[:2])

    def _bear(self, layer: int, states: list[Variant]) -> tuple[Tensor, Tensor]:
        """The same where this layer is the first to lose heads: from the clean run."""
        block, clean = self.model.blocks[layer], self.kept[layer]
        x, out = clean.x[None], clean.attn_out[None]
        if not self.model.config.residual:  # what is left may be nothing, which a difference would miss by its rounding
            n = (len(states), -1, -1, -1)
            return self._write(layer, x.expand(n), clean.z.expand(*n, -1).clone(), states)
        members = distinct(member for state in states for member in state.at(layer))
        parts = [(clean.z[:, :, head], head, draw) for head, draw in members]
        change = torch.stack([self.replacement(layer, head, draw, z) - z for z, head, draw in parts])
        if layer == self.model.n_layers - 1:
            x, out, change = self._read(x), self._read(out), self._read(change)
        if (gate := block.gate(x[0])) is not None:
            of_members = gate[:, :, [head for head, _ in members]]
            change = change * rearrange(of_members, "batch pos member d -> member batch pos d")
        W_O = block.attn.W_O
        if W_O is None:  # a head writes its own columns
            W_O = torch.eye(out.shape[-1], dtype=out.dtype, device=out.device).unflatten(0, clean.z.shape[2:])
        W_O = W_O[[head for head, _ in members]]
        written = einsum(change, W_O, "member batch pos d, member d d_model -> member batch pos d_model")
        if [state.at(layer) for state in states] != [[member] for member in members]:
            part = torch.tensor([[member in state.at(layer) for member in members] for state in states])
            written = einsum(part.to(written), written, "state member, member batch pos d -> state batch pos d")
        return x.expand(len(states), -1, -1, -1), written.add_(out)

    def _z(self, layer: int, x: States) -> Float[Tensor, "state batch pos head d_head"]:
        """The heads' outputs; patterns are the clean run's if they are held."""
        block, shape = self.model.blocks[layer], x.shape[:2]
        attn_in = block.attn_in(x.flatten(0, 1))
        if not self.frozen:
            tokens = self.tokens.repeat(shape[0], 1)
            return block.attn.heads(attn_in, self._positions(len(attn_in)), tokens).unflatten(0, shape)
        with recording(tap := pattern_tap(layer)) as seen:
            block.attn.heads(block.attn_in(self.kept[layer].x), self._positions(shape[1]), self.tokens)
        v = einsum(attn_in, block.attn.W_V, "batch pos d_model, head d_model d_head -> batch pos head d_head")
        held = "batch head query_pos key_pos, state batch key_pos head d -> state batch query_pos head d"
        z = einsum(seen[tap], v.unflatten(0, shape), held)
        beside = None
        if block.attn.hook_z.own:
            beside = Beside(self.tokens.repeat(shape[0], 1), v, seen[tap].repeat(shape[0], 1, 1, 1))
        return block.attn.hook_z(z.flatten(0, 1), beside).unflatten(0, shape)

    def _positions(self, n: int) -> Tensor | None:
        return None if self.attn_pos is None else self.attn_pos.expand(n, -1, -1)

    def _read(self, x: Float[Tensor, "state batch pos *d"]) -> Float[Tensor, "state batch read *d"]:
        return x if self.reads_all else x[:, self.rows, self.where]


def sources(
    model: Transformer, reference: Int[Tensor, "reference_batch pos"], own: Int[Tensor, " batch"], mode: Mode | str,
    draws: Sequence[int], at_once: int,
) -> Sources:  # fmt: skip
    """Replacements in a mode; the reference batch is run `at_once` sequences at a time; `own` as in `own_rows`.

    The same numbers as `planner.planner`, without ever holding the z of a whole reference batch.
    """
    if mode == "zero":
        nothing = torch.zeros((), dtype=model.embed.W_E.dtype, device=model.embed.W_E.device)
        return lambda some: lambda layer, head, draw, z: nothing
    if mode == "mean":
        total, n = _total(model, reference, at_once), len(reference)
        return lambda some: lambda layer, head, draw, z: mean_of_others(total[layer][:, head], n, z, own[some])
    if mode == "paired":
        orders = torch.arange(len(reference), device=reference.device)[None]
    else:
        orders = torch.stack([another(len(reference), own, draw) for draw in draws])

    def resampled(some: slice) -> Replacement:
        needed, place = orders[:, some].unique(return_inverse=True)  # of [draw, row]
        parts = zip(*(_clean_z(model, rows) for rows in reference[needed].split(at_once)), strict=True)
        z = [torch.cat(part) for part in parts]
        return lambda layer, head, draw, _: z[layer][:, :, head][place[draw - draws[0]]]

    return resampled


def _clean_z(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch pos head d_head"]]:
    """By layer."""
    return [kept.z for kept in clean_run(model, tokens)[0]]


def _total(
    model: Transformer, tokens: Int[Tensor, "batch pos"], at_once: int
) -> list[Float[Tensor, "pos head d_head"]]:  # fmt: skip
    """The sum over sequences by layer, each position by itself."""
    total = [z.sum(0) for z in _clean_z(model, tokens[:at_once])]
    for rows in tokens[at_once:].split(at_once):
        total = [so_far.add_(z.sum(0)) for so_far, z in zip(total, _clean_z(model, rows), strict=True)]
    return total


def distinct(items: Iterable) -> list:
    """In order of first appearance."""
    return list(dict.fromkeys(items))
