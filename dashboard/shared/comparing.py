"""Two prompts, two steps or two runs side by side: one head's patterns, their difference, and which heads differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import comparison, head_scores, prompt_attention, prompt_tokens, recorded_prompts
from dashboard.loading.prompt_attention import WHOLE
from dashboard.loading.recorded_prompts import Prompts
from dashboard.shared import choosers, patterns, prompts, switches
from dashboard.shared.asking import asked
from dashboard.shared.mount import draw
from dashboard.state import MOST_OVER
from tracer.measures.aliases import Head
from tracer.pictures import headmap, versus
from tracer.pictures.payload import visible
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.pictures.versus import Side
from tracer.store import Run, nearest_row

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

See = Callable[[int], PromptPatterns]
"""Every head on a prompt, at a step."""
MATCHES = {"label": "Same label in B", "alike": "Most alike in B"}
MANY_CELLS = 20_000_000
"""Cells of all patterns of a shown above which comparing every head waits for a click: about a second."""
WHICH = "**Which heads differ**"
ALONE = "There is no other run here."
LONGEST = 40
"""Characters of a run's name that the bar has room for."""


class Other(NamedTuple):
    """What this view is compared with."""

    run: Run
    shown: PromptPatterns


def _title(run: Run, step: int, head: Head) -> str:
    return f"{theme.head_label(*head)} of {run.name}, step {step:,}"


def is_compared(run: Run, prompt: bool = True) -> bool:
    """Was anything chosen to compare this run with? `prompt`: does another prompt count?"""
    chosen = state.read()
    elsewhere = chosen.compare is not None and chosen.compare != run.name
    return elsewhere or chosen.other_step is not None or (prompt and bool(chosen.other_prompt))


def other_run(run: Run) -> Run:
    """The run that is compared with, which may be this one; errors say why it cannot be opened."""
    chosen = state.read().compare
    return run if chosen is None or chosen == run.name else loading.run(chosen)


def other_step(steps: list[int], step: int) -> int:
    """The one of these steps that is nearest to the chosen one, and until one is chosen to `step`."""
    chosen = state.read().other_step
    return steps[nearest_row(steps, step if chosen is None else chosen)]


def choose_several(run: Run, unasked: Sequence[str] = ()) -> list[Run]:
    """Further runs that a page lays beside this one, those that can be opened; the first is what other pages compare.

    `unasked`: names of those that are laid there until somebody chooses.
    """
    others = [other.name for other in loading.runs() if other.name != run.name]
    parent = (run.meta.get("parent") or {}).get("run")
    others.sort(key=lambda name: name != parent)  # a fork lies over its parent
    chosen = _several(run, unasked)
    others += [name for name in chosen if name not in others]

    def choose(names: list[str]) -> None:
        nobody = {"alone": not names} if unasked else {}
        state.update(compare=names[0] if names else None, over=tuple(names[1:]), **nobody)

    if not others:
        refuse_to_compare(ALONE)
        return []
    more = f" and {len(chosen) - 1} more" if len(chosen) > 1 else ""
    with _asked(visible(chosen[0], LONGEST) + more if chosen else ""):
        names = st.multiselect(
            "Compare with", others, placeholder="no other run", max_selections=MOST_OVER - 1,
            format_func=lambda name: f"{name} (parent)" if name == parent else name,
            **state.control("compare_box", chosen, choose),
        )  # fmt: skip
    opened = []
    for name in names:
        try:
            opened.append(loading.run(name))
        except (ValueError, OSError) as error:
            st.session_state["refused_place"].text(str(error))
    return opened


def _several(run: Run, unasked: Sequence[str]) -> list[str]:
    """The names that are chosen, or those unasked."""
    selection = state.read()
    chosen = dict.fromkeys((selection.compare, *selection.over))
    names = [name for name in chosen if name is not None and name != run.name]
    return (names or ([] if selection.alone else [*unasked]))[: MOST_OVER - 1]


def _asked(chosen: str) -> DeltaGenerator:
    """The bar's place for it, which opens; it says what is `chosen`."""
    label = f"**B** {theme.unmarked(chosen)}" if chosen else "Compare with …"
    place = st.session_state["compare_place"]
    return place.popover(label, icon=":material/compare_arrows:", width="content", type="tertiary", key="compare")


