"""Heads in one sentence: what the head in focus is, or with heads off, what that did to the loss on the prompt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dashboard import theme
from dashboard.loading import head_scores, heads_off, prompt_attention, roles
from dashboard.shared import choosers, switches
from tracer.analysis.head_roles import CHANCE, HeadRole
from tracer.measures.aliases import Head
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr


def answer(
    run: Run, trace: xr.Dataset, shown: PromptPatterns, before: PromptPatterns, measure: str, focus: Head
) -> str:  # fmt: skip
    """Markdown; `before`: the same prompt with all heads on."""
    if shown.off:
        return _lost(trace, shown, focus) or _without(run, shown, before)
    label, found = theme.head_label(*focus), roles.of_head(trace, focus, shown.step)
    if found is None:
        value, chance = head_scores.head_means(trace, measure, shown.step)[focus], choosers.scale(measure, run).chance
        beside = "" if chance is None else f" (chance {theme.fmt(chance, measure)})"
        name = theme.unmarked(choosers.measure_of(run, measure).label)
        return f"{label}: {name[:1].lower()}{name[1:]} {theme.fmt(value, measure)}{beside}."
    one, has = found
    name, value = theme.unmarked(one.role.label), theme.fmt(one.value, one.role.measure)
    needs = f"a role takes {one.role.at_least:g}"
    beside = "" if one.role.control is None else _beside(one)
    if not has:
        return f"{label} has no role here. Nearest: {name}, {value} ({', '.join(filter(None, (beside, needs)))})."
    article = "an" if name[:1].lower() in tuple("aeiou") else "a"
    detail = f", {one.detail}" * bool(one.detail)
    does = f" It {one.role.does}." * bool(one.role.does)
    return f"{label} is {article} {name} head{detail}: {value} ({beside or needs}).{does}"


def _beside(one: HeadRole) -> str:
    """The control of a role's score."""
    kind = "chance" if one.role.control == CHANCE else "control"
    return f"{kind} {'not recorded' if math.isnan(one.control) else theme.fmt(one.control, one.role.measure)}"


def _lost(trace: xr.Dataset, shown: PromptPatterns, focus: Head) -> str:
    """That the head in focus has another role, or none, since others are off; empty where that is not known."""
    now = heads_off.scores(trace, shown, shown.step)
    if (then := heads_off.recorded(now)) is None:
        return ""
    (was, had), (new, has) = (roles.of_head(of.trace, focus, of.step) or (None, False) for of in (then, now))
    if was is None or not had or (has and new is not None and new.role == was.role):
        return ""
    measure, label = was.role.measure, theme.head_label(*focus)
    score = theme.fmt(head_scores.head_means(now.trace, measure, now.step)[focus], measure)
    lost = f"{label} is no {theme.unmarked(was.role.label)} head"
    return f"Without {switches.named(shown.off)}, {lost}: {score} ({theme.fmt(was.value, measure)} with all heads on)."


def says_loss(trace: xr.Dataset, shown: PromptPatterns, focus: Head) -> bool:
    """Is the loss on this text in the answer?"""
    return bool(shown.off) and not _lost(trace, shown, focus)


def _without(run: Run, shown: PromptPatterns, before: PromptPatterns) -> str:
    off = f"Without {switches.named(shown.off)}"
    now, then = prompt_attention.said(run, shown), prompt_attention.said(run, before)
    if now is None or then is None or not math.isfinite(now.loss - then.loss):
        return f"{off}, every later pattern is computed anew."
    ends = f"from {theme.fmt(then.loss, 'loss')} to {theme.fmt(now.loss, 'loss')} nats"
    return f"{off}, the loss on this text goes {ends} ({theme.signed(now.loss - then.loss)})."
