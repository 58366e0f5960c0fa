"""The Ablate page's search for the few heads that are enough for copying."""

from __future__ import annotations

from html import escape

import streamlit as st

from dashboard import state, theme
from dashboard.loading import ablation
from dashboard.loading.ablation import Setup
from dashboard.shared.asking import asked
from dashboard.views.ablate import data
from tracer.store import Run

TARGET = 0.9
MOST = 64
"""Heads of a model that is searched on the page: each choice tries all that are left."""
STYLE = """<style>
.bars { width: 100%; border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
.bars th, .bars td { padding: .2rem 0; font-weight: 400; text-align: left; white-space: nowrap; }
.bars .x { width: 80%; padding: 0 1rem; }
.bars .x div { position: relative; height: 1.1rem; }
.bars .x i { position: absolute; inset: 0 auto 0 0; border-radius: 0 3px 3px 0; background: currentColor; }
.bars .dropped i { background: rgb(127 127 127 / .8); }
.bars .x b { position: absolute; top: -.2rem; bottom: -.2rem; border-left: 1.5px dashed rgb(127 127 127); }
</style>"""


def can_search(run: Run, setup: Setup) -> bool:
    return ablation.repeats(run) and not ablation.is_large(run) and sum(setup.model.heads_of_layers) <= MOST


def draw_circuit(setup: Setup) -> None:
    """A button until it is asked for; then the heads in order, what each brings, and a button that applies them."""
    from tracer.ablate.parts import every_head

    heads = every_head(setup.model)
    st.caption(
        f"Starts with all heads off and adds the most helpful one at a time until {TARGET:.0%} of the copying ability "
        "is back: how much lower the loss of repeated tokens is than that of new ones. Then it drops heads that are "
        "not needed. The search is greedy: another set may do as well."
    )
    how = (setup.step, setup.mode, setup.frozen)
    if not asked(f"circuit {setup.run} {how}", "Search", key="circuit", icon=":material/account_tree:"):
        return
    place, rounds = st.empty(), 0
    place.progress(0.0, text="No head yet")

    def told(done: int, of: int) -> None:
        """Of all heads that there are; a search that is done before that is done early."""
        nonlocal rounds
        place.progress(min(1.0, (rounds + done / of) / (len(heads) + 2)), text=f"Round {rounds + 1}")
        rounds += done == of

    try:
        found = data.circuit(setup.opened, *how, TARGET, told)
    except ValueError as error:
        place.empty()
        st.text(theme.sentence(str(error)))
        return
    place.empty()
    _draw(found, setup, heads)


def _draw(found: data.Circuit, setup: Setup, everything: list[tuple[int, int]]) -> None:
    names = " ".join(theme.head_label(*head) for head in found.heads)
    how = {"zero": "writing nothing", "mean": "at their means", "resample": "resampled"}[setup.mode]
    left, right = st.columns([5, 4], gap="large")
    with left:
        st.html(bars(found))
        st.caption(f"Share of the gain after each choice, from {_percent(found.curve[0])} with every "
                   f"head off; the dashed line is the target, {TARGET:.0%}.")  # fmt: skip
    with right:
        size = f"{len(found.heads)} of {len(everything)} heads" if len(found.heads) > 1 else "One head"
        said = f"keep {found.share:.0%}" if len(found.heads) > 1 else f"keeps {found.share:.0%}"
        st.markdown(f"**{size} {said}** of the gain, with all others {how}: {names or 'none'}.")
        if not found.reached:
            st.caption(f"No set reaches {TARGET:.0%}: even together these heads do not.")
        repeated, new = ([theme.fmt(loss, "loss") for loss in losses] for losses in (found.repeated, found.new))
        st.caption(
            "The gain is the loss of new tokens minus that of repeated ones. With these heads repeated tokens cost "
            f"{repeated[1]} nats ({repeated[0]} with all heads on), new ones {new[1]} ({new[0]})."
            + (" Above 100 %, new ones got worse by more than repeated ones did." if found.share > 1 else "")
        )
        others = tuple(head for head in everything if head not in found.heads)
        st.button(
            "Switch all others off", key="apply_circuit", disabled=not others or others == setup.off,
            on_click=lambda: state.update(off=others), help="The switches above then leave only these heads on",
        )  # fmt: skip


def bars(found: data.Circuit) -> str:
    """A bar a choice, in order; grey where a head was dropped again."""
    top = max(1.0, *(share for _, _, share in found.choices)) if found.choices else 1.0

    def row(head: tuple[int, int], taken: bool, share: float) -> str:
        wide = 100 * min(max(share, 0.0), top) / top
        plot = f'<i style="width:{wide:.1f}%"></i><b style="left:{100 * TARGET / top:.1f}%"></b>'
        name = f"{'+' if taken else '−'}{theme.head_label(*head)}"
        return (
            f'<tr class="{"" if taken else "dropped"}"><th scope="row">{escape(name)}</th>'
            f'<td class="x" aria-hidden="true"><div>{plot}</div></td><td>{_percent(share)}</td></tr>'
        )

    return f'{STYLE}<table class="bars"><tbody>{"".join(row(*one) for one in found.choices)}</tbody></table>'


def _percent(share: float) -> str:
    return f"{round(100 * share)} %".replace("-", "−")
