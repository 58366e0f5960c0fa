"""Every page in every state a run can be in: what there is to see, or why not and what to do."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.navigation import TITLES
from tests.tiers import quick
from tracer.specimens.tutorials import SPECIMENS
from tracer.store import Run
from tracer.store.layout import Lock

Open = Callable[..., AppTest]
Copy = Callable[..., Run]
TRAINED = [name for name in TITLES if name != "runs"]


def said(app: AppTest) -> str:
    """Everything that is written on a page, and the labels of what can be chosen."""
    kinds: Any = (
        app.title,
        app.header,
        app.subheader,
        app.text,
        app.markdown,
        app.caption,
        app.info,
        app.warning,
        app.error,
        app.code,
    )
    labels: Any = (app.button, app.selectbox, app.text_area, app.text_input)
    return "\n".join([str(e.value) for kind in kinds for e in kind] + [e.label for kind in labels for e in kind])


def is_whole(app: AppTest) -> str:
    """What is said on a page without a traceback and without a missing value's name."""
    assert not app.exception, app.exception[0].stack_trace
    text = said(app)
    told = text.replace(SPECIMENS["four-blocks"].published, "")  # its author saw a NaN, and we say so
    assert not re.search(r"\b(nan|NaN|inf|Traceback)\b", told), text
    return text


def change(run: Run, **facts: Any) -> Run:
    path = run.dir / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))
    return run


def finished(run: Run) -> None:
    """As it is."""


def live(run: Run) -> None:
    """A process trains it: it holds the lock."""
    meta = json.loads((run.dir / "run.json").read_text())
    change(run, status="training", config={**meta["config"], "steps": 100})


def begun(run: Run) -> None:
    """Live, and nothing is written yet but run.json and the tokenizer."""
    live(run)
    shutil.rmtree(run.dir / "trace.zarr")
    shutil.rmtree(run.dir / "snapshots")


def diverged(run: Run) -> None:
    """Its last value was no number, and the head where that began is known."""
    where = {"step": 20, "where": "blocks.1.attn.hook_q", "layer": 1, "head": 2, "value": None}
    change(run, status="diverged", divergence={"step": 20, "replayed_from": 0, "non_finite": where, "text": ""})


def interrupted(run: Run) -> None:
    """Its process died without a word."""
    change(run, status="training")


def weightless(run: Run) -> None:
    shutil.rmtree(run.dir / "snapshots")


def cut_off(run: Run) -> None:
    """Its last snapshot was not written to the end."""
    (run.dir / "snapshots" / "000030.safetensors").write_bytes(b"cut off")


def traceless(run: Run) -> None:
    shutil.rmtree(run.dir / "trace.zarr")


def damaged_trace(run: Run) -> None:
    (run.dir / "trace.zarr" / "zarr.json").write_text("{")


def torn_chunk(run: Run) -> None:
    """One measure's numbers cannot be read."""
    for chunk in (run.dir / "trace.zarr" / "induction").glob("c.*"):
        chunk.write_bytes(b"?")


def voiceless(run: Run) -> None:
    (run.dir / "tokenizer.json").unlink()


def garbled(run: Run) -> None:
    (run.dir / "tokenizer.json").write_text("[]")


def no_run(run: Run) -> None:
    (run.dir / "run.json").write_text("{")


def unlisted(run: Run) -> None:
    change(run, config={"steps": "x"})


def gone(run: Run) -> None:
    shutil.rmtree(run.dir)
    run.dir.mkdir()


WHOLE = {
    "heads": "All heads on this prompt",
    "find": "Heads, ranked",
    "training": "Loss by position",
    "phases": "Order of events",
    "gradients": "Tensor by tensor",
    "ablate": "Where in the sequence",
    "circuits": "Composition: who reads whom",
    "specimens": "1. One head, nothing scaled",
}


def all_say(words: str, runs: str, **other: str) -> dict[str, str]:
    return {**dict.fromkeys(TRAINED, words), "specimens": WHOLE["specimens"], "runs": runs, **other}


UNSEEN = "cut off or damaged; other steps here: 0, 10, 20"
NO_WEIGHTS = "This run keeps no weights"
UNREAD = "The trace cannot be read"
HEALTHY = "✓ healthy"
STATES: list[tuple[Callable[[Run], None], dict[str, str]]] = [
    (finished, {**WHOLE, "runs": HEALTHY}),
    (live, {**WHOLE, "runs": "Step 30 of 100"}),
    (begun, all_say("Nothing is recorded yet", "Not measured yet", ablate="other has no snapshot yet")),
    (diverged, {**WHOLE, "runs": "Broke at step 30", "training": "not a finite number at step 20"}),
    (interrupted, {**WHOLE, "runs": "◌ interrupted"}),
    (
        weightless,
        {
            **WHOLE,
            "runs": HEALTHY,
            "heads": NO_WEIGHTS,
            "find": "2 kept prompts",
            "ablate": NO_WEIGHTS,
            "circuits": NO_WEIGHTS,
        },
    ),
    (cut_off, {**WHOLE, "runs": HEALTHY, "heads": UNSEEN, "find": UNSEEN, "ablate": UNSEEN, "circuits": UNSEEN}),
    (traceless, all_say("has no trace.zarr: the run was stopped before its first record", "Not measured yet")),
    (damaged_trace, all_say("trace.zarr cannot be read", UNREAD)),
    (torn_chunk, all_say("a part of it is damaged; the snapshots are untouched", UNREAD)),
    (
        voiceless,
        {
            **all_say("has no tokenizer.json", HEALTHY),
            **{n: WHOLE[n] for n in ("training", "phases", "gradients", "ablate")},
        },
    ),
    (
        garbled,
        {**all_say("json cannot be read", HEALTHY), **{n: WHOLE[n] for n in ("training", "phases", "gradients")}},
    ),
    (no_run, all_say("run.json is not readable JSON", "the trace and the snapshots beside it are untouched")),
    (unlisted, all_say("holds a config of the wrong kind", "holds a config of the wrong kind")),
    (gone, all_say("has no run.json, so it is not a run directory", "tiny")),
]