def refuse_to_compare(why: str) -> None:
    """The bar's place says that nothing can be compared here; its help says why."""
    place = st.session_state["compare_place"]
    place.button("Compare with …", icon=":material/compare_arrows:", type="tertiary", key="compare_not",
                 disabled=True, help=why)  # fmt: skip


def choose_other(run: Run, steps: list[int], prompt: bool = True) -> None:
    """What to compare with: another run, another step, another prompt, or any of these together."""
    if not steps:
        refuse_to_compare("It has no snapshot yet.")
        return
    if not prompt and len(steps) == 1 and not is_compared(run) and len(loading.runs()) < 2:
        refuse_to_compare(f"{ALONE} This one has one snapshot.")
        return
    step = choosers.step_in_force(steps)
    compared = is_compared(run, prompt)
    with _asked(_badge(run, step, prompt) if compared else ""):
        st.caption("Choose one of these, or several: the rest stays as on this page.")
        other = _choose_run(run)
        if other is not None:
            _choose_step(run, other, step)
            if prompt:
                _choose_prompt(run, other)
    if compared:
        st.session_state["compare_place"].button(
            "Stop comparing", key="stop_comparing", icon=":material/close:", type="tertiary",
            on_click=lambda: state.update(compare=None, other_step=None, other_prompt=""),
        )  # fmt: skip


def _choose_run(run: Run) -> Run | None:
    chosen, names = state.read().compare, [one.name for one in loading.runs()]
    names = [run.name, *(name for name in names if name != run.name)]
    if chosen is not None and chosen not in names:
        names.append(chosen)

    def moved(name: str) -> None:
        state.update(compare=None if name == run.name else name, other_step=None)

    st.selectbox("Run", names, format_func=lambda name: f"{name} (this run)" if name == run.name else name,
                 **state.control("compare_run", chosen or run.name, moved))  # fmt: skip
    try:
        return other_run(run)
    except (ValueError, OSError) as error:  # OSError: a name too long for the file system
        st.text(str(error))
        return None


def _choose_step(run: Run, other: Run, step: int) -> None:
    steps = steps_of(other, run)
    if len(steps) < 2:
        return
    chosen = state.read().other_step
    st.select_slider(
        "Step of B", steps, format_func=lambda one: f"{one:,}",
        **state.control("compare_step", other_step(steps, step), lambda one: state.update(other_step=one)),
    )  # fmt: skip
    if chosen is not None:
        st.button("Follow the step of this page", key="same_step", type="tertiary", icon=":material/link:",
                  on_click=lambda: state.update(other_step=None))  # fmt: skip
    else:
        st.caption("B follows the step of this page until another is chosen here.")


def _choose_prompt(run: Run, other: Run) -> None:
    chosen = state.read().other_prompt
    if prompts.can_read(run):
        st.text_area(
            "Prompt for B", height=80, placeholder="The same prompt",
            **state.control("compare_prompt", chosen, lambda text: state.update(other_prompt=text.strip())),
        )  # fmt: skip
        return
    names = ["", *_kept(other).names]
    names += [] if chosen in names else [chosen]  # in force, and the comparison says why it cannot be shown
    st.selectbox(
        "Prompt for B", names, format_func=lambda name: name or "The same prompt",
        **state.control("compare_prompt", chosen, lambda name: state.update(other_prompt=name)),
    )  # fmt: skip


def steps_of(other: Run, run: Run) -> list[int]:
    """Steps at which the other can be looked at in the way that this one is."""
    return other.steps if prompts.can_read(run) else _kept(other).steps


def _kept(other: Run) -> Prompts:
    """What the other kept of its prompts; nothing where that cannot be read, and the comparison says why."""
    try:
        return recorded_prompts.prompts(other)
    except ValueError:
        return Prompts([], [], [])


