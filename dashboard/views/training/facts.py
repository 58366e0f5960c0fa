"""A run in words: key facts, what went wrong, and the texts that the model wrote."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import diagnoses, head_scores
from dashboard.loading.run_summaries import recent_ms
from dashboard.shared.run_bar import tokens_per_second
from tracer.analysis import training_curves
from tracer.analysis.head_sets import THRESHOLD
from tracer.diagnosis import Advice
from tracer.store import About, Run, nearest_row

if TYPE_CHECKING:
    import xarray as xr

LARGE = 1e6
"""A perplexity beyond it says nothing more."""


def draw_facts(
    run: Run, trace: xr.Dataset, chosen: int | None, each: Mapping[str, xr.Dataset],
    beside: tuple[str, xr.Dataset] | None = None,
) -> None:  # fmt: skip
    """Losses and best head at the chosen step, the speed, and what is left; the line in the header says how it stands.

    What nobody knows is left out. `each`: by run, what it recorded at every update. `beside`: the name and the trace of
    a second run, whose losses and head stand below.
    """
    about, row = run.about, nearest_row(trace["step"].values, chosen)
    with st.container(key="facts", horizontal=True):
        if about.why_not("training") or int(trace["step"][row]) != int(trace["step"][-1]):
            _fact("Step", f"{int(trace['step'][row]):,}", None if about.steps is None else f"of {about.steps:,}")
        nats = head_scores.predicts_tokens(trace)
        on_text = "Loss on text" if about.why_not("training") else "Held-out loss"
        for label, name in (("Training loss", "train_loss"), (on_text, "val_loss")):
            if head_scores.holds(trace, name):
                loss, of = latest(trace, each.get(run.name), name, row)
                perplexity = float(training_curves.perplexity(loss))
                said = f"perplexity {theme.fmt(perplexity)}" if perplexity < LARGE else "perplexity above 10⁶"
                earlier = f"at step {of:,}" if of != int(trace["step"][row]) else ""
                other = _other_loss(beside, each, name, chosen)
                _fact(label, _loss(loss), other or earlier or (said if nats else None))
        _draw_striking(trace, row)
        if beside and head_scores.holds(beside[1], "induction"):
            _draw_striking(
                beside[1], nearest_row(beside[1]["step"].values, chosen), of=f" of {theme.unmarked(beside[0])}"
            )
        _draw_pace(run, trace, about)


def latest(trace: xr.Dataset, each: xr.Dataset | None, name: str, row: int) -> tuple[float, int]:
    """The last value up to this row and its step: a loop that others wrote may end after its last batch."""
    step = int(trace["step"][row])
    found = each if each is not None and head_scores.holds(each, name) else trace
    held = np.flatnonzero(np.isfinite(found[name].values) & (found["step"].values <= step))
    return (float(found[name][held[-1]]), int(found["step"][held[-1]])) if held.size else (float("nan"), step)


def _other_loss(
    beside: tuple[str, xr.Dataset] | None, each: Mapping[str, xr.Dataset], name: str, chosen: int | None
) -> str:  # fmt: skip
    if beside is None or not head_scores.holds(beside[1], name):
        return ""
    run, trace = beside
    loss, _ = latest(trace, each.get(run), name, nearest_row(trace["step"].values, chosen))
    return f"{theme.unmarked(run)}: {_loss(loss)}"


def _draw_striking(trace: xr.Dataset, row: int, of: str = "") -> None:
    step = int(trace["step"][row])
    for label, name in (("Strongest induction head", "induction"), ("Sharpest head", "entropy_normalised")):
        if head_scores.holds(trace, name):
            best = head_scores.default_head(trace, step)
            value = theme.fmt(float(trace[name].values[row][best]), name)
            weak = name == "induction" and not trace[name].values[row][best] > THRESHOLD
            said = f"score {value}" if name == "induction" else f"entropy {value} of 1"
            if name == "induction" and head_scores.holds(trace, "induction_control"):
                control = float(trace["induction_control"].values[row][best])
                said = f"{value}, control {theme.fmt(control, 'induction')}"
            if name == "induction" and head_scores.induction_head(trace, step) is None:
                _fact(label + of, "none stands out", f"nearest {theme.head_label(*best)}: {said}", width=260)
            elif weak:
                _fact("Nearest to induction" + of, theme.head_label(*best), f"{said}, below {THRESHOLD:g}", width=260)
            else:
                _fact(label + of, theme.head_label(*best), said)
            return


def _draw_pace(run: Run, trace: xr.Dataset, about: About) -> None:
    """Tokens a second, or milliseconds a step where nobody counts tokens; the time that is left, or that it took."""
    ms = recent_ms(trace)
    if about.batch_tokens is not None:
        rate = tokens_per_second(run, ms)
        _fact(
            "Tokens a second",
            f"{rate:,.0f}" if np.isfinite(rate) else "–",
            f"{ms:,.0f} ms a step" if np.isfinite(ms) else None,
        )
    elif np.isfinite(ms):
        _fact("Time of a step", f"{ms:,.0f} ms", None)
    cost = run.meta.get("cost", {})
    if run.live and about.steps is not None:
        _fact("Time left", _duration((about.steps - int(trace["step"][-1])) * ms / 1000), "at this speed")
    elif not run.live and (seconds := cost.get("seconds")):
        share = cost.get("recording_share")
        _fact("Duration", _duration(float(seconds)), None if share is None else f"recording +{share:.1%}")


def _fact(label: str, value: str, detail: str | None, width: int = 168) -> None:
    st.metric(label, value, detail, delta_color="off", delta_arrow="off", width=width)


def _loss(value: float) -> str:
    return theme.fmt(value, "loss" if abs(value) < 1e4 else "")


def _duration(seconds: float) -> str:
    if not np.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def draw_divergence(run: Run) -> None:
    """At which step and where training broke, and what grew before; or why nothing is recorded any more."""
    meta = run.meta
    found: dict[str, Any] | None = meta.get("divergence")
    if not found:
        if meta.get("recording_stopped"):
            st.warning("Recording ended before the training did.", icon=":material/warning:")
            st.text(str(meta["recording_stopped"]))
        return
    first, before = found.get("non_finite"), found.get("exploding")
    what = (
        "The weights were not finite after" if found.get("loss") == "finite" else "The loss was not a finite number at"
    )
    lines = [f"{what} step {int(found['step']):,}."]
    if found.get("cause") == "unknown":
        lines.append("First not finite: layer unknown.")
    elif first:
        kernel = ", in the fused attention kernel alone" if found.get("fused") else ""
        lines.append(f"First not finite: {_place(first)}, step {int(first['step']):,}{kernel}.")
    if before:
        lines.append(
            f"Grew first: {_place(before)}, {theme.fmt(before['value'])} at step {int(before['step']):,} "
            "(over 100 times its start)."
        )
    if found.get("cause") not in ("weight", "loss", "gradient"):  # of these `how` says it
        lines += [f"{label}: {theme.unmarked(text)}." for label, text in _advice(run).texts().items()]
    st.error("  \n".join(lines), icon=":material/error:")
    if found.get("how"):
        st.text(str(found["how"]))
    if first and first.get("layer") is not None and first.get("head") is not None:
        layer, head = int(first["layer"]), int(first["head"])
        st.button(
            f"Focus {theme.head_label(layer, head)}",
            icon=":material/center_focus_strong:",
            key="focus_broken",
            on_click=state.focus_on,
            args=((layer, head),),
        )


def _advice(run: Run) -> Advice:
    """Health's, so that both say the same; none where the run's numbers cannot be read."""
    try:
        found = diagnoses.diagnosis(run).findings
    except (ValueError, OSError):  # which the page says
        return Advice()
    return next((one.advice for one in found if one.kind == "divergence"), Advice())


def _place(finding: dict[str, Any]) -> str:
    """The tap's name as code (so that nothing in it is read as Markdown), with its head or layer in words."""
    name = f"`{str(finding['where']).replace('`', '')}`"
    if finding.get("layer") is None:
        return name
    if finding.get("head") is None:
        return f"{name} in layer {int(finding['layer'])}"
    return f"{name} in head {theme.head_label(int(finding['layer']), int(finding['head']))}"


