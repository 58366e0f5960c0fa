"""From what is switched off, on some tokens, to the edits that do it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from tracer.ablate.edges_and_paths import cut, reroute
from tracer.ablate.parts import Part, Parts, check_parts
from tracer.interventions.edits import Edit, applied, exist, recording
from tracer.interventions.replacements import (
    DRAWS,
    NO_OTHER,
    Mode,
    check_mode,
    draws_of,
    own_rows,
    pattern_tap,
    plan,
    replacement,
    z_tap,
)
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel
from tracer.named_code import kind_of

AT_ONCE = 2**26
"""Logits that a pass over reference rows may hold at once: 256 MB in float32. Only z is kept of them."""


@torch.no_grad()
def reference_z(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], layers: Iterable[int] | None = None
) -> dict[str, Tensor]:
    """z of these layers (default: all) on a batch, by tap name: what mean and resample take their replacements from."""
    taps, parts = ["hook_z"] if layers is None else [z_tap(layer) for layer in layers], []
    for rows in tokens.split(max(1, AT_ONCE // (tokens.shape[1] * model.d_vocab))):
        with recording(*taps) as seen:
            model(rows)
        parts.append(dict(seen))
    return parts[0] if len(parts) == 1 else {tap: torch.cat([part[tap] for part in parts]) for tap in parts[0]}


@torch.no_grad()
def freeze(model: HeadModel, tokens: Int[Tensor, "batch pos"]) -> list[Edit]:
    """Edits that hold every pattern at what it is on these tokens with nothing ablated."""
    with recording("hook_pattern") as seen:
        model(tokens)
    return [Edit(name, instead=pattern) for name, pattern in seen.items()]


def ready(model: HeadModel, tokens: Any) -> None:
    """ValueError for what would give numbers that mean nothing."""
    refuse_other_things(model)
    if not isinstance(tokens, Tensor) or tokens.ndim != 2 or tokens.dtype != torch.int64 or not tokens.numel():
        what = f"{tokens.dtype} {list(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens must be a tensor of whole numbers (torch.int64) [batch pos], not empty, not {what}")
    if model.why_not_now:
        raise ValueError(model.why_not_now)


def refuse_other_things(model: object) -> None:
    """ValueError for what is no model whose heads can be seen."""
    if not hasattr(model, "n_heads"):
        raise ValueError(
            f"{kind_of(model)} is no model with heads: take that of a run, tracer.open_run(...).model(step), "
            f"or tracer.load_hf(...)"
        )


Plans = Callable[[Iterable[Part]], list[list[Edit]]]


def checked(
    tokens: Int[Tensor, "batch pos"], mode: Mode | str, reference: Int[Tensor, "reference_batch reference_pos"] | None,
    draws: int,
) -> Int[Tensor, "reference_batch pos"]:  # fmt: skip
    """The reference batch (default: the input itself) as long as the input, or an error that says what is wrong."""
    check_mode(mode)
    if draws < 1:
        raise ValueError(f"draws={draws}: resampling needs at least 1")
    found = (tokens if reference is None else reference)[:, : tokens.shape[1]].to(tokens.device)
    if mode == "mean" and len(found) == 1 and torch.equal(found.to(tokens), tokens):
        raise ValueError(NO_OTHER)
    if found.shape[1] < tokens.shape[1]:
        raise ValueError(
            f"the reference batch has {found.shape[1]} positions, the input {tokens.shape[1]}: give a longer one"
        )
    if mode == "paired" and (reference is None or reference.shape != tokens.shape):
        raise ValueError(
            f"mode='paired' puts row i of reference= in place of row i: the input is {list(tokens.shape)}, so must the "
            f"reference be, not {None if reference is None else list(reference.shape)}"
        )
    if mode == "resample" and len(found) == len(tokens) and bool((own_rows(tokens, found) < 0).all()):
        raise ValueError(
            f"the reference has {len(found)} rows as the input has, and none in common: if row i of it is meant for "
            f"row i (clean and corrupted prompts), say mode='paired'; to draw at random from others, give more "
            f"rows than {len(found)}"
        )
    if mode == "resample" and len(found) < len(tokens):
        raise ValueError(f"resampling {len(tokens)} rows needs as many reference sequences; there are {len(found)}")
    if mode == "resample" and len(found) < 2:
        raise ValueError("resampling needs at least 2 sequences to draw from; the reference batch has 1")
    return found


def planner(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], mode: Mode | str = "zero", *,
    positions: Iterable[int] | None = None, reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    frozen: bool = False, draws: int = DRAWS, seed: int = 0, layers: Iterable[int] | None = None,
) -> Plans:  # fmt: skip
    """From parts to the edits that switch them off on these tokens: one list, or with resample one a draw.

    What the replacements of heads need (clean z, clean patterns) is computed once, here; `positions` and `reference` as
    in `effect`. `layers`: of no other layers are parts asked for, so that z of no other is kept (default: all).
    """
    ready(model, tokens)
    tokens = inputs(model, tokens)
    source = checked(tokens, mode, reference, draws)
    seen, own = (None, None) if mode == "zero" else (reference_z(model, source, layers), own_rows(tokens, source))
    held = freeze(model, tokens) if frozen else []
    where = None if positions is None else _positions(positions, tokens.shape[1])

    def plans(parts: Iterable[Part]) -> list[list[Edit]]:
        chosen = check_parts(model, parts, tokens.shape[1])
        _check_together(chosen, where, frozen)
        if seen is not None:
            seen.update(_missing(model, source, chosen, seen))
        return [edits_of(chosen, draw) for draw in draws_of(mode, draws, seed)]

    def edits_of(chosen: Parts, draw: int) -> list[Edit]:
        def instead(tap: str) -> float | Tensor:
            return replacement(tap, mode, seen, own, draw)

        edits = [*held, *plan(chosen.heads, mode, seen, own, draw, where)]
        edits += [Edit(z_tap(a.layer), None, where, instead(z_tap(a.layer))) for a in chosen.attentions]
        edits += [Edit(mlp_tap(m.layer), None, where, instead(mlp_tap(m.layer))) for m in chosen.mlps]
        cuts = cut(chosen.edges, instead)
        edits += cuts
        if chosen.paths:  # they come first: of a pattern that changes, the mass is cut that it then has
            edits = [*reroute(model, tokens, chosen.paths, instead, where, edits), *edits]
        return edits

    return plans


def zeroed(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], heads: Collection[Head]
) -> AbstractContextManager[None]:  # fmt: skip
    """In a `with` block: passes over these tokens run with heads writing nothing, all that follows computed anew."""
    return applied(planner(model, tokens)(heads)[0] if heads else ())


def _positions(positions: Iterable[int], n_pos: int) -> tuple[int, ...]:
    chosen = tuple(sorted({int(position) for position in positions}))
    if not chosen:
        raise ValueError("the set of positions is empty: name at least one, or leave `positions` out for all")
    exist(chosen, n_pos, "position", "the input has positions")
    return chosen


def _check_together(parts: Parts, positions: tuple[int, ...] | None, frozen: bool) -> None:
    if parts.edges and positions is not None:
        raise ValueError("an edge says itself from which position: leave `positions` out")
    if frozen and any(path.into != "v" for path in parts.paths):
        raise ValueError("with frozen patterns queries and keys change nothing: only paths into values can be cut")


def _missing(
    model: HeadModel, source: Int[Tensor, "batch pos"], parts: Parts, seen: dict[str, Tensor]
) -> dict[str, Tensor]:
    """What the replacements of MLPs and edges are taken from, where it was not seen yet."""
    taps = {mlp_tap(mlp.layer) for mlp in parts.mlps} | {pattern_tap(edge.layer) for edge in parts.edges}
    if not taps - set(seen):
        return {}
    with torch.no_grad(), recording(*taps - set(seen)) as found:
        model(source)
    return found


def mlp_tap(layer: int) -> str:
    return f"blocks.{layer}.hook_mlp_out"


def inputs(model: HeadModel, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch input_pos"]:
    """What the model reads of rows that may be one longer than its context: there the last token is only a target."""
    return tokens[:, :-1] if tokens.shape[1] == model.n_ctx + 1 else tokens


@torch.no_grad()
def averaged(plans: list[list[Edit]], compute: Callable[[], Tensor]) -> Tensor:
    """The mean of what `compute` returns with each list of edits in force."""
    results = []
    for edits in plans:
        with applied(edits):
            results.append(compute())
    return torch.stack(results).mean(0)
