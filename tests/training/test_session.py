"""What a training says while it runs, and how often it leaves a point to go on from."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.test_kept_states import tiny
from tracer.training import loop


def test_a_quiet_one_says_nothing_and_another_how_it_began_and_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = loop.train(tiny(tmp_path / "parent"), quiet=True)
    assert capsys.readouterr() == ("", "")
    for step, how in ((4, "the optimizer goes on"), (0, "the optimizer goes on")):
        loop.fork(parent, step, replace(parent.config, run=str(tmp_path / f"from-{step}")))
        assert f"from parent at step {step}; {how}" in capsys.readouterr().out
    other = replace(parent.config.optim, name="adamw")
    loop.fork(parent, 4, replace(parent.config, run=str(tmp_path / "other"), optim=other))
    told = capsys.readouterr().out
    assert "from parent at step 4; the optimizer starts fresh" in told
    assert "finished at step 8 after " in told and "Health: " in told
