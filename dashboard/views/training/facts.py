"""A run in words: key facts, what went wrong, and the texts that the model wrote."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
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
from tracer.store import Run, nearest_row

if TYPE_CHECKING:
    import xarray as xr

LARGE = 1e6
"""A perplexity beyond it says nothing more."""


def draw_facts(traces: Mapping[str, xr.Dataset], runs: Iterable[Run], chosen: int | None,
               each: Mapping[str, xr.Dataset]) -> None:  # fmt: skip
    """A quiet line of each run that has a trace: losses, best head, speed and time; what nobody knows is left out.

    `traces` and `each`, what was recorded at every update, are by the names of runs.
    """
    told = [run for run in runs if run.name in traces]
    with st.container(key="facts", gap="xxsmall"):
        for run in told:
            trace = traces[run.name]
            row = nearest_row(trace["step"].values, chosen)
            said = _line(run, trace, each.get(run.name), row, len(told) == 1)
            name = f"{theme.unmarked(run.name)}, step {int(trace['step'][row]):,}: "
            st.caption(name + said if len(told) > 1 else said[:1].upper() + said[1:])


def _line(run: Run, trace: xr.Dataset, each: xr.Dataset | None, row: int, alone: bool) -> str:
    """What runs are compared by, at a row of the trace; of a run `alone` the page's answer says the held-out loss."""
    on_text = run.about.why_not("training")
    said = [_loss(trace, each, "train_loss", "training loss", row)] if head_scores.holds(trace, "train_loss") else []
    if head_scores.holds(trace, "val_loss"):
        perplexity = _perplexity(trace, each, row)
        if not alone:
            said.append(_loss(trace, each, "val_loss", "loss on text" if on_text else "held-out loss", row, perplexity))
        elif perplexity:
            said.append(f"{perplexity} {'on text' if on_text else 'held out'}")
    return " · ".join(one for one in (*said, _striking(trace, row), *_pace(run, trace)) if one)


def _loss(trace: xr.Dataset, each: xr.Dataset | None, name: str, label: str, row: int, also: str = "") -> str:
    """A loss, and at which step where that is not the row's."""
    loss, of = latest(trace, each, name, row)
    beside = [f"step {of:,}"] * (of != int(trace["step"][row])) + [also] * bool(also)
    return f"{label} {theme.fmt(loss, 'loss' if abs(loss) < 1e4 else '')}{_in_brackets(beside)}"


def _perplexity(trace: xr.Dataset, each: xr.Dataset | None, row: int) -> str:
    """That of held-out text; empty of a loss that is of no tokens."""
    if not head_scores.predicts_tokens(trace):
        return ""
    perplexity = float(training_curves.perplexity(latest(trace, each, "val_loss", row)[0]))
    return f"perplexity {theme.fmt(perplexity)}" if perplexity < LARGE else "perplexity above 10⁶"


def latest(trace: xr.Dataset, each: xr.Dataset | None, name: str, row: int) -> tuple[float, int]:
    """The last value up to this row and its step: a loop that others wrote may end after its last batch."""
    step = int(trace["step"][row])
    found = each if each is not None and head_scores.holds(each, name) else trace
    held = np.flatnonzero(np.isfinite(found[name].values) & (found["step"].values <= step))
    return (float(found[name][held[-1]]), int(found["step"][held[-1]])) if held.size else (float("nan"), step)


def _striking(trace: xr.Dataset, row: int) -> str:
    """The strongest induction head, or where none stands out the nearest; without such scores the sharpest head."""
    name = next((one for one in ("induction", "entropy_normalised") if head_scores.holds(trace, one)), None)
    if name is None:
        return ""
    step = int(trace["step"][row])
    best = head_scores.default_head(trace, step)
    label, score = theme.head_label(*best), float(trace[name].values[row][best])
    if name == "entropy_normalised":
        return f"sharpest head {label} (entropy {theme.fmt(score, name)} of 1)"
    beside = []
    if head_scores.holds(trace, "induction_control"):
        beside.append(f"control {theme.fmt(float(trace['induction_control'].values[row][best]), name)}")
    weak = not score > THRESHOLD
    if weak:
        beside.append(f"an induction head: above {THRESHOLD:g}")
    stands_out = not weak and head_scores.induction_head(trace, step) is not None
    found = "strongest induction head" if stands_out else "nearest to induction"
    return f"{found} {label} {theme.fmt(score, name)}{_in_brackets(beside)}"


def _in_brackets(said: list[str]) -> str:
    return f" ({', '.join(said)})" * bool(said)


def _pace(run: Run, trace: xr.Dataset) -> list[str]:
    """Tokens a second, or milliseconds a step where nobody counts tokens; the time that is left, or that it took."""
    about, ms, said = run.about, recent_ms(trace), []
    if np.isfinite(rate := tokens_per_second(run, ms)):
        said.append(f"{rate:,.0f} tokens/s")
    elif np.isfinite(ms):
        said.append(f"{ms:,.0f} ms a step")
    cost = run.meta.get("cost", {})
    if run.live and about.steps is not None and np.isfinite(ms):
        said.append(f"{_duration((about.steps - int(trace['step'][-1])) * ms / 1000)} left at this speed")
    elif not run.live and (seconds := cost.get("seconds")):
        share = cost.get("recording_share")
        said.append(_duration(float(seconds)) + (f" (recording +{share:.1%})" if share is not None else ""))
    return said


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