MOST_SAMPLES, LONGEST = 4, 20_000
"""Samples of a step, and characters of each, that are drawn: a stranger's file may hold a million."""


def draw_samples(run: Run, step: int | None) -> None:
    """What the model wrote at the last sampled step up to the chosen one, a column for each temperature."""
    try:
        samples = [s for s in run.samples() if step is None or s["step"] <= step]
    except (ValueError, OSError) as error:
        st.text(str(error))
        return
    if not samples:
        return
    newest = max(s["step"] for s in samples)
    st.header("What it writes", anchor=False)
    st.caption(
        f"Continuations of a held-out text, sampled at step {newest:,}.", help="Move the step to read earlier ones."
    )
    shown = [s for s in samples if s["step"] == newest][:MOST_SAMPLES]
    with st.container(gap="xxsmall"):
        st.caption("It is given")
        st.code(printable(shown[0]["prompt"][:LONGEST]), language=None, wrap_lines=True)
    for column, sample in zip(st.columns(len(shown), gap="large"), shown, strict=True):
        temperature = sample["temperature"]
        with column, st.container(gap="xxsmall"):
            st.caption("Greedy continuation" if temperature == 0 else f"Continuation at temperature {temperature:g}")
            st.code(printable(sample["text"][:LONGEST]), language=None, wrap_lines=True)


def printable(text: str) -> str:
    """Text as a model wrote it, with control and direction characters made visible; newlines and tabs stay."""

    def glyph(c: str) -> str:
        if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"):
            return c
        return f"‹U+{ord(c):04X}›"

    return "".join(map(glyph, text))
