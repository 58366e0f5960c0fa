"""Specimens have presets in both sizes; outcomes are read from real runs; claims are judged by hand-made outcomes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tracer import presets
from tracer.presets import PRESETS
from tracer.reproduce import CLAIMS, Outcome, judged, outcome, reproduce, table
from tracer.specimens import SPECIMENS
from tracer.store import open_run

AS_PUBLISHED = {
    "single-head-unscaled": (0.003, 0.003, 6.4), "single-head-scaled": (1.492, 0.089, 6.0),
    "single-head-residual": (1.492, 1.16, math.log(68.28)), "single-head": (1.492, 1.177, math.log(67.68)),
    "multi-head-full": (1.5, 0.68, math.log(66.48)), "multi-head": (1.5, 0.7, math.log(65.11)),
    "two-blocks": (1.5, 0.5, math.log(55.74)), "four-blocks": (0.97, 0.97, math.nan),
    "four-blocks-rms": (2.2, 1.5, math.log(48.66)),
}  # fmt: skip
"""Entropy at the start and at the end, and held-out loss."""


def made(start: float, end: float, loss: float) -> Outcome:
    status = "diverged" if math.isnan(loss) else "finished"
    return Outcome("run", status, 100, start, end, ((end,),), loss, 1000, 60.0, 0.1)


FOUND = {name: made(*values) for name, values in AS_PUBLISHED.items()}


def test_every_specimen_has_a_preset_in_both_sizes() -> None:
    for name, specimen in SPECIMENS.items():
        assert {specimen.preset("small"), specimen.preset("published")} == {name, f"{name}-small"} <= set(PRESETS)
    assert list(SPECIMENS) == list(presets.SMALL)


def test_what_was_published_fulfils_every_claim() -> None:
    assert [(claim.text, True) for claim in CLAIMS] == [(claim.text, holds) for claim, holds in judged(FOUND)]


@pytest.mark.parametrize(
    ("name", "outcome", "broken"),
    [
        ("single-head-unscaled", (1.2, 0.01, 4), "unscaled attention is one-hot from the start (entropy below 0.05)"),
        ("single-head-scaled", (1.5, 0.6, 4), "scaled but without a residual, entropy falls to under a third"),
        ("single-head-residual", (1.5, 0.9, 4), "with it, entropy stays above two thirds of the start"),
        ("four-blocks", (1.0, 1.0, 5.0), "four-blocks diverges"),
        ("two-blocks", (1.0, 1.0, 4.5), "two-blocks is better than multi-head"),
    ],
)  # fmt: skip
def test_a_claim_can_fail(name: str, outcome: tuple[float, float, float], broken: str) -> None:
    verdicts = {claim.text: holds for claim, holds in judged({**FOUND, name: made(*outcome)})}
    assert [text for text, holds in verdicts.items() if not holds] == [broken]


def test_only_claims_whose_runs_are_there_are_judged() -> None:
    assert [claim.needs for claim, _ in judged({"four-blocks": FOUND["four-blocks"]})] == [("four-blocks",)]


def test_the_table_has_a_row_each() -> None:
    rows = table(FOUND).splitlines()
    assert len(rows) == 2 + len(FOUND) + 3 + len(CLAIMS)
    assert (
        "| `four-blocks` | NaN in the loss and in every entropy by batch 100 | 0.970 to diverged at step 100 |"
        in rows[9]
    )
    assert all(row.count("|") == rows[0].count("|") for row in rows[: 2 + len(FOUND)])


def test_trains_what_is_missing_and_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text"
    text.mkdir()
    for i in range(20):
        (text / f"{i}.txt").write_text(f"def f{i}(self, x):\n    return self.x + {i}\n" * 40)
    whole = PRESETS["single-head-small"]
    config = replace(whole.config, steps=3, device="cpu", optim=replace(whole.config.optim, batch_size=8))
    monkeypatch.setitem(PRESETS, "single-head-small", replace(whole, config=config))
    found = reproduce(["single-head"], corpus=str(text), quiet=True)["single-head"]
    assert (found.run, found.status, found.step) == ("single-head-small", "finished", 3)
    run = open_run("single-head-small")
    assert found == outcome(run)
    assert found.entropy_start == pytest.approx(float(run.trace["entropy"][0, 0, 0]))
    assert found.loss == pytest.approx(float(run.trace["val_loss"][-1]))
    created = run.meta["created"]
    reproduce(["single-head"], corpus=str(text), quiet=True)
    assert open_run("single-head-small").meta["created"] == created
    with pytest.raises(ValueError, match="was trained with other settings"):
        reproduce(["single-head"], quiet=True)
    with pytest.raises(ValueError, match="there is no specimen nope; there are: single-head-unscaled"):
        reproduce(["nope"])
