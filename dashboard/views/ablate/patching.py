"""Activation patching on the Ablate page: which activation of a clean prompt restores its answer in a corrupted one."""

from __future__ import annotations

import streamlit as st

from dashboard import theme
from dashboard.loading import prompt_tokens
from dashboard.loading.ablation import Setup
from dashboard.shared.mount import draw
from dashboard.shared.plots import plot
from dashboard.views.ablate import data, figures
from tracer.pictures import headmap
from tracer.pictures.payload import visible
from tracer.store import Run

PLACES = {"z": "Heads (z)", "resid_pre": "What a layer reads", "attn_out": "Attention output", "mlp_out": "MLP output"}
INTO = {"corrupted": "clean into corrupted", "clean": "corrupted into clean"}
ABOUT = """
One prompt a line; line i of one box goes with line i of the other, and all are equally long in tokens. Both are run;
then one activation of the one run is put into the other, and the logit difference of the two answers is read at the
last token. **Clean into corrupted** finds what suffices to restore the clean answer, **corrupted into clean** what is
needed for it. 1 is the clean run, 0 the corrupted one.

The answers are what the model itself thinks likeliest after each: the right one after the clean prompt, the wrong one
after the corrupted prompt.

Source: Wang et al. 2022, *Interpretability in the wild*. In Python: `tracer.patch(model, clean, corrupted, at="z")`.
"""


def draw_patching(run: Run, setup: Setup) -> None:
    """Runs when it is asked to."""
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.header("Activation patching", anchor=False, width="content")
        with st.popover("What is this?", type="tertiary", icon=":material/help:", width="content"):
            st.markdown(ABOUT)
    with st.form("patching", border=False):
        left, right = st.columns(2, gap="large")
        clean = left.text_area("Clean prompts, one a line", key="patch_clean", height=100)
        corrupted = right.text_area("Corrupted prompts, as long in tokens", key="patch_corrupted", height=100)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            at = st.selectbox("Patched", list(PLACES), format_func=PLACES.__getitem__, key="patch_at", width=220)
            into = st.selectbox("Direction", list(INTO), format_func=INTO.__getitem__, key="patch_into", width=220)
            asked = st.form_submit_button("Patch", icon=":material/play_arrow:")
    if not (asked or st.session_state.get("patch_done")) or not (clean.strip() and corrupted.strip()):
        return
    try:
        prompts, others = _rows(run, clean), _rows(run, corrupted)
        found = data.patched(setup.opened, setup.step, prompts, others, at, into)
    except ValueError as error:
        st.session_state.patch_done = False
        st.warning("These prompts cannot be patched.", icon=":material/block:")
        st.text(str(error))
        return
    st.session_state.patch_done = True
    _draw(run, found, prompts[0], at)


def _rows(run: Run, text: str) -> data.Rows:
    lines = [line for line in text.splitlines() if line.strip()]
    return tuple(tuple(prompt_tokens.encode(run, line, data.LONGEST_PAIR).tokens) for line in lines)


def _draw(run: Run, found: data.Patched, prompt: tuple[int, ...], at: str) -> None:
    right, wrong = (visible(text, 24) for text in prompt_tokens.strings(run, [found.right[0], found.wrong[0]]))
    st.caption(f"Logit of the clean answer minus that of the corrupted one, over {len(found.right)} pairs: "
               f"{found.clean:.2f} in the clean runs, {found.corrupted:.2f} in the corrupted ones.")  # fmt: skip
    st.text(f"Of the first pair: “{right}” against “{wrong}”.")
    if at == "z":
        scale = theme.Scale("Restored", lo=-1, hi=1, palette="change", digits=2)
        draw(headmap.picture(found.share, title="Share of the difference", scale=scale), key="patched_heads")
        return
    words = [f"{i} {visible(text, 12)}" for i, text in enumerate(prompt_tokens.strings(run, list(prompt)))]
    columns = dict(zip(words, found.share.T.tolist(), strict=True))
    figure = figures.patched(found.share, words)
    plot(figure, key="patched", alt=f"{PLACES[at]}: share restored by layer and position",
         numbers=lambda: {"layer": list(range(len(found.share))), **columns})  # fmt: skip
