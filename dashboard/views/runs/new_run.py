"""Starting a run, or opening one from elsewhere: the first thing a newcomer sees, and a form later."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import streamlit as st

from dashboard import jobs, loading, navigation, state
from dashboard.shared.mount import draw
from tracer.pictures import pattern
from tracer.presets import PRESETS
from tracer.store import Run

TOKENS = ["the", " red", " fox", " saw", " the", " red", " fox", " run"]
PREVIOUS = (0, 0, 1, 2, 3, 4, 5, 6)
INDUCTION = (0, 0, 0, 0, 1, 2, 3, 0)
"""Where each of the tokens looks; the first is where a head looks that has nothing to look for."""
COMING = (
    (0, "the loss falls fast: it learns which tokens are frequent and what follows what.", "training"),
    (200, "a head of layer 0 turns to the token before: a sharp diagonal.", "heads"),
    (800, "a head of layer 1 finds what came next the last time, and the loss on repeated tokens drops.", "heads"),
    (1300, "it is done. Switch that head off, and see what breaks.", ""),
)
"""Of the demo: from which step, what, and on which page; the same within 100 steps for the seeds that were tried."""
STYLE = """<style>
ol.coming { list-style: none; margin: .2rem 0 .4rem; padding: 0; line-height: 1.5; }
ol.coming li { display: grid; grid-template-columns: 5.4rem 1fr; gap: .8rem; margin: 0; padding: 0 0 .7rem; }
ol.coming li > span { position: relative; padding: 0 0 0 1.3rem; }
ol.coming li > span::before { content: ""; position: absolute; left: 0; top: .42rem; width: .55rem; height: .55rem;
  border-radius: 50%; background: #3b6be0; }
ol.coming li:not(:last-child) > span::after { content: ""; position: absolute; left: .22rem; top: 1.15rem;
  bottom: -.95rem; width: 1.5px; background: #3b6be055; }
ol.coming b { font-weight: 500; text-align: right; opacity: .72; font-variant-numeric: tabular-nums; }
</style>"""


def draw_welcome() -> None:
    """With no run at all: what a head is, in three sentences and two pictures, and one button."""
    with st.container(border=True, key="welcome"):
        text, pictures = st.columns([5, 6], gap="large", vertical_alignment="top")
        with text:
            st.header("Watch a transformer learn to look back", anchor=False)
            st.markdown(
                "A language model reads from left to right, and at every token each of its *attention heads* looks "
                "back and carries something over. What it looks at is its pattern: a row for each token that looks, a "
                "column for each that it may look at. Nobody tells a head where to look: it learns that, and here you "
                "see when."
            )
            st.html(STYLE + _timeline())
            st.button(
                "Train the demo (2 minutes)", type="primary", icon=":material/play_arrow:", key="train_demo",
                on_click=_start, args=("demo", 0, PRESETS["demo"].config.steps, "demo-0"),
            )  # fmt: skip
            st.caption("On a laptop's processor. Nothing is downloaded, and nothing leaves this machine.")
            _draw_problem()
        with pictures:
            _draw_pictures()
    st.space("small")
    st.caption("Or begin elsewhere")
    left, middle, right = st.columns(3, gap="medium")
    with left, st.expander("Train something else", icon=":material/tune:"):
        draw_new()
    with middle, st.expander("Open a Hugging Face model", icon=":material/deployed_code:"):
        draw_hugging_face()
    with right, st.expander("Open a run directory", icon=":material/folder_open:"):
        draw_open()


def _draw_pictures() -> None:
    """Two heads drawn by hand on eight tokens, in the picture that the pages use."""
    left, right = st.columns(2, gap="medium")
    for column, label, does, looks in (
        (left, "Previous-token head", "looks at the token before", PREVIOUS),
        (right, "Induction head", "looks at what came next, the last time", INDUCTION),
    ):
        with column:
            st.markdown(f"**{label}**  \n{does}")
            blob = pattern.pack(_by_hand(looks), TOKENS, label=label)
            draw(pattern.picture(blob, max_size=300, text=False), key=f"welcome {label}")


def _timeline() -> str:
    """The demo's course as a list, a step beside each event; our own words only."""
    lines = (f"<li><b>step {start:,}</b><span>{what[0].upper()}{what[1:]}</span></li>" for start, what, _ in COMING)
    return f'<ol class="coming">{"".join(lines)}</ol>'


def _by_hand(looks: tuple[int, ...]) -> np.ndarray:
    """A pattern [query_pos key_pos] in which each token pays nine tenths to one, and the rest to all that it sees."""
    n = len(looks)
    rest = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    return 0.1 * rest + 0.9 * np.eye(n)[list(looks)]


def draw_coming(step: int) -> None:
    """What there is to see while the demo trains, with the part that is going on marked."""
    here = sum(step >= start for start, _, _ in COMING) - 1
    with st.container(border=True, key="coming", gap="xsmall"):
        st.markdown("**What you will see**")
        for i, (start, what, page) in enumerate(COMING):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                line = f"{'✓' if i < here else '◐' if i == here else '○'} {_since(start)}, {what}"
                st.markdown(f"**{line}**" if i == here else line, width="content")
                if i == here and page and step:
                    st.page_link(navigation.page(page), label=f"Look at {page.capitalize()}", width="content")


def _since(step: int) -> str:
    return f"From about step {step:,}" if step else "At first"


def draw_new() -> None:
    """Any preset, with seed and steps."""
    preset = st.selectbox("Preset", list(PRESETS), key="new_preset")
    st.caption(_sentence(PRESETS[preset].description))
    seed_box, steps_box, name_box = st.columns([2, 3, 4])
    with seed_box:
        seed = st.number_input("Seed", min_value=0, value=0, step=1, key="new_seed")
    with steps_box:
        st.number_input("Steps", min_value=1, value=PRESETS[preset].config.steps, step=100, key=f"new_steps {preset}")
    with name_box:
        st.text_input("Name", placeholder=jobs.free_name(f"{preset}-{int(seed)}"), key="new_name")
    st.button(
        "Train", icon=":material/play_arrow:", key="train_new", type="primary", on_click=_start_chosen
    )  # fmt: skip
    _draw_problem()


def draw_fork(runs: list[Run]) -> None:
    """A new run from any snapshot of a run of ours: with its settings, more steps, or an intervention held."""
    parents = {run.name: run for run in runs if run.steps and not run.why_not("resume")}
    if not parents:
        st.caption("No run here has a snapshot to begin from.")
        return
    st.caption("The weights of one step, and the batches that came next. The new run remembers where it is from.")
    run = parents[st.selectbox("From", list(parents), key="fork_run")]
    try:
        config = run.config
    except (ValueError, KeyError, TypeError) as error:
        st.text(str(error))
        return
    step = run.steps[0] if len(run.steps) == 1 else st.select_slider("At step", run.steps, key=f"fork_step {run.name}")
    left, right = st.columns([3, 4])
    with left:
        st.number_input(
            "Train until step", min_value=step + 1, value=max(config.steps, step + 1), step=100,
            key=f"fork_steps {run.name} {step}",
        )  # fmt: skip
    with right:
        st.text_input("Name", placeholder=jobs.free_name(f"{run.name}-from-{step}"), key="fork_name")
    st.text_input(
        "Clamp during training", value=", ".join(config.clamp), key=f"fork_clamp {run.name}",
        placeholder="nothing, or for example: L0H1 off, L0 no-previous 500:900",
        help="Apart by commas. off: the head writes nothing. no-previous: it may not attend to the token before. "
        "previous: it attends to nothing else. L0 is all heads of a layer, 200:600 a window of steps.",
    )  # fmt: skip
    st.button(
        "Fork", icon=":material/fork_right:", key="fork", type="primary", on_click=_fork, args=(parents,)
    )  # fmt: skip
    if message := st.session_state.get("fork_problem"):
        st.text(message)


def _fork(parents: dict[str, Run]) -> None:
    """With what the form holds now: a click may come right after a key, before the page was drawn again."""
    form = st.session_state
    run = parents[form["fork_run"]]
    step = int(form.get(f"fork_step {run.name}", run.steps[0]))
    name = form["fork_name"].strip() or jobs.free_name(f"{run.name}-from-{step}")
    steps = int(form.get(f"fork_steps {run.name} {step}", max(run.config.steps, step + 1)))
    clamp = form.get(f"fork_clamp {run.name}", ", ".join(run.config.clamp))
    try:
        jobs.fork(run, step, name, steps, clamp)
        st.session_state.pop("fork_problem", None)
        st.session_state.update(fork_name="", way_fork=False)
        st.session_state.pop("forking", None)
    except (ValueError, OSError) as error:
        st.session_state["fork_problem"] = str(error)


def draw_open() -> None:
    """A directory anywhere on this machine."""
    path = st.text_input("Path of a run directory", key="open_path", placeholder="/path/to/checkpoints/demo-0")
    if not st.button("Open", key="open_other", icon=":material/folder_open:", disabled=not path.strip()):
        return
    directory = _home(path.strip())
    try:
        loading.run(str(directory))
    except (ValueError, OSError) as error:
        st.text(str(error))
        return
    state.open_run(str(directory))
    st.switch_page(navigation.page("heads"))


def draw_hugging_face() -> None:
    """A model in a directory or on the hub, at one state or at several that training left behind."""
    model = st.text_input(
        "Directory, or name on the hub", key="hf_model", placeholder="/path/to/model or EleutherAI/pythia-14m"
    ).strip()
    directory = _home(model)
    why = _why_not(model)
    if why:
        st.text(f"{why}.")
    elif model and _is_directory(directory):
        st.caption(_found(jobs.checkpoints(directory)))
    else:
        st.text_input(
            "Revisions, apart by spaces", key="hf_revisions", placeholder="step1000 step10000 step100000",
            help="Branches or tags whose numbers are steps: one step of the run each. Empty: the model as it is.",
        )  # fmt: skip
        st.caption("From the hub it is downloaded first. Code that comes with a model is never run.")
    suggested = _model_name(model or "model")
    st.text_input("Name", placeholder=suggested, key="hf_name")
    st.button(
        "Open", icon=":material/deployed_code:", key="open_hf", disabled=not model or bool(why), on_click=_open_model
    )  # fmt: skip
    if message := st.session_state.get("hf_problem"):
        st.text(message)


def _home(path: str) -> Path:
    """With ~ written out; as it is where nobody has that name."""
    return Path(os.path.expanduser(path))


def _why_not(model: str) -> str:
    try:
        return jobs.why_no_model(model)
    except (OSError, ValueError):  # a name too long for the file system, or with a zero byte
        return ""


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name too long for the file system, or with a zero byte
        return False


def _found(checkpoints: list[int]) -> str:
    if not checkpoints:
        return "One state of a model: its heads are measured once."
    steps = [f"{step:,}" for step in checkpoints]
    shown = ", ".join(steps if len(steps) <= 6 else [*steps[:3], "…", *steps[-2:]])
    return f"{len(steps)} checkpoints, of steps {shown}: its heads are measured at each."


def _model_name(model: str) -> str:
    return jobs.free_name(jobs.model_name(str(_home(model))))


def _open_model() -> None:
    form = st.session_state
    model = str(_home(form["hf_model"].strip()))
    revisions = [] if _is_directory(Path(model)) else form.get("hf_revisions", "").split()
    try:
        jobs.open_model(model, revisions, form["hf_name"].strip() or _model_name(model))
        st.session_state.pop("hf_problem", None)
        st.session_state.update(hf_name="", way_model=False)
    except (ValueError, OSError) as error:
        st.session_state["hf_problem"] = str(error)


def _start_chosen() -> None:
    form = st.session_state
    preset, seed = form["new_preset"], int(form["new_seed"])
    steps = int(form.get(f"new_steps {preset}", PRESETS[preset].config.steps))
    _start(preset, seed, steps, form["new_name"].strip() or jobs.free_name(f"{preset}-{seed}"))


def _start(preset: str, seed: int, steps: int, name: str) -> None:
    try:
        jobs.train(preset, name, seed, steps)
        st.session_state.pop("new_problem", None)
        st.session_state.update(new_name="", way_train=False)
    except (ValueError, OSError) as error:
        st.session_state["new_problem"] = str(error)


def _draw_problem() -> None:
    if message := st.session_state.get("new_problem"):
        st.text(message)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "."
