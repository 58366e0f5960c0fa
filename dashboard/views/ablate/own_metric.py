"""The Ablate page on what a user's own metrics were swept by (`tracer sweep --metric --tokens`): which one is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import state, theme
from dashboard.loading import ablation
from dashboard.loading.ablation import Setup
from dashboard.shared.mount import draw
from tracer.measures import in_trace
from tracer.pictures import headmap
from tracer.store import Run, nearest_row

if TYPE_CHECKING:
    import xarray as xr

LOSS = "The loss, in nats"
LONGEST = 120
"""Characters of what a run says of a metric, which strangers may have written."""


def choose_metric(run: Run) -> xr.Dataset | None:
    """What was swept by the metric that is chosen, with a control where the run keeps any; None: the loss."""
    try:
        kept = ablation.own_effects(run)
    except ValueError as error:
        st.text(str(error))
        return None
    if not kept:
        return None
    st.selectbox(
        "What is measured", ["", *kept], format_func=lambda name: _words(kept[name]) if name else LOSS, width=480,
        **state.control("metric_box", state.among("metric", kept) or "", lambda name: state.update(metric=name)),
    )  # fmt: skip
    return kept.get(state.read().metric)


def measured(found: xr.Dataset, setup: Setup) -> tuple[xr.DataArray, list[str]]:
    """Of a sweep, what is nearest to this setup, [step probe layer head], and in words where it is another."""
    frozen = setup.frozen and "effect_frozen" in found or "effect" not in found
    name, modes = "effect_frozen" if frozen else "effect", found["mode"].values
    mode = setup.mode if setup.mode in modes else str(modes[0])
    notes = [] if mode == setup.mode else [f"{mode} ablation"]
    if frozen and not setup.frozen:
        notes.append("patterns held as they were")
    if setup.frozen and not frozen:
        notes.append("these were measured with patterns free to change; `tracer sweep --frozen` holds them")
    return found[name].sel(mode=mode).dropna("probe", how="all").dropna("step", how="all"), notes


def draw_own_heads(found: xr.Dataset, setup: Setup) -> None:
    """What every head changes the metric by, at the measured step that is nearest."""
    effect, notes = measured(found, setup)
    if not effect.size:
        st.caption("Nothing was measured in this way.")
        return
    said, steps = in_trace(found, str(effect.name)), effect["step"].values
    at = effect.isel(step=nearest_row(steps, setup.step))
    words = [f"{theme.unmarked(said.label[:1].upper() + said.label[1:])}, at step {int(at['step']):,}", *notes]
    st.caption(f"{', '.join(words)}. Above 0: higher with that head off.")
    scale = replace(ablation.change_scale(at.values), label="Change", unit=said.unit)
    for column, probe in zip(st.columns(max(2, at.sizes["probe"]), gap="large"), at["probe"].values, strict=False):
        with column:
            title = theme.sentence(ablation.WORDS.get(str(probe), "given tokens")).rstrip(".")
            picture = headmap.picture(at.sel(probe=probe).values, title=title, scale=scale, off=setup.off)
            draw(picture, key=f"sweep_own_{probe}")


def _words(found: xr.Dataset) -> str:
    """Which metric on which tokens, as the run says it."""
    said = next(iter(found.data_vars.values())).attrs
    metric, tokens = (" ".join(str(said.get(name, "not said"))[:LONGEST].split()) for name in ("metric", "tokens"))
    return f"{metric}, on {tokens}"