def _badge(run: Run, step: int, prompt: bool) -> str:
    """What this view is compared with, in words."""
    try:
        other = other_run(run)
    except (ValueError, OSError):
        return visible(state.read().compare or "", LONGEST)
    steps = steps_of(other, run)
    what = [] if other.name == run.name else [visible(other.name, LONGEST)]
    if steps and (state.read().other_step is not None or not run.live):  # of a live run it moves on without this line
        what.append(f"step {other_step(steps, step):,}")
    what += ["another prompt"] if prompt and state.read().other_prompt else []
    return ", ".join(what)


def draw_comparison(run: Run, shown: PromptPatterns, see: See, focus: Head) -> None:
    """Nothing unless something was chosen to compare with."""
    if not is_compared(run):
        return
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"):
        st.header(f"{theme.head_label(*focus)} compared", anchor=False, width="content")
        matching = st.container(width="content")
    try:
        other = _other(run, shown, see)
    except (ValueError, OSError) as error:
        refuse(str(error))
        return
    apart = _unlikeness(run, shown, other)
    with matching:
        alike = apart is not None and _match(run, other.run) == "alike"
    beside = comparison.partners(_exists(other.shown), apart if alike else None)
    partner = beside.get(focus)
    label = theme.head_label(*focus)
    if partner is None:
        partner = _striking(other)
        st.caption(f"B has no {label}: shown is its most striking head, {theme.head_label(*partner)}.")
    elif apart is not None and np.isfinite(apart[focus][partner]):
        st.caption(f"{theme.head_label(*partner)} of B behaves {apart[focus][partner]:.2f} away from {label} of A: the "
                   "root mean square over the recorded head measures, in standard deviations. 0 is the same; two "
                   "random heads are 1.4 apart.")  # fmt: skip
    _draw_patterns(run, shown, other, focus, partner)
    _draw_moved(shown, other, focus, beside)


def refuse(why: str) -> None:
    """The rest of the page goes on."""
    st.warning("This comparison cannot be shown.", icon=":material/block:")
    st.text(why)


def _other(run: Run, shown: PromptPatterns, see: See) -> Other:
    """The other shown; a ValueError says why there is none."""
    chosen, other = state.read(), other_run(run)
    if prompts.can_read(run):
        if not prompts.can_read(other):
            raise ValueError(f"{other.name} cannot read this prompt. {theme.sentence(other.why_not('prompts'))}")
        step = other_step(other.steps or [0], shown.step)
        if other is run and not chosen.other_prompt:
            return Other(run, see(step))
        text = chosen.other_prompt or chosen.prompt or prompt_tokens.example(run)
        try:
            encoded = prompt_tokens.encode(other, text, cut=True)
        except ValueError as error:
            raise ValueError(f"{other.name} cannot read this prompt: {error}") from error
        off = shown.off if other is run else ()
        return Other(other, prompt_attention.of_text(other, step, encoded.tokens, encoded.strings, off))
    found, name = recorded_prompts.prompts(other), chosen.other_prompt or str(shown.key[2])
    if name not in found.names:
        known = f"it kept {', '.join(map(repr, found.names[:8]))}" if found.names else "it kept no patterns"
        raise ValueError(f"{other.name} has no kept prompt {name!r}: {known}.")
    return Other(other, recorded_prompts.of_prompt(other, other_step(found.steps, shown.step), name))


def _exists(shown: PromptPatterns) -> np.ndarray:
    return np.asarray(~np.isnan(shown.thumbs).all(axis=(2, 3)))


def _unlikeness(run: Run, shown: PromptPatterns, other: Other) -> np.ndarray | None:
    """Only between two runs: within one, a head stays the same head."""
    if other.run.name == run.name:
        return None
    one, two = loading.so_far(run), loading.so_far(other.run)
    if one is None or two is None:
        return None
    apart = comparison.unlikeness(one, shown.step, two, other.shown.step)
    return apart if np.isfinite(apart).any() else None


def _match(run: Run, other: Run) -> str:
    chosen = state.read().match or ("label" if comparison.began_alike(run, other) else "alike")
    return st.segmented_control(
        "The head of B", list(MATCHES), required=True, format_func=lambda one: MATCHES[one],
        label_visibility="collapsed",
        **state.control("match_box", chosen, lambda one: state.update(match=one)),
    ) or chosen  # fmt: skip


