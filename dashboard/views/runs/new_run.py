"""Starting a run, or opening one from elsewhere: forms that say what is wrong before they are pressed."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import jobs, loading, navigation, state, theme, typed_paths
from dashboard.shared.run_bar import short
from tracer.config import TrainConfig
from tracer.presets import PRESETS
from tracer.store import Run, resolve
from tracer.store.copies import is_url
from tracer.training.size import n_params, step_flops

SIZES = {"n_layers": "Layers", "n_heads": "Heads", "d_model": "Width"}
"""Fields of the model that the form sets."""
RANDOM = ("repeated-random", "markov")
"""Corpora that are no text, which a text of one's own cannot stand in for."""
DEMO_SECONDS = 107
"""Of the demo on two cores of a CPU, where no run here says how fast this machine is."""
WATCH = """import tracer
recorder = tracer.watch(model, run="my-run", tokenizer=tokenizer)  # before the loop
recorder.step(loss)  # in the loop, after optimizer.step()"""


def draw_new() -> None:
    """Any preset, with another size, text, seed or length; what it comes to is said before it starts."""
    preset = st.selectbox("Preset", list(PRESETS), key="new_preset")
    base = PRESETS[preset].config
    st.caption(theme.sentence(PRESETS[preset].description))
    boxes = st.columns(4)
    for box, (field, label) in zip(boxes, SIZES.items(), strict=False):
        box.number_input(label, min_value=1, value=getattr(base.model, field), step=1, key=f"new_{field} {preset}")
    boxes[3].number_input("Steps", min_value=1, value=base.steps, step=100, key=f"new_steps {preset}")
    text_box, seed_box, name_box = st.columns([5, 3, 4])
    if base.data.corpus not in RANDOM:
        text_box.text_input(
            "Your own text", key=f"new_corpus {preset}", placeholder="file, folder or hf:NAME",
            help="Empty: the preset's own, the sources of Python's standard library, which needs no download. hf:NAME "
            "is a data set of the Hugging Face hub, which is downloaded.",
        )  # fmt: skip
    seed_box.number_input("Seed", min_value=0, value=0, step=1, key="new_seed")
    name_box.text_input("Name", placeholder=_free_name(preset), key="new_name")
    try:
        st.caption(_estimate(_chosen(preset)))
        wrong = ""
    except ValueError as error:
        wrong = str(error)
    _draw_problem("new", wrong)
    st.button(
        "Train", icon=":material/play_arrow:", key="train_new", type="primary", on_click=_start_chosen,
        disabled=bool(wrong),
    )  # fmt: skip


def _chosen(preset: str) -> TrainConfig:
    """What the form asks for; a ValueError says what cannot be."""
    base, form = PRESETS[preset].config, st.session_state
    sizes: dict[str, Any] = {
        field: int(form.get(f"new_{field} {preset}", getattr(base.model, field))) for field in SIZES
    }
    corpus = str(form.get(f"new_corpus {preset}", "")).strip() or base.data.corpus
    if why := typed_paths.why_no_text(corpus):
        raise ValueError(why)
    return replace(
        base, steps=int(form.get(f"new_steps {preset}", base.steps)), seed=int(form.get("new_seed", 0)),
        model=replace(base.model, **sizes), data=replace(base.data, corpus=corpus),
    )  # fmt: skip


def _estimate(config: TrainConfig) -> str:
    """Size and time, such as "402k parameters, about 2 minutes"."""
    sized = replace(config.model, d_vocab=config.data.vocab_size)
    flops = config.steps * step_flops(sized, config.optim.batch_size)
    seconds, judged = _pace()
    return f"{short(n_params(sized))} parameters, about {_minutes(flops * seconds)} ({judged})."


def _pace() -> tuple[float, str]:
    """Seconds a floating-point operation takes here, by the newest run that says so, and how that is known."""
    for run in loading.runs():
        try:
            seconds, step, config = float(run.meta["cost"]["seconds"]), int(run.meta["step"]), run.config
            model = replace(config.model, d_vocab=int(run.meta["d_vocab"]))
        except (ValueError, KeyError, TypeError):
            continue
        if not run.live and run.meta.get("host") == jobs.host() and step and seconds > 0:
            return seconds / (step * step_flops(model, config.optim.batch_size)), "as fast as the newest run here"
    demo = PRESETS["demo"].config
    work = demo.steps * step_flops(replace(demo.model, d_vocab=demo.data.vocab_size), demo.optim.batch_size)
    return DEMO_SECONDS / work, "on two cores of a processor; a graphics card is faster"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{max(10, 10 * math.ceil(seconds / 10))} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.0f} hours"


