"""The lower bound of entropy on the pages: closed until asked for, then
what `tracer.analysis.entropy_bound` says of every snapshot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from dashboard.loading import diagnoses
from dashboard.loading.diagnoses import Bounds
from dashboard.shared.entropy_bound import reading
from tracer.analysis.entropy_bound import bound
from tracer.store import Run

Open = Callable[..., AppTest]


def test_every_snapshot_on_the_texts_that_the_run_kept(small_run: Run, workplace: Path) -> None:
    found = diagnoses.bounds(small_run, (1, 2))
    assert found is not None and found.steps.tolist() == small_run.steps == [0, 10, 20, 30]
    tokens = small_run.trace["prompt_tokens"].values[:1]  # one text, one repeated sequence
    model: Any = small_run.model(20)
    expected = bound(model, torch.from_numpy(tokens))
    assert (found.sequences, found.tokens) == tokens.shape
    for name in ("entropy", "by_scores", "by_weights", "score_size", "weight_size"):
        assert getattr(found, name)[2] == float(getattr(expected, name)[1, 2])
    assert (found.by_weights <= found.by_scores).all() and (found.by_scores <= found.entropy).all()
    assert found.entropy.max() <= found.uniform


def test_a_run_without_snapshots_has_none(copy_run: Callable[..., Run]) -> None:
    run = copy_run("bare")
    for path in (run.dir / "snapshots").iterdir():
        path.unlink()
    assert diagnoses.bounds(run, (0, 0)) is None


def test_it_is_drawn_when_somebody_opens_it(open_page: Open, small_run: Run, sent: Callable[..., Any]) -> None:
    app = open_page("gradients", run="tiny", layer=1, head=2, step=10)
    line = next(e for e in app.expander if "Zhai's bound" in e.label)
    assert line.label == "How low could its entropy be? Zhai's bound"
    assert not any(e.proto.id.endswith("-bound_entropy") for e in app.get("bidi_component"))
    app.session_state["bound_open"] = True
    app.run()
    assert not app.exception
    head, arrays, cue = sent(app, "bound_entropy")
    found = diagnoses.bounds(small_run, (1, 2))
    assert found is not None
    assert head["labels"] == ["entropy", "its scores allow", "Zhai's bound"]
    decoded = arrays["lines"] / 65534 * (head["hi"] - head["lo"]) + head["lo"]
    np.testing.assert_allclose(decoded, [found.entropy, found.by_scores, found.by_weights], atol=1e-4)
    assert cue["scale"]["chance"] == pytest.approx(found.uniform) and cue["step"] == 10
    assert reading(found, "L1H2", 1) in [m.value for m in app.markdown]
    app.selectbox(key="head_box").set_value("L0H3").run()  # another head: it stays open
    assert next(e for e in app.expander if "Zhai's bound" in e.label).label == line.label
    assert sent(app, "bound_entropy")[1]["lines"].tolist() != arrays["lines"].tolist()


@pytest.mark.parametrize(
    ("entropy", "zhai", "words"),
    [
        (2.0, 1e-53, "Zhai's bound is **10⁻⁵³ nats**, which rules nothing out."),
        (2.0, 0.0, "Zhai's bound is **0 nats**, which rules nothing out."),
        (2.0, 0.01, "Zhai's bound is **0.010 nats**, less than a tenth of that entropy."),
        (2.0, 0.7, "Zhai's bound is **0.700 nats**, at least a tenth of that entropy."),
    ],
)
def test_the_reading_is_honest_about_a_loose_bound(entropy: float, zhai: float, words: str) -> None:
    one = [np.array([x]) for x in (entropy, 0.9, zhai, 4.26, 1234.0)]
    found = Bounds(np.array([1500]), *one, sequences=3, tokens=16)
    assert reading(found, "L0H0", 0) == (
        "At step 1,500 the entropy of L0H0 is **2.000 nats**. Scores of the size that it has (s = 4.3) allow no less "
        f"than **0.900 nats**; its weights would allow scores of s = 1,234, so that {words}"
    )


def test_a_snapshot_that_broke_is_said_to_be_broken() -> None:
    one = [np.array([np.nan])] * 5
    assert (
        reading(Bounds(np.array([7]), *one, sequences=1, tokens=4), "L0H0", 0)
        == "At step 7 the model's numbers are not finite."
    )
