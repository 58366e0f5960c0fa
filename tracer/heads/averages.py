"""From statistics of rows to one number per head."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tracer.heads.blocks import HeadStats
from tracer.measures import CONTROLS, HEAD_MEASURES, REPEAT_MEASURES, SE, TEXT_MEASURES

PerHead = dict[str, Float[Tensor, " head"]]
T = TypeVar("T")


def head_means(stats: HeadStats, rows: slice = slice(1, None), names: Collection[str] = HEAD_MEASURES) -> PerHead:
    """The mean over batch and the given query rows of each statistic, and the largest logit of all rows.

    Source: Olsson et al. 2022, Methods (averages over examples). Row 0 sees one key only, so it is left out by default;
    rows that see no key (padding) always are. A head is nan where no row has a value, or where one that sees keys is
    nan. duplicate_token and induction are there when `stats` was given tokens; on text few rows have an earlier copy,
    so read them on Probe R with `rows=probe.second_copy`. fixed_distance is the mean at the distance where it is
    largest.
    """
    broken = (stats["entropy"].isnan() & (stats.lse != float("-inf")))[..., rows].any(-1).any(0)
    found, values, at = _together(stats, rows, names)
    means = values.nanmean((1, 3)).masked_fill_(broken, float("nan"))
    max_logit = stats.max_logit.amax(0)
    return {
        **dict(zip(found, means, strict=True)),
        **({} if at is None else {"fixed_distance_at": at.masked_fill_(broken, float("nan"))}),
        "max_logit": max_logit.masked_fill_(max_logit == float("-inf"), float("nan")),
    }


def head_errors(stats: HeadStats, rows: slice = slice(1, None), names: Collection[str] = HEAD_MEASURES) -> PerHead:
    """The standard errors of these means over sequences, by the same names: how much another batch would differ.

    Source: Cochran 1977, 2.11, standard error of a ratio, as sequences may have different numbers of rows with a value;
    of equal numbers it is the standard deviation of the sequences' means over sqrt(batch). nan for one sequence.
    """
    found, values, _ = _together(stats, rows, names)
    total, count = values.nansum(3), values.isfinite().sum(3)
    apart = total - count * (total.sum(1) / count.sum(1)).unsqueeze(1)
    spread = len(stats.lse) / (len(stats.lse) - 1 or float("nan")) * apart.square().sum(1)
    return dict(zip(found, spread.sqrt() / count.sum(1), strict=True))


def with_errors(names: Iterable[str]) -> tuple[str, ...]:
    """Variables of a trace: means, then their standard errors."""
    names = tuple(names)
    return (*names, *(name + SE for name in names))


def means_and_errors(
    stats: HeadStats, rows: slice = slice(1, None), names: Collection[str] = HEAD_MEASURES
) -> PerHead:  # fmt: skip
    """`head_means` and `head_errors`, by their names in a trace."""
    names = list(names)
    errors = head_errors(stats, rows, names)
    return head_means(stats, rows, names) | {name + SE: error for name, error in errors.items()}


def own_means(stats: HeadStats, names: Iterable[str], rows: slice = slice(1, None)) -> PerHead:
    """The same of measures of one's own, and nothing else."""
    names = list(names)
    found = means_and_errors(stats, rows, names)
    return {name: found[name] for name in with_errors(names)}


def _together(
    stats: HeadStats, rows: slice, names: Collection[str]
) -> tuple[list[str], Float[Tensor, "measure batch head query_pos"], Float[Tensor, " head"] | None]:
    """Those measures that are there, in one tensor: a reduction costs more to call than to do; and the fixed distances
    of `fixed_distance`, where it is asked for."""
    values, at = {name: stats[name][..., rows] for name in names if name in stats.rows}, None
    if "fixed_distance" in names:
        values["fixed_distance"], at = _fixed_distance(stats, rows)
    return list(values), torch.stack(list(values.values())), at


def _fixed_distance(
    stats: HeadStats, rows: slice
) -> tuple[Float[Tensor, "batch head query_pos"], Float[Tensor, " head"]]:
    """The mass of each row on the token at that distance, 2 or more, at which its head has most of it; and which it is.

    nan of a head that has no row with a token there.
    """
    back = stats.back[..., rows]
    if not back.shape[2]:
        return torch.full_like(stats.lse[..., rows], float("nan")), torch.full_like(stats.max_logit[0], float("nan"))
    means = back.nansum(-1).sum(0) / (back * 0 + 1).nansum(-1).sum(0)  # ten times as fast as nanmean
    most, at = means.nan_to_num(nan=-1.0).max(-1)
    where = rearrange(at, "head -> 1 head 1 1").expand(len(back), -1, 1, back.shape[-1])
    return back.gather(2, where).squeeze(2), (at + 2).to(back).masked_fill(most < 0, float("nan"))


def of_probes(text: Mapping[str, T], repeat: Mapping[str, T], control: Mapping[str, T]) -> dict[str, T]:
    """What a trace has of heads, of three probes: from Probe R what is not of text, some also from its control."""
    without = {
        CONTROLS[score] + SE * name.endswith(SE): x
        for name, x in control.items() if (score := name.removesuffix(SE)) in CONTROLS
    }  # fmt: skip
    of_repeat = {name: x for name, x in {**repeat, **without}.items() if name.removesuffix(SE) not in TEXT_MEASURES}
    return {**text, **of_repeat}


def probe_scores(text: HeadStats, repeat: HeadStats, control: HeadStats, second_copy: slice) -> PerHead:
    """The head measures of a trace: on held-out text, on Probe R's second copy, and on its control.

    Source: `tracer.measures`, the probe of each measure. `repeat` and `control`, whose q and k come from the control's
    rows, must both have been given Probe R's own tokens, so that they read the same keys.
    """
    on_repeat = head_means(repeat, second_copy, REPEAT_MEASURES)
    return of_probes(head_means(text), on_repeat, head_means(control, second_copy, CONTROLS))


def probe_errors(text: HeadStats, repeat: HeadStats, control: HeadStats, second_copy: slice) -> PerHead:
    """The standard errors of these scores, by their names in a trace; max_logit, a maximum, has none."""
    on_repeat = head_errors(repeat, second_copy, REPEAT_MEASURES)
    found = of_probes(head_errors(text), on_repeat, head_errors(control, second_copy, CONTROLS))
    return {name + SE: error for name, error in found.items()}
