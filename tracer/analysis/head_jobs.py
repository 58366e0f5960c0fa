"""The separate jobs of one head: its outputs over a corpus, grouped by direction, and what each group is worth.

1. Take a survey's uniform sample of looks, and run the model once more over their rows: z W_O at every query.
2. Principal components of their directions, each weighted by its norm: where a head writes little it does little.
3. k-means on them (scikit-learn), weighted alike, for 2 to `most` groups; the number whose silhouette is best, of
   those whose groups are all apart (4), which takes some 20 looks each; one group where none is.
4. k-means cuts anything into groups, and silhouettes call them clear: 0.6 for a line, 0.5 for a circle. The null is one
   group: half way from one middle to another there is then at least about as much as at the sparser of the two (of a
   circle 0.7 times, of a line as much, of a Gaussian more). Two groups are apart where it is less than HOLLOW times as
   much, by an exact test of two counts. A Gaussian of the same covariance, as a gap statistic has it, is no null here:
   against it a circle and a line are groups.
5. Switch the head off: what each group's next tokens then lose is what the job is worth there.

Source: ours; the silhouette of Rousseeuw 1987, clear from 0.25 on (Kaufman and Rousseeuw 1990); two counts as
Przyborowski and Wilenski 1940. How often nothing is called groups: docs/truth.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.ablate.parts import check_heads
from tracer.analysis.max_activating import LOGITS
from tracer.data.probes import per_token_loss
from tracer.huggingface.any_model import any_model
from tracer.interventions.edits import Edit, applied, recording
from tracer.interventions.replacements import z_tap
from tracer.model.protocol import HeadModel, device_of

if TYPE_CHECKING:
    import xarray as xr

COMPONENTS = 8
TRIES: Any = 4
"""Beginnings of k-means, of which the best counts."""
CLEAR = 0.25
"""A silhouette below it is no structure that one should speak of."""
HOLLOW, LEVEL = 0.25, 0.01
"""Of looks half way between two groups beside those around a middle; and the error of saying that there are fewer."""
WINDOW = 1 / 6
"""Of the way between two middles, to either side: what is half way, and what is around a middle."""
ENDS, PASSAGES = 6, 6


@dataclass(frozen=True)
class HeadJob:
    """One group of a head's looks."""

    share: float
    """Of all looks of the sample."""
    written: float
    """Of the length of all that the head wrote."""
    cost: float
    """Mean rise of the loss of the next token, in nats, with the head switched off (zero); nan without next tokens."""
    cost_se: float
    """Its standard error over looks; nan for fewer than 2."""
    queries: list[tuple[int, float]]
    """Tokens that look, with how many times their share in the sample they have here; the most frequent first."""
    keys: list[tuple[int, float]]
    """Tokens that are looked at, likewise."""
    first: float
    """Mean share of attention on the first token, where heads rest."""
    passages: list[int]
    """Places in the survey's `kept`, those nearest to the group's middle first."""


@dataclass(frozen=True)
class Jobs:
    """All groups, the one that writes most first, and where every look lies."""

    jobs: list[HeadJob]
    silhouette: float
    """Of this grouping; nan for one group."""
    kept: Int[np.ndarray, " look"]
    """Places in the survey's `kept`."""
    group: Int[np.ndarray, " look"]
    components: Float[np.ndarray, "look component"]
    explained: float
    """Share of the weighted variance that these components hold."""


