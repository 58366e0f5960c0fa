"""The induction score of a head in the field's conventions: one pattern, four numbers.

All are read on rows that hold a start token and a block of L tokens twice (T = 2 L + 1 positions), where an induction
head looks from position q of the second copy at position q - L + 1, the token after the earlier copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.heads import definitions
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import visiting
from tracer.model.protocol import HeadModel

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Convention:
    """How one of the four is counted."""

    counts: str
    best: str
    """What an ideal head gets: all of its weight on the token after the earlier copy wherever there is one, and on
    the start token elsewhere."""
    source: str


CONVENTIONS = {
    "ours": Convention(
        "mean weight on the token after the earlier copy, over the rows of the second copy",
        "1", "Olsson et al. 2022, Methods, prefix matching, as mass per row",
    ),
    "detect_head_mul": Convention(
        "share of the weight of all rows that lies after an earlier copy: rows of the first copy, which have none, "
        "count as 0", "L / (2 L + 1)", 'transformer-lens 4.3, detect_head(..., "induction_head", error_measure="mul")',
    ),
    "detect_head_abs": Convention(
        "1 minus the mean absolute difference between a row and the row of an ideal head, which has no weight at all "
        "in rows without an earlier copy: weight that rests there is counted against the head",
        "L / (2 L + 1)", 'transformer-lens 4.3, detect_head(..., "induction_head", error_measure="abs")',
    ),
    "arena_diagonal": Convention(
        "mean of the diagonal L - 1 back, two of whose L + 2 rows are in the first copy", "L / (L + 2), and a little "
        "more for weight on the start token", "ARENA 1.2, induction_attn_detector",
    ),
}  # fmt: skip


def conventions_of(
    pattern: Float[Tensor, "batch head pos pos"], tokens: Int[Tensor, "batch pos"]
) -> dict[str, Float[Tensor, "batch head"]]:
    """The four scores of patterns on rows of a start token and a block of tokens, twice."""
    length = _block(tokens)
    n = tokens.shape[1]
    wanted = torch.nn.functional.pad(definitions.earlier_copies(tokens), (1, 0))[:, None, :, :-1]
    mass = (pattern * wanted).sum(-1)
    return {
        "ours": mass[..., length + 1 :].mean(-1),
        "detect_head_mul": mass.sum(-1) / pattern.sum((-2, -1)),
        "detect_head_abs": 1 - (pattern - wanted.to(pattern.dtype)).abs().sum((-2, -1)) / n,
        "arena_diagonal": pattern.diagonal(1 - length, -2, -1).mean(-1),
    }


def induction_conventions(model: HeadModel, tokens: Int[Tensor, "batch pos"]) -> xr.Dataset:
    """Every head's induction score as we count it, as transformer-lens does (twice), and as ARENA does.

    On [layer, head], means over the rows of `tokens`, each a start token and a block of at least 2 tokens, twice; nan
    where a layer has fewer heads than others. `attrs` of each hold definition, best value and source (`CONVENTIONS`).
    Patterns are made one layer at a time. ValueError for rows that are not repeated.
    """
    import xarray as xr

    _block(tokens)
    shape = (model.n_layers, model.n_heads)
    found = {name: torch.full(shape, float("nan"), dtype=torch.float64) for name in CONVENTIONS}

    def see(call: AttentionCall) -> None:
        for name, scores in conventions_of(call.pattern()[..., : tokens.shape[1]], tokens.to(call.v.device)).items():
            found[name][call.layer, call.heads] = scores.double().mean(0).cpu()

    with torch.no_grad(), visiting(see):
        model(tokens)
    return xr.Dataset(
        {
            name: (("layer", "head"), found[name].numpy(), {"long_name": name} | vars(one))
            for name, one in CONVENTIONS.items()
        },
        coords={"layer": range(shape[0]), "head": range(shape[1])},
    )


def _block(tokens: Tensor) -> int:
    """L, of rows that hold a start token and a block of L tokens twice."""
    length = (tokens.shape[1] - 1) // 2
    if length < 2 or tokens.shape[1] != 2 * length + 1 or not tokens[:, 1 : length + 1].equal(tokens[:, length + 1 :]):
        raise ValueError(
            f"tokens of shape {list(tokens.shape)} are not rows of a start token and a block of at least 2 tokens, "
            f"twice: ARENA's diagonal has a meaning on such rows only"
        )
    return length