def _free_name(preset: str) -> str:
    return jobs.free_name(f"{preset}-{int(st.session_state.get('new_seed', 0))}")


def draw_watch() -> None:
    """Three lines for a training of one's own."""
    st.markdown("Three lines in a training loop of yours, in PyTorch. Nothing in the model has to change.")
    st.code(WATCH, language="python", wrap_lines=True)
    st.caption(
        "Start it in the folder in which this dashboard was started: the run appears here and grows while it trains. "
        'For Hugging Face: `Trainer(..., callbacks=[tracer.TrainerCallback("my-run")])`; for Lightning: '
        '`tracer.LightningCallback("my-run")`.'
    )


def draw_fork(runs: list[Run]) -> None:
    """A new run from any snapshot of a run of ours: with its settings, more steps, or an intervention held."""
    parents = {str(run.dir.resolve()): run for run in runs if run.steps and run.can("resume")}
    if not parents:
        st.caption("No run here has a snapshot to begin from.")
        return
    st.caption("The weights of one step, and the batches that came next. The new run remembers where it is from.")
    where = st.selectbox("From", list(parents), key="fork_run", format_func=_called)
    run = parents[where]
    try:
        config = run.config
    except (ValueError, KeyError, TypeError) as error:
        st.text(str(error))
        return
    step = run.steps[0] if len(run.steps) == 1 else st.select_slider("At step", run.steps, key=f"fork_step {where}")
    st.caption(_optimizer(run, step))
    left, right = st.columns([3, 4])
    with left:
        st.number_input(
            "Train until step", min_value=step + 1, value=max(config.steps, step + 1), step=100,
            key=f"fork_steps {where} {step}",
        )  # fmt: skip
    with right:
        st.text_input("Name", placeholder=jobs.free_name(f"{run.name}-from-{step}"), key="fork_name")
    st.text_input(
        "Clamp during training", value=", ".join(config.clamp), key=f"fork_clamp {where}",
        placeholder="nothing, or for example: L0H1 off, L0 no-previous 500:900",
        help="Apart by commas. off: the head writes nothing. no-previous: it may not attend to the token before. "
        "previous: it attends to nothing else. L0 is all heads of a layer, 200:600 a window of steps.",
    )  # fmt: skip
    st.button("Fork", icon=":material/fork_right:", key="fork", type="primary", on_click=_fork, args=(parents,))
    _draw_problem("fork")


def _optimizer(run: Run, step: int) -> str:
    """Whether the optimizer goes on from a step, in words."""
    steps = run.state_steps
    if step in steps:
        return "The optimizer goes on, too: with nothing changed, the new run is this one again, to the bit."
    near = [f"{one:,}" for one in (*[s for s in steps if s < step][-1:], *[s for s in steps if s > step][:1])]
    goes_on = f" It goes on from step {' or '.join(near)}." if near else ""
    why = "" if run.can("states") else f" {run.why_not('states')}."
    return f"The optimizer starts fresh here.{goes_on}{why}"


def _called(where: str) -> str:
    """The name of a run, or the path of one that lies elsewhere, where another may have that name."""
    name = Path(where).name
    return name if resolve(name).resolve() == Path(where) else where


def _fork(parents: dict[str, Run]) -> None:
    """With what the form holds now: a click may come right after a key, before the page was drawn again."""
    form = st.session_state
    where = form["fork_run"]
    run = parents[where]
    step = int(form.get(f"fork_step {where}", run.steps[0]))
    name = form["fork_name"].strip() or jobs.free_name(f"{run.name}-from-{step}")
    steps = int(form.get(f"fork_steps {where} {step}", max(run.config.steps, step + 1)))
    clamp = form.get(f"fork_clamp {where}", ", ".join(run.config.clamp))
    try:
        jobs.fork(run, step, name, steps, clamp)
        st.session_state.update(fork_name="")
        st.session_state.pop("forking", None)
    except (ValueError, OSError) as error:
        _complain("fork", error)


def draw_open() -> None:
    """What is there already: a model of others, or a run that lies elsewhere."""
    st.markdown("**A Hugging Face model**")
    draw_hugging_face()
    st.divider()
    st.markdown("**A run that lies elsewhere**")
    _draw_open_run()


