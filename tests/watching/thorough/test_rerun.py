"""A stretch of somebody's loop, made again by the same script: every step of it recorded, and compared to the bit.

What the first tier leaves.
"""

from pathlib import Path

import pytest

from tests.watching.conftest import GPT
from tests.watching.test_rerun import FIRST, LAST, parent, script  # noqa: F401
from tracer.store import Run


def test_what_is_not_made_again_is_said(parent: Run) -> None:
    with pytest.warns(RuntimeWarning, match="other: weights part from parent at step 20, by up to [0-9.]+"):
        recorder = script("other", parent.dir.parent, seed=1, replay=parent.dir, steps=(FIRST, LAST))
    facts = recorder.replayed
    assert facts["parts"] == 20 and facts["apart"] > 1e-3 and facts["losses_part"] == 0


def test_a_model_whose_weights_nobody_keeps_is_told_by_its_losses(tmp_path: Path) -> None:
    script("plain", tmp_path, of=GPT, every=10)
    with pytest.warns(RuntimeWarning, match="equal to plain to the bit: 13 losses"):
        script("closer", tmp_path, of=GPT, replay=tmp_path / "plain", steps=(8, 12))
    with pytest.warns(RuntimeWarning, match="losses part from plain at update 0: is it the same script, data, seed"):
        script("apart", tmp_path, of=GPT, seed=1, replay=tmp_path / "plain", steps=(8, 12))