def _striking(other: Other) -> Head:
    try:
        found = head_scores.default_head(loading.trace(other.run), other.shown.step)
        if _exists(other.shown)[found]:
            return found
    except (ValueError, IndexError):
        pass
    layer, head = np.argwhere(_exists(other.shown))[0]
    return int(layer), int(head)


def _draw_patterns(run: Run, shown: PromptPatterns, other: Other, focus: Head, partner: Head) -> None:
    same = comparison.corresponds(shown, focus, other.shown, partner)
    window = patterns.window_of(shown, focus) if patterns.is_long(shown) else (0, WHOLE, 0, WHOLE)
    a = _side(_title(run, shown.step, focus), shown, focus, window)
    b = _side(_title(other.run, other.shown.step, partner), other.shown, partner, window if same else None)
    if shown.off and not other.shown.off:
        st.caption(f"A is without {switches.named(shown.off)}; in B every head is on.")
    if not same:
        st.caption(_why_apart(shown, other))
    elif patterns.is_long(shown):
        st.caption("The window that is drawn above.")
    picture = versus.picture(versus.pack(a, b), head=focus, locked=patterns.held("versus_cell", shown))
    draw(picture, key="versus", on_change=lambda cell: patterns.hold("versus_cell", shown, cell))


def _side(name: str, shown: PromptPatterns, head: Head, window: tuple[int, int, int, int] | None) -> Side:
    """The window, or without one the end of the pattern."""
    n_query, n_key = shown.sizes[head[0]]
    most = patterns.FIRST_WINDOW if max(n_query, n_key) > WHOLE else WHOLE
    q0, q1, k0, k1 = window or (max(0, n_query - most), n_query, max(0, n_key - most), n_key)
    return patterns.side(name, shown, head, (q0, min(q1, n_query), k0, min(k1, n_key)))


def _why_apart(shown: PromptPatterns, other: Other) -> str:
    sizes = f"{len(shown.strings):,} tokens in A, {len(other.shown.strings):,} in B"
    if state.read().other_prompt:
        return f"Two different prompts ({sizes}): their cells do not correspond, so there is no difference to draw."
    return f"B reads the prompt as other tokens ({sizes}): cells do not correspond, so there is no difference to draw."


def _draw_moved(shown: PromptPatterns, other: Other, focus: Head, beside: comparison.Partners) -> None:
    """Which heads differ: a number each."""
    if shown.strings != other.shown.strings:
        return
    label, few = f"Compare all {int(_exists(shown).sum())} heads", comparison.cells(shown) <= MANY_CELLS
    if not asked(f"moved {shown.look} {other.shown.look}", label, key="moved_all", at_once=few, why=WHICH):
        return
    found = comparison.moved(shown, other.shown, beside)
    first = head_scores.top_head(found)
    if first is None:
        return
    st.markdown(WHICH)
    most = float(found[first])
    scale = theme.Scale("Attention moved", "", 0.0, max(0.1, math.ceil(10 * most) / 10), "score", 2)
    left, right = st.columns([5, 4], gap="large")
    with left:
        picture = headmap.picture(
            found, title="Attention moved from A to B", scale=scale, selected=focus, notes=_notes(beside, found.shape),
        )  # fmt: skip
        draw(picture, key="moved", on_change=state.focus_on)
    with right:
        st.markdown(f"**{theme.head_label(*first)}** differs most: on average a token looks elsewhere with "
                    f"**{100 * most:.0f} %** of its attention.")  # fmt: skip
        st.caption("The number of a head is the mean over queries of the total variation distance of its two patterns, "
                   "half the sum of |B − A| over keys: 0 when they are equal, 1 when they share no key.",
                   help="Click a head to see where it differs.")  # fmt: skip


def _notes(beside: comparison.Partners, shape: tuple[int, ...]) -> list[list[str]]:
    def note(layer: int, head: int) -> str:
        partner = beside.get((layer, head))
        return f"beside {theme.head_label(*partner)} of B" if partner else "not in B"

    return [[note(layer, head) for head in range(shape[1])] for layer in range(shape[0])]
