"""Lines of Python that compute again what a page shows, for a reader who was given no page; keyed by its address.

Papers shows no run of a reader's choice but a whole series of them: its lines are `series`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboard.loading import head_scores, prompt_tokens
from dashboard.state import Selection
from tracer.analysis import training_curves
from tracer.measures.aliases import Head
from tracer.named_code import ROLES, remembered
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

TRAINING = ("train_loss", "val_loss", "repeat_loss", "icl_score", "entropy")
LONGEST = 512
"""Tokens of a prompt that are written out, as many as Circuits takes."""
GRADIENTS = ("grad_norm", "grad_norm_clipped", "weight_norm", "update_ratio", "clip_factor")


@dataclass(frozen=True)
class View:
    """What a page shows: a run at a step, with a head in focus, and whether its model can be run here."""

    run: Run
    trace: xr.Dataset
    step: int
    head: tuple[int, int] | None
    """None where the run has no heads."""
    selection: Selection
    runs: bool


def snippet(page: str, view: View) -> str:
    """The lines, for the runs under checkpoints/ where the reader works."""
    return PAGES[page](view)


def _opened(view: View, *imports: str) -> str:
    return "\n".join(["import tracer", *imports, "", f"run = tracer.open_run({f'checkpoints/{view.run.name}'!r})"])


def _recorded(view: View, names: list[str]) -> str:
    held = [name for name in names if head_scores.holds(view.trace, name)]
    of = f"[{held!r}]" if held else ""
    return f"run.trace{of}.sel(step={view.step}, method='nearest')  # without .sel: every recorded step"


def _training(view: View) -> str:
    return f"{_opened(view)}\n{_recorded(view, list(dict.fromkeys([*TRAINING, view.selection.measure])))}"


def rebuilt(run: Run, step: int) -> str:
    """The call that makes a run's model; `build` where only a function of the reader's can."""
    build = run.meta.get("build")
    return f"model({step}, build={build!r})" if build else f"model({step})"


def _phases(view: View) -> str:
    if not training_curves.readable(view.run):
        return "\n".join([
            _opened(view, "from tracer.analysis.training_curves import course, events"),
            "{curve.label: curve.change for curve in events(course(run.trace))}",
        ])  # fmt: skip
    return "\n".join([
        _opened(
            view, "import numpy as np",
            "from tracer.analysis.training_curves import Reads, by_chance, compositions, course, events",
        ),
        "steps, scores = zip(*compositions(run, run.steps))",
        "reads = Reads(list(steps), np.stack(scores), by_chance(run, steps[0]))",
        "{curve.label: curve.change for curve in events(course(run.trace, reads))}",
    ])  # fmt: skip


def _circuits(view: View) -> str:
    if not view.runs or view.head is None:
        return _training(view)
    (layer, head), off = view.head, _off(view)
    imports, without = ["from tracer.measures.composition import composition"], []
    if row := _prompt(view) if off else []:
        imports = ["import torch", "from tracer.ablate import zeroed", *imports]
        without = [
            f"tokens = torch.tensor([{row}])", f"with zeroed(model, tokens, {off}):",
            "    parts = tracer.logit_attribution(model, tokens)", "parts",
        ]  # fmt: skip
    return "\n".join([
        _opened(view, *imports), f"model = run.{rebuilt(view.run, view.step)}",
        "W_Q, W_K, W_V, W_O, *_ = model.head_weights()",
        f'composition("k", W_Q, W_K, W_V, W_O)[:, :, {layer}, {head}]  # what L{layer}H{head} reads by its keys',
        *([f"print(tracer.roles(run, {view.step}, roles={list(named)!r}))"] if (named := remembered(ROLES)) else []),
        *without,
    ])  # fmt: skip


def _off(view: View) -> list[Head]:
    """The heads that are off, of those that there are."""
    there = head_scores.head_exists(view.trace)
    return [(i, j) for i, j in view.selection.off if i < there.shape[0] and j < there.shape[1] and there[i, j]]


def _prompt(view: View) -> list[int]:
    """Token ids of the prompt; none where it can't be read, or its logits are no sum."""
    if view.run.why_not("attribution"):
        return []
    try:
        text = view.selection.prompt or prompt_tokens.example(view.run)
        return list(prompt_tokens.encode(view.run, text, LONGEST, cut=True).tokens)
    except ValueError:
        return []


