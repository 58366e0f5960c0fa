"""Which earlier heads together tell a head what came before each token.

1. What a head brings from the token before is A[q, q-1] v[q-1], a part of its z. It is replaced by its mean over the
   other sequences: in what the keys of the head in question read, or, where paths cannot be told apart, everywhere.
2. Of the earlier heads that attend most to the token before, take the one whose part hurts prefix matching most, and
   so on, until half of it is gone; then drop, one by one, those that were not needed.
3. Control: the same set, with what it brings from two tokens back.

Source: path patching (Wang et al. 2022, 2211.00593) of a part of z, and the set, are ours; "previous-token head",
Olsson et al. 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tracer.ablate.edges_and_paths import read_layer, reroute_into
from tracer.ablate.repeats import Repeats, by_row
from tracer.interventions.edits import Edit, applied, recording
from tracer.interventions.replacements import mean_of_others, pattern_tap, z_tap
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel

MOST = 8
"""Earlier heads that are tried: those that attend most to the token before."""
GONE = 0.5
"""Share of the prefix matching without which a set is found. Ours."""


@dataclass(frozen=True)
class Partners:
    """A set of earlier heads, and the prefix matching of each sequence without what they bring."""

    heads: tuple[Head, ...]
    cut: Float[np.ndarray, " batch"]
    control: Float[np.ndarray, " batch"]
    """The same without what they bring from two tokens back."""
    found: bool
    """Is half of the prefix matching gone?"""


def partners(
    model: HeadModel, rows: Repeats, head: Head, matching: Float[np.ndarray, " batch"],
    previous: Float[np.ndarray, "layer head"],
) -> Partners:  # fmt: skip
    """The earlier heads without whose news of the token before a head's prefix matching falls by half."""
    (layer, index), tap = head, pattern_tap(head[0])
    earlier = [(at, one) for at in range(layer) for one in range(model.n_heads) if previous[at, one] > 0]
    candidates = sorted(earlier, key=lambda one: -previous[one])[:MOST]
    with recording("hook_pattern", "hook_v", "hook_z") as seen:
        model(rows.tokens)
    changed = {back: {z_tap(at): _without(seen, at, back) for at in range(layer)} for back in (1, 2)}

    clean = read_layer(model, rows.tokens, layer) if not model.why_no_stream else None

    def without(heads: list[Head], back: int = 1) -> Float[np.ndarray, " batch"]:
        if clean is None:
            edits = [Edit(z_tap(at), (one,), instead=changed[back][z_tap(at)]) for at, one in heads]
        else:
            edits = reroute_into(model, head, {"k": heads} if heads else {}, *clean, changed[back].__getitem__)
        with applied(edits), recording(tap) as found:
            model(rows.tokens)
        return by_row((found[tap][:, index] * rows.matches).sum(-1), rows.seen)

    enough, chosen, cut = (1 - GONE) * matching.mean(), [], matching
    while cut.mean() > enough and len(chosen) < len(candidates):
        tried = {one: without([*chosen, one]) for one in candidates if one not in chosen}
        best = _most_missed(tried)
        chosen, cut = [*chosen, best], tried[best]
    while cut.mean() <= enough and len(chosen) > 1:
        tried = {one: without([other for other in chosen if other != one]) for one in chosen}
        best = _most_missed(tried)
        if tried[best].mean() > enough:
            break
        chosen, cut = [one for one in chosen if one != best], tried[best]
    return Partners(tuple(chosen), cut, without(chosen, back=2), bool(cut.mean() <= enough))


def _most_missed(tried: dict[Head, np.ndarray]) -> Head:
    return min((float(cut.mean()), one) for one, cut in tried.items())[1]


def _without(seen: dict[str, Tensor], layer: int, back: int) -> Float[Tensor, "batch pos head d_head"]:
    """Every head's z of a layer, with what it brings from `back` tokens before at its mean over the other sequences."""
    pattern, v, z = (seen[f"blocks.{layer}.attn.hook_{name}"] for name in ("pattern", "v", "z"))
    v = v.repeat_interleave(z.shape[2] // v.shape[2], 2)
    part = torch.zeros_like(z)
    part[:, back:] = pattern.diagonal(-back, 2, 3).transpose(1, 2)[..., None] * v[:, :-back]
    return z - part + mean_of_others(part.sum(0), len(part), part, torch.arange(len(part), device=z.device))
