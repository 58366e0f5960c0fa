"""A user's measures and probes in our training: recorded, kept to the bit, asked for again, nowhere imported from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainings import tiny
from tracer.cli import configs
from tracer.data.own_probe import Probe
from tracer.heads import own_measures, pattern
from tracer.heads.own_measures import measure
from tracer.heads.row_block import RowBlock
from tracer.store import Run, open_run
from tracer.training.loop import fork, resume, train

PAIRS = [(6, 2), (9, 0)]
TOKENS = torch.arange(1, 21).view(2, 10)


@measure(range=(0, 1), chance=0.5, source="a test")
def on_even(rows: RowBlock) -> Any:
    """sum of A_qk over even k"""
    return rows.pattern[..., ::2].sum(-1)


@measure(probe="repeat")
def length(rows: RowBlock) -> Any:
    return rows.z.norm(dim=-1).transpose(1, 2)


@measure(probe="mine")
def same(rows: RowBlock) -> Any:
    return rows.pattern.diagonal(rows.start, -2, -1)


@measure
def sharp(rows: RowBlock) -> Any:
    return rows.pattern.square().sum(-1)


OWN: Any = {"measures": [on_even, length, same], "probes": {"mine": Probe(TOKENS, {"a key": PAIRS})}}
NAMES = ("on_even", "length", "same", "mine_a_key")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = replace(tiny(tmp_path_factory.mktemp("own") / "own"), steps=8)
    return train(config, quiet=True, **OWN)


@torch.no_grad()
def test_they_are_means_over_their_probes(run: Run) -> None:
    """Another way to them: every pattern, in float64, from the model of the run."""
    model: Any = run.model(8)
    cache = model.run_with_cache(TOKENS)[1]
    row = run.trace.sel(step=8)
    for layer in range(2):
        q, k = (cache[tap].double() for tap in model.qk_taps(layer))
        p = pattern(q, k, scale=model.config.scale)
        np.testing.assert_allclose(row.mine_a_key[layer], (p[0, :, 6, 2] + p[1, :, 9, 0]) / 2, rtol=1e-4)
        np.testing.assert_allclose(row.same[layer], p.diagonal(0, -2, -1).mean((0, 2)), rtol=1e-4)
    loss = torch.nn.functional.cross_entropy(model(TOKENS)[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten())
    np.testing.assert_allclose(row.mine_loss, float(loss), rtol=1e-5)
    assert row.on_even.attrs["chance"] == 0.5 and row.on_even_se.attrs["sequences"] == 8
    assert row.length_se.attrs["sequences"] == 32 and row.mine_a_key_se.attrs["sequences"] == 2
    assert np.isfinite([row[name].values for name in NAMES]).all()


def test_nothing_else_is_changed_by_them(run: Run, tmp_path: Path) -> None:
    without = train(replace(run.config, run=str(tmp_path / "without")), quiet=True)
    plain, measured = without.trace, run.trace
    for name in plain:
        if name != "step_ms":
            np.testing.assert_array_equal(plain[name], measured[name], str(name))
    models: list[Any] = [without.model(8), run.model(8)]
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))


def test_a_run_goes_on_with_the_same_alone(run: Run) -> None:
    with pytest.raises(ValueError, match=rf"name the same again, --measures {__name__}:on_even {__name__}:length"):
        resume(run.dir, 12, quiet=True)
    with pytest.raises(ValueError, match=r"; with probes=\(the module that has mine\), not with nothing"):
        resume(run.dir, 12, quiet=True)
    other: Any = {**OWN, "probes": {"mine": Probe(TOKENS + 1, {"a key": PAIRS})}}
    with pytest.raises(ValueError, match="begun with another probe mine"):
        resume(run.dir, 12, quiet=True, **other)
    before = run.trace[list(NAMES)].load()
    longer = resume(run.dir, 12, quiet=True, **OWN).trace
    np.testing.assert_array_equal(longer.on_even.sel(step=before.step), before.on_even)
    assert np.isfinite(longer.mine_a_key.sel(step=12)).all()


def test_a_fork_is_given_its_own(run: Run, tmp_path: Path) -> None:
    config = replace(run.config, run=str(tmp_path / "fork"), steps=12)
    with pytest.raises(ValueError, match="name the same again, --measures"):
        fork(run, 8, config, quiet=True)
    more: Any = {**OWN, "measures": [*OWN["measures"], sharp]}
    again = fork(run, 8, config, quiet=True, **more)
    assert np.isfinite(again.trace.sharp).all() and again.meta["measures"][-1] == f"{__name__}:sharp"


def test_a_run_names_code_and_nothing_is_imported_from_it(run: Run, tmp_path: Path) -> None:
    meta = json.loads((run.dir / "run.json").read_text())
    assert meta["measures"] == [f"{__name__}:{name}" for name in ("on_even", "length", "same")]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(meta | {"measures": ["antigravity:fly"]}))
    assert configs.code(path) == configs.NO_CODE
    asked = tmp_path / "mine.yaml"
    asked.write_text("steps: 3\nmeasures: mine:f\nprobes: [mine:p, mine:q]\n")
    assert configs.code(asked) == {**configs.NO_CODE, "measures": ("mine:f",), "probes": ("mine:p", "mine:q")}
    asked.write_text("measures: 3\n")
    with pytest.raises(ValueError, match="measures=3 is no list of module:name"):
        configs.code(asked)


def test_a_run_opens_whole_without_the_code(run: Run) -> None:
    """As on another machine: what is said of a number stands in the run."""
    from tracer.measures import in_trace, measures_in

    trace = open_run(run.dir).trace
    assert set(NAMES) <= set(measures_in(trace))
    row = in_trace(trace, "on_even")
    assert (row.label, row.source, row.formula, row.high) == ("On even", "a test", "sum of A_qk over even k", 1)


def test_a_run_json_is_one_by_its_name_too(tmp_path: Path) -> None:
    """What it holds may be anything: without a format as well, nothing that it names is imported."""
    (tmp_path / "run.json").write_text(json.dumps({"steps": 2, "measures": ["antigravity:fly"]}))
    assert configs.code(tmp_path / "run.json") == configs.NO_CODE


def test_one_that_training_does_not_pay_for_is_taken_at_fewer_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_measures, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(own_measures, "SHARE", 0.0)
    with pytest.warns(RuntimeWarning, match="the measure sharp .* is taken at fewer records: it took"):
        found = train(replace(tiny(tmp_path / "slow"), steps=8), quiet=True, measures=[sharp]).trace
    there = np.isfinite(found["sharp"].values).all((1, 2))
    assert found["step"].values[there].tolist() == [0, 8] and there.size > 2
    assert np.isfinite(found["entropy"].values).all()