EVERYWHERE = (traceless, no_run)
"""States in which each page is opened, in the first tier; in the others those that say most of them."""
CASES = [(state, name) for state, _ in STATES for name in TITLES]
FIRST = [(state, name) for state, name in CASES if state in EVERYWHERE or name in ("runs", "training")]


@pytest.mark.parametrize(
    ("state", "name"), quick(CASES, FIRST), ids=[f"{state.__name__}-{name}" for state, name in quick(CASES, FIRST)]
)
def test_a_run_in_this_state(state: Callable[[Run], None], name: str, open_page: Open, copy_run: Copy) -> None:
    expected = dict(STATES)[state]
    run = copy_run("other", created=f"2026-02-{1 + [s for s, _ in STATES].index(state):02d}T00:00:00+00:00")
    state(run)
    lock = Lock(run.dir) if state in (live, begun) else None
    try:
        text = is_whole(open_page(name, run="other", off=((0, 0),)))
    finally:
        if lock is not None:
            lock.release()
    assert text.count(expected[name]) >= 1 + (expected[name] == HEALTHY), text  # `tiny` beside it is healthy, too


def test_a_damaged_part_of_a_live_run_is_not_called_empty(open_page: Open, copy_run: Copy) -> None:
    run = copy_run("other", status="training")
    torn_chunk(run)
    lock = Lock(run.dir)
    try:
        assert "a part of it is damaged; the snapshots are untouched" in is_whole(open_page("training", run="other"))
    finally:
        lock.release()


@pytest.mark.parametrize("corpus", [None, {"name": "text", "iash": "5"}])
@pytest.mark.parametrize("name", ["find", "ablate", "circuits"])
def test_a_run_that_does_not_say_what_it_was_trained_on(
    name: str, corpus: dict[str, str] | None, open_page: Open, copy_run: Copy
) -> None:
    assert WHOLE[name] in is_whole(open_page(name, run=change(copy_run("other"), corpus=corpus).name, off=((0, 0),)))


def test_a_damaged_sweep_is_not_offered_again(open_page: Open, copy_run: Copy) -> None:
    folder = copy_run("other").dir / "effects.zarr" / "zero"
    folder.mkdir(parents=True)
    (folder / "zarr.json").write_text("{")
    app = open_page("ablate", run="other", off=((0, 0),), section="when")
    assert "remove that folder and sweep again" in is_whole(app) and "snapshots" not in "".join(
        b.label for b in app.button
    )


@pytest.mark.parametrize(
    "content", ['{"step": 30}', '{"step": "x", "temperature": {}, "prompt": 1, "text": null}', None]
)
def test_sample_texts_of_other_things(content: str | None, open_page: Open, copy_run: Copy) -> None:
    path = copy_run("other").dir / "samples.jsonl"
    path.unlink(missing_ok=True)
    path.mkdir() if content is None else path.write_text(content)
    text = is_whole(open_page("training", run="other"))
    assert WHOLE["training"] in text and ("is no regular file" in text) == (content is None)


@pytest.mark.parametrize("name", TITLES)
def test_an_empty_folder_says_what_to_do(
    name: str, open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = is_whole(open_page(name))
    alone = {"runs": "Train the demo", "specimens": "Train all"}
    assert alone.get(name, "There is no run yet. Train the demo from the Runs page") in text


FOREIGN = {
    "runs": "Patches", "heads": "The code of this model is not in the run",
    "find": "This model reads no tokens, so there is no text to search",
    "training": "Attention entropy of every head",
    "phases": "Too few recorded steps", "gradients": "Tensor by tensor",
    "ablate": "with watcher.ablate({(0, 1)}):",
    "circuits": "The code of this model is not in the run, so there are no circuits",
    "specimens": "Train all",
}  # fmt: skip


@pytest.mark.parametrize("name", TITLES)
def test_a_model_of_others_without_its_code(name: str, elsewhere: Path, open_page: Open) -> None:
    assert FOREIGN[name] in is_whole(open_page(name, run="patches", layer=0, head=1))