def _draw_open_run() -> None:
    """A directory anywhere on this machine, or a URL."""
    path = st.text_input(
        "Path or URL of a run directory", key="open_path", placeholder="/path/to/demo-0 or s3://bucket/runs/demo-0",
        help="s3://, gs://, hf://, ssh:// and https:// are read with your own credentials; a copy is kept here, "
        "weights are fetched when a page asks for them, and a live run is followed.",
    ).strip()  # fmt: skip
    if not st.button("Open", key="open_other", icon=":material/folder_open:", disabled=not path):
        return
    try:
        if is_url(path):
            with st.spinner("Fetching the run"):
                directory = loading.fetch(path)
        else:
            directory = _home(path)
        loading.run(str(directory))
    except (ValueError, OSError) as error:
        _draw_problem("open", str(error))
        return
    state.open_run(str(directory))
    st.switch_page(navigation.page("heads"))


def draw_hugging_face() -> None:
    """A model in a directory or on the hub, at one state or at several that training left behind."""
    model = st.text_input(
        "Directory, or name on the hub", key="hf_model", placeholder="/path/to/model or EleutherAI/pythia-14m"
    ).strip()
    directory = _home(model)
    why = typed_paths.why_no_model(model) if model else ""
    if why:
        _draw_problem("model", f"{why}.")
    elif model:
        if os.path.isdir(directory):
            st.caption(_found(typed_paths.checkpoints(directory)))
        else:
            st.text_input(
                "Revisions, apart by spaces", key="hf_revisions", placeholder="step1000 step10000 step100000",
                help="Branches or tags whose numbers are steps: one step of the run each. Empty: the model as it is.",
            )  # fmt: skip
            st.caption("From the hub it is downloaded first. Code that comes with a model is never run.")
        st.text_input("Name", placeholder=_model_name(model), key="hf_name")
    st.button(
        "Open", icon=":material/deployed_code:", key="open_hf", disabled=not model or bool(why), on_click=_open_model
    )  # fmt: skip
    _draw_problem("hf")


def _home(path: str) -> Path:
    """With ~ written out; as it is where nobody has that name."""
    return Path(os.path.expanduser(path))


def _found(checkpoints: list[int]) -> str:
    if not checkpoints:
        return "One state of a model: its heads are measured once."
    steps = [f"{step:,}" for step in checkpoints]
    shown = ", ".join(steps if len(steps) <= 6 else [*steps[:3], "…", *steps[-2:]])
    return f"{len(steps)} checkpoints, of steps {shown}: its heads are measured at each."


def _model_name(model: str) -> str:
    return jobs.free_name(typed_paths.model_name(str(_home(model))))


def _open_model() -> None:
    form = st.session_state
    model = str(_home(form["hf_model"].strip()))
    revisions = [] if os.path.isdir(model) else form.get("hf_revisions", "").split()
    try:
        jobs.open_model(model, revisions, form.get("hf_name", "").strip() or _model_name(model))
        st.session_state.update(hf_name="", way_open=False)
    except (ValueError, OSError) as error:
        _complain("hf", error)


def _start_chosen() -> None:
    """With what the form holds now: a click may come right after a key, before the page was drawn again."""
    form = st.session_state
    preset = form["new_preset"]
    try:
        config = _chosen(preset)
        base = PRESETS[preset].config
        sizes = {field: getattr(config.model, field) for field in SIZES}
        changed = [f"--model.{field.replace('_', '-')}={value}" for field, value in sizes.items()
                   if value != getattr(base.model, field)]  # fmt: skip
        if config.data.corpus != base.data.corpus:
            changed.append(f"--data.corpus={config.data.corpus}")
        start(preset, config.seed, config.steps, form["new_name"].strip() or _free_name(preset), *changed)
    except ValueError as error:
        _complain("new", error)


def start(preset: str, seed: int, steps: int, name: str, *changed: str) -> None:
    """Begin a training, or say in the form why that cannot be."""
    try:
        jobs.train(preset, name, seed, steps, *changed)
        st.session_state.update(new_name="", way_train=False)
    except (ValueError, OSError) as error:
        _complain("new", error)


def _complain(form: str, error: Exception) -> None:
    """What came of a press, with what the form held then."""
    st.session_state[f"form_problem {form}"] = str(error), _held(form)


def _draw_problem(form: str, now: str = "") -> None:
    """What is wrong with what the form holds now, else what came of the last press, until the form is changed."""
    said, held = st.session_state.get(f"form_problem {form}", ("", None))
    if text := now or (said if held == _held(form) else ""):
        with st.container(key=f"problem_{form}"):
            st.text(text)


def _held(form: str) -> dict[str, object]:
    return {str(key): value for key, value in st.session_state.items() if str(key).startswith(f"{form}_")}
