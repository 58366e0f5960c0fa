"""Lines of Python that compute again what a page shows, for a reader who was given no page; keyed by its address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboard import measured
from dashboard.loading.finding_passages import MOST, ROWS
from dashboard.state import Selection
from tracer import course
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

TRAINING = ("train_loss", "val_loss", "repeat_loss", "icl_score", "entropy")
GRADIENTS = ("grad_norm", "weight_norm", "update_ratio", "clip_factor")


@dataclass(frozen=True)
class View:
    """What a page shows: a run at a step, with a head in focus, and whether its model can be run here."""

    run: Run
    trace: xr.Dataset
    step: int
    head: tuple[int, int]
    selection: Selection
    runs: bool


def snippet(page: str, view: View) -> str:
    """The lines, for the runs under checkpoints/ where the reader works."""
    return PAGES[page](view)


def _opened(view: View, *imports: str) -> str:
    return "\n".join(["import tracer", *imports, "", f"run = tracer.open_run({_path(view.run)!r})"])


def _path(run: Run) -> str:
    return f"checkpoints/{run.name}"


def _recorded(view: View, names: list[str]) -> str:
    held = [name for name in names if measured.holds(view.trace, name)]
    of = f"[{held!r}]" if held else ""
    return f"run.trace{of}.sel(step={view.step}, method='nearest')  # without .sel: every recorded step"


def _training(view: View) -> str:
    return f"{_opened(view)}\n{_recorded(view, list(dict.fromkeys([*TRAINING, view.selection.measure])))}"


def _gradients(view: View) -> str:
    return f"{_opened(view)}\n{_recorded(view, list(GRADIENTS))}"


def _phases(view: View) -> str:
    if not course.readable(view.run):
        return "\n".join([
            _opened(view, "from tracer.course import course, events"),
            "{curve.label: curve.change for curve in events(course(run.trace))}",
        ])  # fmt: skip
    return "\n".join([
        _opened(view, "import numpy as np", "from tracer.course import Reads, by_chance, compositions, course, events"),
        "steps, scores = zip(*compositions(run, run.steps))",
        "reads = Reads(list(steps), np.stack(scores), by_chance(run))",
        "{curve.label: curve.change for curve in events(course(run.trace, reads))}",
    ])  # fmt: skip


def _circuits(view: View) -> str:
    if not view.runs:
        return _training(view)
    if view.run.about.kind == "trained":
        source, weights = "from tracer.ablate.verdict import weights", "weights(model)"
    else:
        source, weights = "from tracer.adapters.weights import head_weights", "head_weights(model)[:4]"
    layer, head = view.head
    return "\n".join([
        _opened(view, "from tracer.circuits import composition", source), f"model = run.model({view.step})",
        f"W_Q, W_K, W_V, W_O = (w.detach() for w in {weights})",
        f'composition("k", W_Q, W_K, W_V, W_O)[:, :, {layer}, {head}]  # what L{layer}H{head} reads by its keys',
    ])  # fmt: skip


def _find(view: View) -> str:
    measure = view.selection.measure if measured.holds(view.trace, view.selection.measure) else "induction"
    if not view.runs or view.run.about.d_vocab is None:
        return f"{_opened(view)}\n{_recorded(view, [measure])}"
    text = "tokens = text if (text := batches(run).text) is not None else batches(run).repeat.tokens"
    imports = ("from tracer.batches import batches", "from tracer.passages import search, strongest, typical")
    if view.run.about.kind == "trained":
        imports = ("from tracer import data", "from tracer.passages import search, strongest, typical")
        n_ctx = view.run.config.model.n_ctx
        text = (
            f"text = data.build(run.config.data, {n_ctx}, run.config.seed)\n"
            f"tokens = text.val({max(1, min(ROWS, MOST // n_ctx))})[:, :{n_ctx}]"
        )
    kind = f"{view.selection.looks!r}, {view.head}"
    return "\n".join([
        _opened(view, *imports), text, f"found = search(run.model({view.step}), tokens)",
        f"strongest(found, {kind}) + typical(found, {kind})",
    ])  # fmt: skip


def _ablate(view: View) -> str:
    off, rest = view.selection.off, f"{view.selection.mode!r}, frozen={view.selection.frozen}"
    if not view.runs:
        return _training(view)
    asked = "repeat = batches(run).repeat"
    if off:
        done = f"effect(run.model({view.step}), repeat.tokens, {list(off)}, {rest}).over(repeat.predictable)"
    else:
        done = f"sweep(run.model({view.step}), repeat.tokens, {rest}, positions=repeat.predictable)"
    name = "effect" if off else "sweep"
    return "\n".join(
        [_opened(view, f"from tracer.ablate import {name}", "from tracer.batches import batches"), asked, done]
    )


PAGES: dict[str, Callable[[View], str]] = {
    "training": _training,
    "gradients": _gradients,
    "phases": _phases,
    "circuits": _circuits,
    "find": _find,
    "ablate": _ablate,
}
