"""A run in words: key facts, what went wrong, and the texts that the model wrote."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.figures import rows
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

RECENT = 8
"""Speed is the median over this many records."""


def draw_facts(run: Run, trace: xr.Dataset, chosen: int | None) -> None:
    """Status, speed, and what is left; losses and best induction head at the chosen step."""
    status, meta, planned = theme.status(run.status), run.meta, run.config.steps
    row = trace.isel(step=-1) if chosen is None else trace.sel(step=chosen, method="nearest")
    induction = row["induction"].values
    best = np.unravel_index(int(np.nan_to_num(induction, nan=-1.0).argmax()), induction.shape)
    ms = trace["step_ms"].values[-RECENT:]
    ms = float(np.median(ms[np.isfinite(ms)])) if np.isfinite(ms).any() else float("nan")
    rate = 1000 * run.config.optim.batch_size * run.config.model.n_ctx / ms
    with st.container(horizontal=True):
        _fact("Status", f"{status.icon} {status.text}", None)
        _fact("Step", f"{int(row['step']):,}", f"of {planned:,}")
        for label, name in (("Training loss", "train_loss"), ("Held-out loss", "val_loss")):
            loss = float(row[name])
            _fact(label, _loss(loss), f"perplexity {_loss(float(rows.perplexity(loss)), digits=1)}")
        _fact(
            "Strongest induction head",
            theme.head_label(*map(int, best)),
            f"score {theme.fmt(float(induction[best]), 'induction')}",
        )
        _fact(
            "Tokens a second",
            f"{rate:,.0f}" if np.isfinite(rate) else "–",
            f"{ms:,.0f} ms a step" if np.isfinite(ms) else None,
        )
        if run.live:
            _fact("Time left", _duration((planned - int(trace["step"][-1])) * ms / 1000), "at this speed")
        elif seconds := meta.get("cost", {}).get("seconds"):
            _fact("Took", _duration(float(seconds)), f"{meta['cost']['recording_share']:.1%} more by recording")


def _fact(label: str, value: str, detail: str | None) -> None:
    st.metric(label, value, detail, delta_color="off", delta_arrow="off", width=168)


def _loss(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if abs(value) < 1e4 else theme.fmt(value)


def _duration(seconds: float) -> str:
    if not np.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def draw_divergence(run: Run) -> None:
    """At which step and where training broke, and what grew before."""
    found: dict[str, Any] | None = run.meta.get("divergence")
    if not found:
        return
    first, before = found.get("non_finite"), found.get("exploding")
    lines = [f"The loss was not a finite number at step {int(found['step'])}. Everything recorded before is kept."]
    if first:
        lines.append(f"First value that was not finite: {_place(first)}, at step {int(first['step'])}.")
    if before:
        lines.append(
            f"What grew first: {_place(before)} reached {theme.fmt(before['value'])} at step {int(before['step'])}, "
            "more than a hundred times what it began with."
        )
    lines.append(_remedy(run))
    st.error("  \n".join(lines), icon=":material/error:", title="This run diverged")
    if first and first.get("layer") is not None and first.get("head") is not None:
        layer, head = int(first["layer"]), int(first["head"])
        st.button(
            f"Focus {theme.head_label(layer, head)}",
            icon=":material/center_focus_strong:",
            key="focus_broken",
            on_click=_focus,
            args=(layer, head),
        )


def _focus(layer: int, head: int) -> None:
    state.update(layer=layer, head=head)


def _remedy(run: Run) -> str:
    """What usually helps, beginning with what this run did without."""
    lacks = []
    if run.config.optim.clip is None:
        lacks.append("clipping of gradients")
    if run.config.model.norm == "none":
        lacks.append("a norm in front of every sublayer")
    return f"What usually helps: {', or '.join([*lacks, 'a lower learning rate'])}."


def _place(finding: dict[str, Any]) -> str:
    """The tap's name as code (so that nothing in it is read as Markdown), with its head or layer in words."""
    name = f"`{str(finding['where']).replace('`', '')}`"
    if finding.get("layer") is None:
        return name
    if finding.get("head") is None:
        return f"{name} in layer {int(finding['layer'])}"
    return f"{name} in head {theme.head_label(int(finding['layer']), int(finding['head']))}"


def draw_samples(run: Run, step: int | None) -> None:
    """What the model wrote at the last sampled step up to the chosen one, a column for each temperature."""
    samples = [s for s in run.samples() if step is None or s["step"] <= step]
    if not samples:
        return
    newest = max(s["step"] for s in samples)
    st.subheader("What it writes", anchor=False)
    st.caption(f"Continuations of a held-out text, sampled at step {newest:,}. Move the step to read earlier ones.")
    shown = [s for s in samples if s["step"] == newest]
    st.text("The model is given")
    st.code(printable(shown[0]["prompt"]), language=None, wrap_lines=True)
    for column, sample in zip(st.columns(len(shown), gap="large"), shown, strict=True):
        temperature = sample["temperature"]
        column.text(
            "and its most likely continuation" if temperature == 0 else f"and at temperature {temperature:g} continues"
        )
        column.code(printable(sample["text"]), language=None, wrap_lines=True)


def printable(text: str) -> str:
    """Text as a model wrote it, with control and direction characters made visible; newlines and tabs stay."""

    def glyph(c: str) -> str:
        if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"):
            return c
        return f"‹U+{ord(c):04X}›"

    return "".join(map(glyph, text))
