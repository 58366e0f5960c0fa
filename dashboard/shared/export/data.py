"""A page as a file, made when somebody asks for it: Heads from its prompt, the others from what stands on them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dashboard import loading
from dashboard.loading import course, head_scores, heads_off, prompt_film, recorded_prompts, token_reading
from dashboard.shared.export.drawing import css_name
from tracer.analysis import notebook
from tracer.measures import MEASURES, Measure, Setting, in_trace, probe_words
from tracer.measures.aliases import Head
from tracer.pictures import atlas
from tracer.pictures.picture import Picture
from tracer.pictures.portable import Told, heads_file, notes
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.pictures.scales import of_measure
from tracer.pictures.taken import Block, taken
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

HISTORY = ("history", "history_heatmap")
"""Keys of the chart of heads over training, as lines or as a heatmap."""
LONGEST_FILM = 900_000
"""Bytes of a film that still goes into a file."""


def heads(
    run: Run, trace: xr.Dataset, shown: PromptPatterns, focus: Head, measure: str, *, prompt: str, code: str, link: str,
    token: int | None = None, given: Mapping[str, tuple[str, Any]] = MappingProxyType({}),
) -> str:  # fmt: skip
    """One HTML file of what the page shows: its film, the held token, and of `given` its chart over training."""
    setting, film, drawn = run.about.setting, _film(run, trace, shown), _drawn(given)
    now = heads_off.scores(trace, shown, shown.step)
    measures = {name: head_scores.head_means(now.trace, name, now.step) for name in head_scores.head_measures(trace)}
    known = {name: in_trace(trace, name) for name in measures}
    explained = notebook.explained(known.values(), setting, run.about.probes)
    told = Told(run.name, notebook.release(), shown.step, prompt, code, link, explained)
    return heads_file(
        shown, told, measures=measures, focus=focus, measure=measure, norms=token_reading.norms(run, shown),
        scales={name: of_measure(known[name], setting, values) for name, values in measures.items()}, film=film,
        token=token, roles=heads_off.roles_of(now), scored=now.scored, events=course.events(run),
        history=next((part for key, part in drawn.items() if key in HISTORY), None), guesses=drawn.get("guesses"),
    )  # fmt: skip


def _film(run: Run, trace: xr.Dataset, shown: PromptPatterns) -> bytes | None:
    """The same bytes as the scrubber has; None where nothing was filmed, or too much to send around."""
    name = shown.key[2]
    steps = recorded_prompts.prompts(run).steps if isinstance(name, str) else run.steps
    if len(steps) < 2:
        return None
    film = prompt_film.whole_film(
        run, trace, steps, shown, lambda step: recorded_prompts.of_prompt(run, step, str(name)), False
    )
    return None if film is None or len(film) > LONGEST_FILM else film


def page(
    title: str, run: Run, step: int, blocks: Sequence[Block], given: Mapping[str, tuple[str, Any]], *, code: str,
    link: str, head: Head | None = None,
) -> str:  # fmt: skip
    """One HTML file of a page: `blocks` as its browser tells them, `given` as `shared.mount` keeps it."""
    drawn = _drawn(given)
    explained = notebook.explained(_measures(drawn, _known(run)), run.about.setting, run.about.probes)
    prompt = next((block["text"] for block in blocks if block["kind"] == "prompt"), "")
    told = Told(run.name, notebook.release(), step, prompt, code, link, explained)
    about = {"run": run.name, "step": step, "head": head and list(head), "page": title}
    foot = f"Made with manyeyes {told.version} from the page {title}; works offline. Only the page can ask the model."
    return taken(f"{title} · {run.name}", f"step {step:,}", blocks, drawn, notes(told), about=about, foot=foot)


def story(
    title: str, line: str, blocks: Sequence[Block], given: Mapping[str, tuple[str, Any]], *, setting: Setting | None,
    code: str, link: str,
) -> str:  # fmt: skip
    """The same of a page that is about many runs; `setting` is what they share."""
    drawn = _drawn(given)
    explained = notebook.explained(_measures(drawn, MEASURES.values()), setting, probe_words("trained"))
    told = Told(title, notebook.release(), code=code, link=link, explained=explained)
    about = {"run": None, "step": None, "head": None, "page": title}
    foot = f"Made with manyeyes {told.version} from the page {title}; works offline."
    return taken(title, line, blocks, drawn, notes(told), about=about, foot=foot)


def _drawn(given: Mapping[str, tuple[str, Any]]) -> dict[str, Picture]:
    """Parts by the class that Streamlit makes of their key; the cue of a part is a part beside it."""
    found = {}
    for key, (part, data) in given.items():
        cue = given.get(f"{key}:cue", ("", {}))[1]
        cue = atlas.without_switches(cue) if part == "atlas" else cue
        found[css_name(key)] = Picture(part, cue, data if isinstance(data, bytes) else None)
    return found


def _known(run: Run) -> list[Measure]:
    """All that can stand on a page of this run."""
    trace = loading.so_far(run)
    found = [] if trace is None else [in_trace(trace, name) for name in head_scores.head_measures(trace)]
    return [*MEASURES.values(), *(one for one in found if one.name not in MEASURES)]


def _measures(drawn: Mapping[str, Picture], known: Iterable[Measure]) -> list[Measure]:
    """The measures whose names stand at the pictures."""
    said = json.dumps([part.cue for part in drawn.values()], ensure_ascii=False)
    return [measure for measure in known if f'"label": {json.dumps(measure.label, ensure_ascii=False)}' in said]