def _find(view: View) -> str:
    measure = view.selection.measure if head_scores.holds(view.trace, view.selection.measure) else "induction"
    if not view.runs or view.run.about.d_vocab is None:
        return f"{_opened(view)}\n{_recorded(view, [measure])}"
    cut = "" if view.run.about.n_ctx is None else f"[:, :{view.run.about.n_ctx}]"
    text = f"tokens = text{cut} if (text := batches(run).text) is not None else batches(run).repeat.tokens"
    imports = (
        "from tracer.analysis.eval_sequences import batches",
        "from tracer.analysis.max_activating import search, strongest, typical",
    )
    if not view.run.why_not("held_out"):
        imports = ("from tracer import data", "from tracer.analysis.max_activating import search, strongest, typical")
        from tracer.analysis.max_activating import rows_of_text

        n_ctx = view.run.config.model.n_ctx
        text = (
            f"text = data.build(run.config.data, {n_ctx}, run.config.seed)\n"
            f"tokens = text.val({rows_of_text(n_ctx)})[:, :{n_ctx}]"
        )
    kind, model = f"{view.selection.looks!r}, {view.head}", f"run.{rebuilt(view.run, view.step)}"
    searched = [f"found = search({model}, tokens)"]
    if off := _off(view):
        imports = ("from tracer.ablate import zeroed", *imports)
        searched = [f"model = {model}", f"with zeroed(model, tokens, {off}):", "    found = search(model, tokens)"]
    return "\n".join([
        _opened(view, *imports), text, *searched,
        f"strongest(found, {kind}) + typical(found, {kind})",
    ])  # fmt: skip


def _ablate(view: View) -> str:
    off, rest = view.selection.off, f"{view.selection.mode!r}, frozen={view.selection.frozen}"
    if not view.runs:
        return _training(view)
    if view.selection.mode != "zero":
        rest += f", reference=batches(run).reference(on.name, {view.selection.mode!r})"
    given = f"run.{rebuilt(view.run, view.step)}, on.tokens"
    if off:
        done = f"effect({given}, {list(off)}, {rest}).over(on.where)"
    else:
        done = f"sweep({given}, {rest}, positions=on.where, interval=True)"
    name = "effect" if off else "sweep"
    imports = f"from tracer.ablate import {name}", "from tracer.analysis.eval_sequences import batches"
    on = f"on = batches(run).main({view.selection.mode!r})"
    return "\n".join([_opened(view, *imports), on, f"found = {done}", "found"])


PAGES: dict[str, Callable[[View], str]] = {
    "training": _training,
    "gradients": lambda view: f"{_opened(view)}\n{_recorded(view, list(GRADIENTS))}",
    "phases": _phases,
    "circuits": _circuits,
    "find": _find,
    "ablate": _ablate,
}


def series(runs: Mapping[str, Run], command: str) -> str:
    """The lines for runs of specimens by name, and the command that trains them; exercises where there is no run."""
    trained = [f"# trained by: {command}", ""] if command and runs else []
    if not runs:
        return "\n".join([
            "import tracer", "from tracer.specimens.tutorials import SPECIMENS", "",
            "{name: one.exercise().checks for name, one in SPECIMENS.items() if one.exercise}",
        ])  # fmt: skip
    named = {name: run.name for name, run in runs.items()}
    return "\n".join([
        *trained, "import tracer", "from tracer.specimens.paper_verdicts import answers_of",
        "from tracer.specimens.tutorials import TUTORIALS", "", f"runs = {named!r}",
        "found = {0: {name: tracer.open_run(f'checkpoints/{run}') for name, run in runs.items()}}",
        "judged = [one for folder in TUTORIALS.values() for one in answers_of(folder.paper, found)]",
        "[(one.claim.text, one.verdict, one.mean, one.why) for one in judged if one.seeds]",
    ])  # fmt: skip


def listed(find: str) -> str:
    """The lines for the runs that hold these words, with their settings."""
    if not find:
        return "\n".join(["import tracer", "", "{run.name: run.status for run in tracer.list_runs()}"])
    return "\n".join([
        "import tracer", "from tracer.store.choosing import found_by, settings", "",
        f"found = [settings(run) for run in tracer.list_runs() if found_by({find!r})(run)]",
    ])  # fmt: skip


def reproduce(names: Sequence[str], runs: Mapping[str, Run]) -> str:
    """The command that trains these specimens as they are here; empty where it would train others."""
    sizes = {run.meta["preset"].endswith("-small") for run in runs.values()}
    seeds = {run.config.seed for run in runs.values()}
    if len(sizes) > 1 or len(seeds) > 1:
        return ""
    options = ["--size published"] if sizes == {False} else []
    options += [f"--seeds {seed}" for seed in seeds if seed]
    return " ".join(["tracer reproduce", *names, *options])


def as_notebook(title: str, link: str, code: str) -> str:
    """The lines as a Jupyter notebook (nbformat 4.4), below what page they are of."""
    head = f"# {title}\n\nThe same view in the dashboard: <{link}>\n\nRun this where `checkpoints/` is."
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": head},
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": code},
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}, indent=1)
