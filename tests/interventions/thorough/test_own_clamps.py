"""Trainings with clamps of a user's own: as the word for the same, on to the bit, and from a command line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.interventions.test_clamps import tiny
from tests.interventions.test_own_clamps import HERE, OWN, previous
from tracer.cli.commands import main
from tracer.named_code import NAMED
from tracer.store import open_run
from tracer.training import loop


def test_the_trace_is_that_of_the_word(tmp_path: Path) -> None:
    ours = loop.train(tiny(tmp_path / "ours"), quiet=True, clamp={"L0H2": previous})
    word = loop.train(tiny(tmp_path / "word", clamp=("L0H2 previous",)), quiet=True)
    for name in (
        "train_loss",
        "repeat_loss",
        "induction",
        "entropy",
        "entropy_normalised",
        "pattern",
        "head_grad_norm",
    ):
        a, b = ours.trace[name], word.trace[name]
        if name == "entropy_normalised":  # of a row whose other keys the word hides it is 0 / ln 1
            a, b = (x.sel(layer=1) for x in (a, b))
        np.testing.assert_allclose(a, b, atol=1e-5, err_msg=name)


def test_a_fork_goes_on_to_the_bit(tmp_path: Path) -> None:
    config = tiny(tmp_path / "whole", steps=5)
    config = replace(config, record=replace(config.record, state_every=2))
    whole = loop.train(config, quiet=True, clamp=OWN)
    forked = loop.fork(whole, 2, replace(config, run=str(tmp_path / "forked")), quiet=True, clamp=OWN)
    assert forked.config.clamp == whole.config.clamp == OWN
    np.testing.assert_array_equal(forked.trace["train_loss"], whole.trace["train_loss"].sel(step=slice(2, None)))
    short = loop.train(replace(config, run=str(tmp_path / "short"), steps=3), quiet=True, clamp=OWN)
    longer = loop.resume(short.dir, steps=5, quiet=True, clamp=OWN)
    np.testing.assert_array_equal(
        longer.trace["train_loss"].sel(step=[4, 5]), whole.trace["train_loss"].sel(step=[4, 5])
    )


def test_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """train, resume, fork, sweep; each refuses, with the words that it lacks, where the code is not named."""
    small = ["--record.every", "1", "--model.d-model", "16", "--model.n-ctx", "24", "--data.period-max", "12",
             "--device", "cpu", "--optim.batch-size", "4"]  # fmt: skip
    held, run = f"L0H2 = {HERE}:previous", str(tmp_path / "held")

    def tracer(*words: str, status: int = 0) -> str:
        for name in ("previous", "turned"):
            monkeypatch.delitem(NAMED, f"{HERE}:{name}", raising=False)
        with pytest.raises(SystemExit) as ended:
            main([*words])
        assert ended.value.code == status
        return capsys.readouterr().err

    tracer("train", "induction", "--steps", "3", "--clamp", held, "L1H3 off", "--run", run, *small)
    assert open_run(run).config.clamp == (held, "L1H3 off")
    again = f'--clamp "{held}"'
    assert again in tracer("resume", run, "--steps", "5", status=2)
    tracer("resume", run, "--steps", "5", "--clamp", held)
    assert again in tracer("sweep", run, "--modes", "zero", status=2)
    tracer("sweep", run, "--modes", "zero", "--clamp", held)
    forked = str(tmp_path / "forked")
    assert again in tracer("fork", run, "--step", "0", "--run", forked, status=2)
    assert "no module:name" not in tracer("fork", run, "--step", "0", "--run", forked, "--clamp", held)
    assert open_run(forked).config.clamp == (held,) and NAMED[f"{HERE}:previous"] is previous
    tracer(
        "train",
        "induction",
        "--steps",
        "3",
        "--clamp",
        held,
        "--run",
        str(tmp_path / "many"),
        "--seeds",
        "0",
        "1",
        *small,
    )
    assert open_run(tmp_path / "many-1").config.clamp == (held,)
