"""The entropy of a head over training, and how low it could have been: Zhai's bound, and what its scores allow."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import diagnoses
from dashboard.loading.diagnoses import Bounds
from dashboard.shared.mount import draw
from tracer.measures.aliases import Head
from tracer.pictures import curves
from tracer.pictures.scales import EVEN
from tracer.store import Run, nearest_row

HEIGHT = 250
TITLE = "How low could its entropy be? Zhai's bound"
"""Without the head's name, or another head would close it."""
NOTHING = 1e-6
"""nats: an entropy below this is 0 in every picture and in every sentence."""
ABOUT = """
**A lower bound:** the entropy of a row cannot be below it, and is usually far above it.

**Formula.** Of a row over T keys whose scores, as a vector, stand s from their mean:
```text
ln(1 + (T-1) b) + s sqrt(T (T-1)) b / (1 + (T-1) b)
b = exp(-s sqrt(T / (T-1)))
```
It is ln T, all keys alike, at s = 0, and falls about as T s exp(−s).

**Its scores allow** takes s from the scores themselves. A row of that size can reach it: one key ahead, the others
alike.

**Zhai's bound** takes what the weights allow:
```text
s = scale * ||W_Q W_K^T||_2 * ||X X^T||_2
```
The first norm is the largest singular value of the head's QK matrix. X is what the head reads, after any norm and with
its positions, one row a token. It is loose, because it knows norms only: in a trained model it is nearly always close
to 0, in healthy heads too. What it tells is what lowers it: the bound falls exponentially with the spectral norm, so
keeping that small (σReparam, normalised q and k) keeps entropy from collapsing.

**Conditions.** Scores bilinear in X, without biases of q and k. In a causal row q the keys are the first T = q + 1
tokens, whose norm is no larger than that of all of X. With rotary positions ||W_Q|| ||W_K|| stands for the norm of
their product. All curves are means over rows q ≥ 1.

Source: Zhai et al. 2023 (2303.06296), Theorem 3.1; the tighter bound by the scores is a step of its proof.
"""


def draw_bound(run: Run, head: Head, *, key: str) -> None:
    """A closed line until somebody asks: it runs the model at every snapshot."""
    opened = st.expander(TITLE, icon=":material/vertical_align_bottom:", key=f"{key}_open", on_change="rerun")
    with opened:
        if not opened.open:
            return
        try:
            found = diagnoses.bounds(run, head)
        except (ValueError, OSError, RuntimeError) as error:
            st.text(str(error))
            return
        if found is None:
            lacks = "It needs snapshots and a text of its probe, which this run did not keep."
            st.caption(run.why_not("entropy_bound") or lacks)
            return
        _draw(found, theme.head_label(*head), key)


def _draw(found: Bounds, label: str, key: str) -> None:
    step, log_x = state.read().step, state.read().log
    at = nearest_row(found.steps, step)
    st.markdown(reading(found, label, at))
    left, right = st.columns(2, gap="large")
    with left:
        lines = np.stack([found.entropy, found.by_scores, found.by_weights])
        blob = curves.pack(found.steps, lines, ["entropy", "its scores allow", "Zhai's bound"])
        scale = theme.Scale("Entropy", "nats", chance=found.uniform, mark=EVEN, digits=3)
        picture = curves.picture(blob, step=step, log_x=log_x, scale=scale, selectable=False, height=HEIGHT)
        draw(picture, key=f"{key}_entropy")
    with right:
        sizes = np.stack([found.weight_size, found.score_size])
        blob = curves.pack(found.steps, sizes, ["weights allow", "its scores"], log_y=True)
        picture = curves.picture(
            blob, step=step, log_x=log_x, scale=theme.Scale("Size of a row of scores, s"), selectable=False,
            height=HEIGHT,
        )  # fmt: skip
        draw(picture, key=f"{key}_size")
    st.caption(
        f"At {len(found.steps)} snapshot{'s' * (len(found.steps) != 1)}, on {found.sequences} held-out "
        f"passage{'s' * (found.sequences != 1)} of {found.tokens} tokens. Other pictures measure entropy on more text, "
        "so it differs a little there."
    )
    with st.popover("What is this?", type="tertiary", icon=":material/help:"):
        st.markdown(ABOUT)


def reading(found: Bounds, label: str, at: int) -> str:
    """The numbers of one head at one snapshot, in a sentence."""
    if not np.isfinite(found.entropy[at]):
        return f"At step {found.steps[at]:,} the model's numbers are not finite."
    zhai = found.by_weights[at]
    small = (
        "less than a tenth of that entropy" if zhai <= found.entropy[at] / 10 else "at least a tenth of that entropy"
    )
    rules = "which rules nothing out" if zhai < NOTHING else small
    return (
        f"At step {found.steps[at]:,} the entropy of {label} is **{_nats(found.entropy[at])}**. Scores of the size "
        f"that it has (s = {_size(found.score_size[at])}) allow no less than **{_nats(found.by_scores[at])}**; its "
        f"weights would allow scores of s = {_size(found.weight_size[at])}, so that Zhai's bound is "
        f"**{_nats(zhai)}**, {rules}."
    )


def _nats(value: float) -> str:
    return (
        "0 nats" if value == 0 else f"{theme.fmt(value, 'entropy')} nats" if value >= 5e-4 else f"{_power(value)} nats"
    )


def _power(value: float) -> str:
    """10⁻⁵³, because nobody needs its digits."""
    return "10" + str(round(float(np.log10(value)))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _size(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