@any_model
@torch.no_grad()
def head_jobs(model: HeadModel, survey: xr.Dataset, layer: int, head: int, *, most: int = 6) -> Jobs:
    """Of the looks that `tracer.survey` kept. Costs two forward passes over their rows (at most 256), and
    4 (most - 1) k-means of as many points in 8 dimensions: under a second.

    ValueError for a head that is not there or was not seen, or whose output is not finite, and for a model whose W_O is
    not known.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    check_heads(model, [(layer, head)])
    one = survey.isel(layer=layer, head=head)
    kept = np.flatnonzero(one["row_kept"].values >= 0)
    if len(kept) < 2:
        raise ValueError(f"the survey holds {len(kept)} looks of L{layer}H{head}: read more of the corpus")
    row, query, key = (one[f"{name}_kept"].values[kept] for name in ("row", "query", "key"))
    z, costs = _outputs(model, torch.from_numpy(survey["tokens"].values).long(), layer, head, row, query)
    out = z @ model.head_weights().W_O[layer, head].double().cpu()
    if not out.isfinite().all():
        raise ValueError(f"what L{layer}H{head} writes is not finite")
    length = out.norm(dim=-1)
    weight = length / length.sum() if length.any() else torch.full_like(length, 1 / len(length))
    x, explained = _components(out / length.clamp(min=1e-12)[:, None], weight)
    groupings = [(float("nan"), np.zeros(len(kept), int))]
    places = len(np.unique(x[weight.numpy() > 0].round(9), axis=0))  # k-means begins at none that weighs nothing
    for n in range(2, min(most, places, len(kept) - 1) + 1):
        found = KMeans(n, n_init=TRIES, random_state=0).fit_predict(x, sample_weight=weight.numpy())
        if groups_apart(x, found, weight.numpy()) and (score := float(silhouette_score(x, found))) >= CLEAR:
            groupings.append((score, found))
    best, labels = max(groupings[1:] or groupings, key=lambda one: one[0])
    tokens = survey["tokens"].values
    ends = tokens[row, query], tokens[row, key]
    groups = sorted(set(labels.tolist()), key=lambda group: -float(weight[labels == group].sum()))
    first = one["first_kept"].values[kept]
    jobs = [_job(labels == group, x, weight.numpy(), costs, ends, first, kept) for group in groups]
    return Jobs(jobs, best, kept, np.array([groups.index(one) for one in labels]), x, explained)


def _outputs(
    model: Any, tokens: Int[Tensor, "row pos"], layer: int, head: int, row: np.ndarray, query: np.ndarray
) -> tuple[Float[Tensor, "look d_head"], Float[np.ndarray, " look"]]:
    """z of each look (gated, in models of ours), and the rise of its next token's loss with the head switched off."""
    tap, n, tokens = z_tap(layer), tokens.shape[1], tokens.to(device_of(model))
    gate = tap.replace("hook_z", "hook_gate")
    rows, place = np.unique(row, return_inverse=True)
    at_once = max(1, LOGITS // (model.d_vocab * n))
    z: list[Tensor] = [torch.empty(0)] * len(row)
    costs = np.full(len(row), np.nan)
    for begin in range(0, len(rows), at_once):
        part = tokens[rows[begin : begin + at_once]]
        with recording(tap, gate) as seen:
            on = per_token_loss(model(part), part)
        with applied([Edit(tap, (head,))]):
            off = per_token_loss(model(part), part)
        for look in np.flatnonzero((place >= begin) & (place < begin + at_once)):
            at = place[look] - begin, query[look]
            behind = seen[tap][at[0], at[1], head] * (seen[gate][at[0], at[1], head] if gate in seen else 1)
            z[look] = behind.double().cpu()
            if at[1] < n - 1:
                costs[look] = float(off[at] - on[at])
    return torch.stack(z), costs


def _components(
    out: Float[Tensor, "look d_model"], weight: Float[Tensor, " look"]
) -> tuple[Float[np.ndarray, "look component"], float]:
    """Coordinates on the principal components of the weighted outputs, and the share of variance that they hold."""
    centred = out - weight @ out
    scaled = centred * weight.sqrt()[:, None]
    values, directions = torch.linalg.svd(scaled, full_matrices=False)[1:]
    total = float(values.square().sum())
    share = float(values[:COMPONENTS].square().sum()) / total if total else 1.0
    return (centred @ directions[:COMPONENTS].T).numpy(), share


def groups_apart(
    x: Float[np.ndarray, "look component"], labels: Int[np.ndarray, " look"], weight: Float[np.ndarray, " look"]
) -> bool:
    """Is there hardly anything half way between any two groups?

    What a look weighs is what it counts, all of them together as many as 1 / sum(weight²) equal ones (Kish 1965).
    """
    looks, weight = weight.sum() ** 2 / np.square(weight).sum(), weight / weight.sum()
    mine = [labels == group for group in np.unique(labels)]
    middles = [_middle(x, weight, one) for one in mine]
    for (a, one), (b, other) in combinations(list(zip(middles, mine, strict=True)), 2):
        both = one | other
        along = (x[both] - a) @ (b - a) / max(float((b - a) @ (b - a)), 1e-300)
        near = [looks * weight[both][np.abs(along - place) < WINDOW].sum() for place in (0, 0.5, 1)]
        if fewer_by_chance(math.ceil(near[1] - 1e-9), math.floor(min(near[0], near[2]) + 1e-9)) >= LEVEL:
            return False
    return True


def _middle(
    x: Float[np.ndarray, "look component"], weight: Float[np.ndarray, " look"], mine: Bool[np.ndarray, " look"]
) -> Float[np.ndarray, " component"]:
    """The weighted mean of some looks; the plain one where all of them weigh nothing."""
    return np.average(x[mine], axis=0, weights=weight[mine] + 1e-12)


def fewer_by_chance(half_way: int, around: int) -> float:
    """That so few of both counts are half way, or fewer, where HOLLOW times as many as around a middle are expected."""
    share, n = HOLLOW / (1 + HOLLOW), half_way + around
    return sum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(half_way + 1))


def _job(
    mine: np.ndarray, x: np.ndarray, weight: np.ndarray, costs: np.ndarray, ends: tuple[np.ndarray, np.ndarray],
    first: np.ndarray, kept: np.ndarray,
) -> HeadJob:  # fmt: skip
    there = costs[mine][np.isfinite(costs[mine])]
    near = np.argsort(np.square(x[mine] - _middle(x, weight, mine)).sum(1), kind="stable")
    return HeadJob(
        float(mine.mean()), float(weight[mine].sum()), float(there.mean()) if len(there) else float("nan"),
        float(there.std(ddof=1) / len(there) ** 0.5) if len(there) > 1 else float("nan"),
        _frequent(ends[0], mine), _frequent(ends[1], mine), float(first[mine].mean()),
        kept[mine][near][:PASSAGES].tolist(),
    )  # fmt: skip


def _frequent(tokens: Int[np.ndarray, " look"], mine: np.ndarray) -> list[tuple[int, float]]:
    found, counts = np.unique(tokens[mine], return_counts=True)
    top = np.argsort(-counts, kind="stable")[:ENDS]
    return [(int(found[i]), float(counts[i] / mine.sum() / (tokens == found[i]).mean())) for i in top]
