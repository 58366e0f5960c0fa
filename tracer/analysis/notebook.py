"""Every head on a prompt as a picture to touch: in a notebook, or as one HTML file that works offline.

tracer.show("checkpoints/demo-0", "def add(self, name, value):")               # the value of a notebook's cell
tracer.show("checkpoints/demo-0", "def add(self", step=400, head=(1, 3)).save("heads.html")
tracer.show(tracer.load_hf("gpt2"), "The cat sat on the mat. The cat")
"""

from __future__ import annotations

import html as markup
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np

from tracer.analysis.timeline import happened, roles_at, roles_over
from tracer.measures import MEASURES, PROBES, Measure, Setting, in_trace, measures_in
from tracer.measures.aliases import Head
from tracer.pictures import scrubber
from tracer.pictures.page import Note
from tracer.pictures.picture import Picture
from tracer.pictures.portable import Told, heads_file
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.pictures.scales import head_label, of_measure
from tracer.pictures.scrubber import Event
from tracer.store import NotARun, Run, nearest_row, open_run

if TYPE_CHECKING:
    import xarray as xr

    from tracer.model.protocol import HeadModel

FILM_FLOPS = 4e10
"""What is filmed unasked: about two seconds on one core."""
FILM_CELLS = 2_000_000
"""Cells of a film in a file: 4 x 4 heads, 30 tokens and 100 snapshots are 1.4 million."""
HERE = dict.fromkeys(PROBES, "this prompt")
HEIGHT = 860
"""Pixels of the frame in a notebook; it can be pulled longer."""


