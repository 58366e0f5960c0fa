"""Two steps, runs or prompts side by side: the numbers are those of the models, and what cannot be is said.

What the first tier leaves.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from dashboard.loading import comparison
from tests.dashboard.test_comparing import PROMPT, Open, drawn, moved, narrow, open_trace, shares  # noqa: F401
from tests.dashboard.words import written
from tracer.store import Run


def test_a_head_that_the_other_lacks_is_replaced_and_said(open_page: Open, narrow: Run, sent: Any) -> None:
    app = open_page("heads", run="tiny", compare="narrow", prompt=PROMPT, layer=1, head=3, match="label")
    assert "B has no L1H3: shown is its most striking head" in written(app)
    title = sent(app, "versus")[0]["sides"][1]["title"]
    assert title.startswith("L0H") and title.endswith("of narrow, step 2")
    found = moved(app)
    assert np.isfinite(found[0, :2]).all() and np.isnan(found[0, 2:]).all() and np.isnan(found[1]).all()

    app.segmented_control(key="match_box").set_value("alike").run()
    assert not app.exception and "B has no" not in written(app) and np.isfinite(moved(app)).all()
    apart = comparison.unlikeness(open_trace("tiny"), 30, open_trace("narrow"), 2)
    layer, head = np.unravel_index(apart[1, 3].argmin(), apart[1, 3].shape)
    assert f"L{layer}H{head} of B behaves {apart[1, 3].min():.2f} away from L1H3 of A" in written(app)
    assert sent(app, "versus")[0]["sides"][1]["title"].startswith(f"L{layer}H{head} of narrow")


def test_a_tokenizer_of_its_own_reads_the_same_text_differently(elsewhere: Path, open_page: Open, sent: Any) -> None:
    """One run speaks in ids, the other in letters: "5 7" are two tokens and three."""
    app = open_page("heads", run="gpt", compare="opened", prompt="5 7")
    header = sent(app, "versus")[0]
    assert not header["same"] and header["sides"][0]["tokens"] == ["5", "7"]
    assert header["sides"][1]["tokens"][-3:] == ["5", "·", "7"]
    assert "B reads the prompt as other tokens (2 tokens in A" in written(app)
    app = open_page("heads", run="gpt", compare="patches", prompt="5 7")
    assert "patches cannot read this prompt" in written(app)


def test_large_models_ask_before_they_compute(elsewhere: Path, open_page: Open) -> None:
    directory = elsewhere / "checkpoints" / "large"
    shutil.copytree(elsewhere / "checkpoints" / "opened", directory)
    try:
        meta = json.loads((directory / "run.json").read_text())
        (directory / "run.json").write_text(json.dumps({**meta, "name": "large", "n_params": 30_000_000}))
        app = open_page("ablate", run="opened", compare="large", off=((0, 1),))
        assert "takes seconds" in written(app) and "beside_a:cue" not in drawn(app)
        app.button(key="beside").click().run()
        assert not app.exception and "beside_a:cue" not in drawn(app)
        assert "It costs both the same" in written(app)  # on the text that both kept
        assert "two separate measurements" in written(app)  # fewer repeated sequences for a large model
        app.button(key="beside_sweep").click().run()
        assert not app.exception and "beside_change:cue" in drawn(app)
    finally:
        shutil.rmtree(directory)


def test_kept_prompts_are_compared_where_no_model_runs(elsewhere: Path, open_page: Open, sent: Any) -> None:
    run = Run(Path("checkpoints") / "patches")
    kept = run.trace["pattern"].dropna("step", how="all")
    first = int(kept["step"][0])
    app = open_page("heads", run="patches", layer=0, head=2, other_step=first)
    a, b = shares(sent, app)
    np.testing.assert_allclose(a, kept.values[-1, 0, 0, 2].astype(float), atol=2e-5)
    np.testing.assert_allclose(b, kept.values[0, 0, 0, 2].astype(float), atol=2e-5)
    assert np.isnan(moved(app)[1, 2:]).all()
    names = [str(name) for name in kept["prompt"].values]
    if len(names) > 1:
        app = open_page("heads", run="patches", other_prompt=names[1])
        assert sent(app, "versus")[0]["sides"][1]["title"].endswith(f"step {int(kept['step'][-1])}")
    app = open_page("heads", run="patches", other_prompt="never kept")
    assert "no kept prompt 'never kept'" in written(app)
    assert app.selectbox(key="compare_prompt").value == "never kept"
    app.selectbox(key="compare_prompt").set_value("").run()
    assert not app.session_state["selection"].other_prompt and not app.warning
    assert "cannot be switched off here" in "".join(e.value for e in open_page("ablate", run="patches").info)
