"""Every head as a point: any two things known of it across and up, a third as its colour; a lasso makes a set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import navigation, state, theme
from dashboard.loading import ablation, head_scores
from dashboard.shared import choosers, prompts
from dashboard.shared.figures import by_head, scatter
from dashboard.shared.plots import plot
from dashboard.shared.sweeping import draw_sweeping
from dashboard.views.find.survey_data import own_means
from tracer.measures.aliases import Head
from tracer.pictures.scales import Scale, of_measure
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

MEANS = {
    "entropy": "entropy (nats)", "sink": "share on the first token", "sharpest": "largest share on another token",
}  # fmt: skip
"""Of a survey."""
COSTS = {"effect": ("repeat", "Effect on repeated tokens"), "effect_text": ("text", "Effect on text")}
"""What switching a head off costs, by the probe that a sweep measures it on."""
NAMED = 24
"""Heads of a set that are named; all of them are taken along."""


@dataclass(frozen=True)
class Known:
    """One thing that is known of every head."""

    label: str
    values: Callable[[], np.ndarray]
    """[layer head]; ValueError says why it is not known at this step."""
    scale: Callable[[np.ndarray], Scale]
    """How its values are coloured."""


def draw_all_heads(run: Run, trace: xr.Dataset, survey: xr.Dataset | None, step: int, head: Head) -> None:
    """A click takes a head into focus; what is drawn around is the set that Heads shows and Ablate takes over."""
    st.header("All heads", anchor=False)
    known = _known(run, trace, survey, step)
    measured = head_scores.head_measures(trace)
    second = choosers.measure_in_force(measured)
    first = next((name for name in ("previous_token", *measured) if name in measured and name != second), "layer")
    if survey is not None:
        first, second = "corpus_sink", "corpus_sharpest"
    with st.container(horizontal=True):
        across = _choose("Across", "across", first, known)
        up = _choose("Up", "up", second, known)
        colour = _choose("Colour", "colour", "layer", known)
    try:
        x, y, shade = (known[name].values() for name in (across, up, colour))
    except ValueError as error:
        _refuse(run, str(error))
        return
    labels = [known[across].label, known[up].label]
    taken = _taken(trace, step)
    figure = scatter(
        x, y, x_label=labels[0], y_label=labels[1], selected=head, lit=taken or None,
        shade=None if colour == "layer" else (shade, known[colour].scale(shade)),
    )  # fmt: skip
    plot(
        figure, key="all_heads", on_pick=state.focus_on, on_set=_take, alt=f"Every head by {' and '.join(labels)}",
        numbers=lambda: by_head({known[name].label: known[name].values() for name in (across, up, colour)}),
    )  # fmt: skip
    if {across, up, colour} & set(COSTS):
        st.caption(
            f"Effect: the rise of the loss with this head alone switched off ({_mode(ablation.effects(run))} ablation)."
        )
    recorded = " Recorded with all heads on." if state.read().off else ""
    st.caption(f"Click a head to bring it into focus; draw around several to take them as a set.{recorded}")
    if taken:
        _draw_taken(taken)


def _known(run: Run, trace: xr.Dataset, survey: xr.Dataset | None, step: int) -> dict[str, Known]:
    """By the name that a link carries: layer, effect, means over the corpus, then what the run recorded."""
    shape = trace.sizes["layer"], trace.sizes["head"]
    found = {"layer": Known("Layer", lambda: np.indices(shape)[0].astype(float), lambda _: Scale("Layer"))}
    measured = _measured_on(run)
    for name, (probe, label) in COSTS.items():
        if probe not in measured:
            continue
        found[name] = Known(f"{label} (nats)", lambda probe=probe: _effect(run, step, probe), ablation.change_scale)
    if survey is not None:
        for name, words in MEANS.items():
            values = survey[name].values
            found[f"corpus_{name}"] = Known(f"Corpus: {words}", lambda values=values: values, _from_zero)
        for name, row in own_means(survey).items():
            values = survey[name].values
            found[f"corpus_{name}"] = Known(
                f"Corpus: {row.label_with_unit}", lambda values=values: values,
                lambda values, row=row: of_measure(row, run.about.setting, values),
            )  # fmt: skip
    for name in head_scores.head_measures(trace):
        values, known_as = head_scores.head_means(trace, name, step), choosers.measure_of(run, name)
        found[name] = Known(
            known_as.label_with_unit, lambda values=values: values,
            lambda values, name=name: choosers.scale(name, run, values),
        )  # fmt: skip
    return found


def _measured_on(run: Run) -> list[str]:
    """The probes of the sweep of a run; before one, and where it is damaged, any: what is in the way is said then."""
    try:
        swept = ablation.effects(run)
    except ValueError:
        swept = None
    return [probe for probe, _ in COSTS.values()] if swept is None else swept["probe"].values.tolist()


def _from_zero(values: np.ndarray) -> Scale:
    return Scale("Mean over the corpus", hi=float(np.nanmax(values, initial=0.0)) or 1.0)


def _choose(label: str, field: str, default: str, known: dict[str, Known]) -> str:
    return st.selectbox(
        label, list(known), format_func=lambda name: known[name].label, width=280,
        **state.control(f"all_heads_{field}", state.among(field, known) or default,
                        lambda name: state.update(**{field: name})),
    )  # fmt: skip


def _mode(swept: xr.Dataset | None) -> str:
    """The mode chosen on Ablate, or the first that was swept."""
    modes = [] if swept is None else swept["mode"].values.tolist()
    return next(mode for mode in (state.read().mode, *modes) if mode in modes)


def _effect(run: Run, step: int, probe: str) -> np.ndarray:
    """What switching off each head by itself costs, [layer head]; ValueError where no sweep of this step was kept."""
    found = ablation.effects(run)
    if found is None or "effect" not in found:
        raise ValueError("What switching off each head costs has not been measured in this run.")
    steps = found["step"].values.tolist()
    if step in steps:
        effect = found["effect"].sel(step=step, probe=probe, mode=_mode(found)).values
        if np.isfinite(effect).any():
            return effect
    raise ValueError(f"What switching off each head costs has not been measured at step {step:,} "
                     f"({_mode(found)} ablation).")  # fmt: skip


def _refuse(run: Run, why: str) -> None:
    """The reason, and what measures it."""
    with st.container(key="exactly-all_heads"):
        st.text(why)
    if not prompts.can_read(run):
        st.text(f"{run.why_not('prompts')}, so it can't be.")
        return
    st.caption("`tracer sweep` measures it once for every snapshot, and the numbers stay in the run.")
    try:
        draw_sweeping(run)
    except ValueError:  # that is the reason given
        return


def _take(heads: list[list[int]]) -> None:
    """A set of heads is a line of the finder, so the atlas on Heads shows it too."""
    state.update(find=" ".join(theme.head_label(layer, head) for layer, head in sorted(heads)))


def _taken(trace: xr.Dataset, step: int) -> tuple[Head, ...]:
    """The heads that the finder's line names, also one that was written on Heads."""
    line = state.read().find
    try:
        return tuple(sorted(head_scores.named(line, trace, step).heads)) if line.strip() else ()
    except ValueError:  # said below the finder's box
        return ()


def _draw_taken(taken: tuple[Head, ...]) -> None:
    """What a set is good for."""
    names = " ".join(theme.head_label(*head) for head in taken[:NAMED])
    many = f"{len(taken)} heads" if len(taken) > 1 else "1 head"
    st.text(f"{many}: {names}{' …' if len(taken) > NAMED else ''}")
    with st.container(horizontal=True, gap="xsmall"):
        if st.button("Show them on Heads", icon=":material/grid_view:", key="taken_heads"):
            st.switch_page(navigation.page("heads"))
        if st.button("Switch them off on Ablate", icon=":material/power_off:", key="taken_off"):
            state.update(off=taken)
            st.switch_page(navigation.page("ablate"))
        st.button("Clear", key="taken_clear", on_click=lambda: state.update(find=""))
