"""What a person reads in the terminal while a run trains, word by word."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tracer.training import progress
from tracer.training.progress import Bar, ProgressDisplay, Terminal, perplexity

ROW: dict[str, Any] = {
    "step": 20, "steps": 40, "epoch": 0.5, "epochs": 1.0, "tokens_seen": 12345, "step_ms": 7.4,
    "entropy": {"0": [1.0, 2.125], "1": [0.5, 0.25]}, "train_loss": 1.5, "train_perplexity": 4.48, "val_loss": 2.0,
    "val_perplexity": 7.39, "best_head": "L1H0", "best_induction": 0.75, "best_control": 0.0625, "repeat_loss": 0.125,
    "trained_on": None,
    "gradients": {"W_Q": [0.5, 20.0, 1e-3], "W_K": [0.25, 30.0, math.nan]},
}  # fmt: skip
SAID = """\
batch 20/40  epoch 0.50/1.00  12,345 tokens  7 ms/batch  train loss 1.500 (ppl 4.5)  held-out 2.000 (ppl 7.4)
  entropy by block  0: 1.00 2.12  1: 0.50 0.25
  best induction head L1H0 0.750  (no repeat 0.062)  repeated-token loss 0.125
"""


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_bar_is_drawn_in_a_terminal_unless_it_is_to_be_quiet(
    terminal: bool, quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    shown = ProgressDisplay("things", quiet)
    assert shown._progress.disable is not (terminal and not quiet) and shown.console.quiet is quiet


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "0")


@pytest.mark.usefixtures("plain")
def test_a_log_line_says_all_that_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(40, 0, quiet=False)
    terminal.log(ROW, with_gradients=False)
    assert capsys.readouterr().out == SAID
    terminal.log({**ROW, "epoch": None, "step_ms": math.nan}, with_gradients=True)
    first, *_, head, one, other = capsys.readouterr().out.splitlines()
    assert first == SAID.splitlines()[0].replace("  epoch 0.50/1.00", "").replace("  7 ms/batch", "")
    assert [line.split() for line in (head, one, other)] == [
        ["tensor", "g", "w", "u"], ["W_Q", "5.0e-01", "2.0e+01", "1.0e-03"], ["W_K", "2.5e-01", "3.0e+01", "-"],
    ]  # fmt: skip
    terminal.log({**ROW, "trained_on": 1.25}, with_gradients=False)
    assert "ms/batch  trained on 1.25  train loss 1.500" in capsys.readouterr().out
    Terminal(40, 0, quiet=True).log(ROW, with_gradients=True)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("plain")
def test_lines_come_slower_the_longer_the_work_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each second at first, then a tenth of the time so far apart, ten seconds at most; the last one always."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    bar, said = Bar("reading", "rows"), []
    for clock.now in (100.0, 100.5, 101.0, 150.0, 154.0, 156.0, 350.0, 359.0, 360.0, 360.5):
        bar.update(done := 4 if clock.now == 360.5 else 1, 4)
        if line := capsys.readouterr().out:
            said.append(clock.now)
            assert line.startswith(f"reading: {done} of 4 rows")
    assert said == [100.0, 101.0, 150.0, 156.0, 350.0, 360.0, 360.5] and line == "reading: 4 of 4 rows\n"


@pytest.mark.parametrize(
    ("loss", "expected"), [(0.0, 1.0), (math.log(65), 65.0), (699.9, math.exp(699.9)), (700.0, math.inf)]
)
def test_perplexity(loss: float, expected: float) -> None:
    assert perplexity(loss) == pytest.approx(expected)