@dataclass(frozen=True)
class NotebookView:
    """A view that draws itself where a notebook shows it; `html` is the whole file."""

    html: str

    def _repr_html_(self) -> str:
        """A frame of its own, which can reach neither the notebook nor the network."""
        return (
            f'<iframe srcdoc="{markup.escape(self.html)}" sandbox="allow-scripts allow-downloads" '
            f'title="Attention heads" style="width:100%;height:{HEIGHT}px;border:0;resize:vertical"></iframe>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the file; it needs no server, no network and no other file."""
        Path(path).write_text(self.html, "utf-8")
        return Path(path)


def show(
    what: Run | str | Path | HeadModel,
    prompt: str | Sequence[int],
    step: int | None = None,
    head: Head | None = None,
    measure: str = "induction",
    *,
    film: bool | None = None,
    off: Sequence[Head] = (),
) -> NotebookView:
    """Every head of a run (at a step; None: the last) or of a model from `load_hf` on a text, or on token ids.

    `head` (layer, head) is shown first, else the strongest in `measure`, which colours the heads. In a run the measures
    are those that it recorded, of another model those of this prompt. `film`: the prompt at every snapshot too, to
    play; None: where that takes a few seconds at most. `off`: heads that write nothing, all that follows computed anew;
    what a run recorded it recorded with all heads on.
    """
    gone = tuple(sorted((int(layer), int(head)) for layer, head in off))
    if isinstance(what, Run | str | Path):
        run = what if isinstance(what, Run) else open_run(what)
        return NotebookView(run_file(run, prompt, step, head, measure, film, gone))
    if step is not None or film:
        raise ValueError("a model has no steps: pass a run, or the model of that step alone")
    from tracer.ablate.planner import zeroed
    from tracer.analysis.prompt_attention import look

    tokens, strings = _encoded(prompt, getattr(what, "tokenizer", None), what.n_ctx, getattr(what, "bos", 0))
    row = _tensor(tokens, what)
    with zeroed(what, row, gone):
        found = look(what, row)
    shown = found.patterns(strings, [layer.name for layer in getattr(what, "layers", [])], off=gone)
    name = type(getattr(what, "model", what)).__name__
    setting = Setting(len(tokens), 0, what.d_vocab, causal=all(found.causal))
    known = {name: MEASURES[name] for name in found.measures}
    told = Told(name, release(), prompt=_text(prompt), explained=explained(known.values(), setting, HERE))
    return NotebookView(_file(shown, told, found.measures, known, setting, head, measure))


def run_file(
    run: Run, prompt: str | Sequence[int], step: int | None, head: Head | None, measure: str, film: bool | None,
    off: tuple[Head, ...] = (), *, more: Sequence[Note] = (), history: Picture | None = None,
    events: Sequence[Event] | None = None,
) -> str:  # fmt: skip
    """`show` of a run as the text of a file; `more` is read below its pictures, `history` stands among them.

    `events`: what it dates, where that is known already.
    """
    from tracer.ablate.planner import zeroed
    from tracer.analysis import guessing
    from tracer.analysis.prompt_attention import foretold_by, look, read_norms
    from tracer.model import Transformer

    model = run.model(step)
    about, steps = run.about, run.steps
    step = steps[-1] if step is None else step
    try:
        tokenizer = run.tokenizer
    except NotARun:
        tokenizer = None
    tokens, strings = _encoded(prompt, tokenizer, about.n_ctx, about.bos)
    row = _tensor(tokens, model)
    with zeroed(model, row, off):
        found = look(model, row)
        sized = isinstance(model, Transformer) and not run.why_not("value_norms")
        norms = read_norms(model, row) if sized else None
    shown = found.patterns(strings, list(about.layers), off=off)
    says = foretold_by(found, row, about.d_vocab)
    whole = foretold_by(look(model, row), row, about.d_vocab) if off and says is not None else None
    try:
        trace = run.trace
    except NotARun:
        trace = None
    measures, where = found.measures, HERE
    if trace is not None and (recorded := _recorded(trace, step)):
        measures, where = recorded, about.probes
    known = {name: MEASURES[name] if trace is None else in_trace(trace, name) for name in measures}
    cheap = 2 * int(run.meta.get("n_params", 0)) * len(tokens) * len(steps) <= FILM_FLOPS
    filmed = _filmed(run, tokens, shown, trace) if trace is not None and (cheap if film is None else film) else None
    chosen = head or strongest(measures[_known(measure, measures)])
    has_roles = trace is not None and trace.sizes["step"] and "layer" in trace.sizes
    roles = roles_at(trace, step) if trace is not None and has_roles else None
    if events is None:
        events = happened(run, trace) if trace is not None and filmed else []
    told = Told(
        run.name, release(), step, _text(prompt), snippet(run, prompt, step, chosen, measure, off),
        f"/heads?{address(run.name, prompt, step, chosen, measure, off)}",
        explained(known.values(), about.setting, where),
    )  # fmt: skip
    return _file(shown, told, measures, known, about.setting, chosen, measure, norms=norms, film=filmed, roles=roles,
                 events=events, more=more, history=history,
                 guesses=None if says is None else guessing.line(run, says, whole))  # fmt: skip


def _file(
    shown: Any, told: Told, measures: dict[str, np.ndarray], known: Mapping[str, Measure], setting: Setting | None,
    head: Head | None, measure: str, **more: Any,
) -> str:  # fmt: skip
    scales = {name: of_measure(known[name], setting, found) for name, found in measures.items()}
    return heads_file(
        shown, told, measures=measures, scales=scales,
        focus=head or strongest(measures[_known(measure, measures)]), measure=_known(measure, measures), **more,
    )  # fmt: skip


def _encoded(
    prompt: str | Sequence[int], tokenizer: Any, n_ctx: int | None, bos: int | None
) -> tuple[list[int], list[str]]:
    from tracer.data import PromptTooLong, encode_prompt
    from tracer.data.any_tokenizer import Words

    words, limit = Words(tokenizer), n_ctx or 2**31
    if isinstance(prompt, str):
        if words.tokenizer is None:
            raise ValueError(
                "there is no tokenizer beside this model: pass the prompt as token ids, such as [0, 17, 4]"
            )
        found = encode_prompt(words.tokenizer, prompt, limit, bos)
        return found.tokens, found.strings
    ids = [int(i) for i in prompt]
    if not ids:
        raise ValueError("the prompt is empty: pass at least one token")
    if len(ids) > limit:
        raise PromptTooLong(len(ids), limit)
    return ids, words.strings(ids)


def _tensor(tokens: list[int], model: Any) -> Any:
    import torch

    return torch.tensor([tokens], device=next(model.parameters()).device)


def _recorded(trace: xr.Dataset, step: int) -> dict[str, np.ndarray]:
    """Every head measure that the run holds, at the row nearest to a step."""
    if not trace.sizes["step"]:
        return {}
    row = nearest_row(trace["step"].values, step)
    held = {name: trace[name].values[row] for name in measures_in(trace)}
    return {name: values for name, values in held.items() if np.isfinite(values).any()}


def _filmed(run: Run, tokens: list[int], shown: PromptPatterns, trace: xr.Dataset) -> bytes | None:
    import torch

    from tracer.analysis import guessing
    from tracer.analysis.prompt_over_steps import film

    steps, exist = run.steps, shown.thumbs[..., 0, 0]
    if len(steps) < 2:
        return None
    n = len(tokens)
    size = scrubber.resolution(n, exist.size, len(steps), FILM_CELLS)
    filmed = dict(film(run, torch.tensor([tokens]), steps, size=size, off=shown.off))
    frames = {step: scrubber.codes(shot.thumbs) for step, shot in filmed.items()}
    said = {step: guessing.guesses(run, shot.said) for step, shot in filmed.items() if shot.said is not None}
    rows = [nearest_row(trace["step"].values, step) for step in steps]
    loss = next((name for name in ("val_loss", "train_loss") if name in trace), None)
    values = trace[loss].values[rows] if loss else np.full(len(steps), np.nan)
    factor = -(-n // next(iter(frames.values())).shape[-1])
    measures = {name: trace[name].values[rows] for name in measures_in(trace)}
    label = {"val_loss": "held-out loss", "train_loss": "training loss"}.get(loss or "", "loss")
    roles = roles_over(trace, rows) if "layer" in trace.sizes else None
    return scrubber.pack(steps, frames, values, measures, n=(n, n), factors=(factor, factor), causal=shown.causal,
                      loss_label=label, roles=roles, guesses=said if all(shown.causal) else {})  # fmt: skip


def _known(measure: str, measures: dict[str, np.ndarray]) -> str:
    if measure not in measures:
        raise ValueError(f"measure={measure!r} is not measured here; known: {', '.join(measures)}")
    return measure


def strongest(values: np.ndarray) -> Head:
    """The head with the largest value."""
    layer, head = np.unravel_index(int(np.nan_to_num(values, nan=-np.inf).argmax()), values.shape)
    return int(layer), int(head)


def explained(
    measures: Iterable[Measure], setting: Setting | None, probes: Mapping[str, str] = PROBES
) -> list[tuple[str, str]]:
    """Each measure: formula, what it was measured on, value at chance, source."""
    lines = []
    for measure in measures:
        chance = measure.at_chance(setting)
        at = "" if chance is None else f" At chance {chance:.3g} ({measure.chance_text})."
        note = f" {measure.note}" if measure.note else ""
        on = probes.get(measure.probe, measure.probe)
        lines.append((measure.label, f"{measure.formula}. Measured on {on}.{at}{note} Source: {measure.source}."))
    return lines


def snippet(
    run: Run, prompt: str | Sequence[int], step: int | None, head: Head, measure: str, off: Sequence[Head] = ()
) -> str:  # fmt: skip
    """The lines of Python that show a view again, where the run lies under checkpoints/ as it does by default."""
    directory = f"checkpoints/{run.name}"
    shown = prompt if isinstance(prompt, str) else list(map(int, prompt))
    rest = f"step={step}, head={tuple(head)!r}, measure={measure!r}" + (f", off={list(off)!r}" if off else "")
    return f"import tracer\n\ntracer.show({directory!r}, {shown!r}, {rest})"


def address(
    run: str, prompt: str | Sequence[int], step: int | None, head: Head, measure: str, off: Sequence[Head] = ()
) -> str:  # fmt: skip
    """The query of the same view in the dashboard."""
    text = {"prompt": prompt} if isinstance(prompt, str) else {}
    gone = {"off": " ".join(head_label(*one) for one in off)} if off else {}
    return urlencode({"run": run, "step": step, **text, "layer": head[0], "head": head[1], "measure": measure, **gone})


def _text(prompt: str | Sequence[int]) -> str:
    return prompt if isinstance(prompt, str) else " ".join(str(int(i)) for i in prompt)


def release() -> str:
    """The version of this package; empty in a checkout that was not installed."""
    try:
        return version("manyeyes")
    except PackageNotFoundError:
        return ""
