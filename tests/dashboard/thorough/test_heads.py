"""The Heads page: whole patterns of short prompts, an overview and an exact window of long ones.

What the first tier leaves.
"""

import shutil
from dataclasses import replace
from typing import Any

import numpy as np

from tests.dashboard.test_heads import LONG, Open, explicit, shares
from tracer.store import Run
from tracer.training.loop import train


def test_a_run_of_numbers_that_kept_no_prompt_opens_with_some(open_page: Open, small_run: Run) -> None:
    config = small_run.config
    record = replace(config.record, val_rows=1, text_prompts=0, repeat_prompts=0)
    directory = small_run.dir.with_name("numbers")
    train(replace(config, run=str(directory), steps=1, record=record), preset="induction", quiet=True)
    app = open_page("heads", run="numbers")
    shutil.rmtree(directory)
    assert not app.error and app.text_area(key="prompt_box").value == "1 2 3 4 1 2 3 4"


def test_a_window_is_kept_until_the_prompt_changes(long_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="long", prompt=LONG, layer=0, head=1)
    app.session_state["overview"] = {"pick": [300, 400, 10, 90]}
    app.run()
    np.testing.assert_allclose(shares(sent, app), explicit(long_run, 0, 1)[300:400, 10:90], atol=1e-5)
    app.session_state["scrubber"] = {"pick": 0}
    app.run()
    assert sent(app, "pattern")[0]["starts"] == [300, 10]
    app.text_area(key="prompt_box").set_value(LONG[:1500]).run()
    assert sent(app, "pattern")[0]["starts"] != [300, 10] and not app.exception
