"""A training on data of one's own: recorded and resumed as any other, and run only where a person names its code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.own_data import Addition, Uneven, Unmasked, named_here_alone  # noqa: F401 (a fixture)
from tests.trainings import TOY
from tracer import data
from tracer.analysis.eval_sequences import batches
from tracer.cli import configs, trainings
from tracer.config import RecordConfig, TrainConfig
from tracer.data import probes
from tracer.data.counting import unigram_loss
from tracer.named_code import NAMED
from tracer.store import Run
from tracer.training import loop
from tracer.training.probe_recorder import ProbeRecorder

pytestmark = pytest.mark.usefixtures("named_here_alone")
CORPUS = "tests.own_data:Addition"


def small(directory: Path, **changes: Any) -> TrainConfig:
    config = replace(
        TOY, run=str(directory), steps=8, device="cpu", model=replace(TOY.model, d_model=16, n_ctx=4, n_heads=2),
        record=RecordConfig(every=2, snapshot_every=4, log_every=4, val_rows=8, icl_rows=4),
        optim=replace(TOY.optim, batch_size=8),
    )  # fmt: skip
    return replace(config, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = loop.train(small(tmp_path_factory.mktemp("runs") / "own"), quiet=True, corpus=Addition)
    NAMED.clear()
    return run


def test_a_function_is_all_that_it_takes(finished: Run) -> None:
    assert finished.status == "finished" and finished.config.data.corpus == CORPUS == finished.meta["corpus"]["name"]
    assert (finished.meta["d_vocab"], finished.meta["bos"], finished.about.bos) == (15, None, None)
    assert np.isfinite(finished.trace["val_loss"]).all()
    last = json.loads((finished.dir / "log.jsonl").read_text().splitlines()[-1])
    assert last["epochs"] == pytest.approx(8 * 8 / 84)
    sample = json.loads((finished.dir / "samples.jsonl").read_text().splitlines()[-1])
    assert sample["prompt"] == data.build(loop.on_corpus(finished.config, Addition).data, 4, 0).prompt


def test_it_goes_on_to_the_bit_where_its_function_is_named_again(finished: Run, tmp_path: Path) -> None:
    loop.train(small(tmp_path / "half", steps=4), quiet=True, corpus=CORPUS)
    NAMED.clear()
    with pytest.raises(ValueError, match=f"half was trained with corpus={CORPUS}, .*again, --corpus {CORPUS}$"):
        loop.resume(tmp_path / "half", steps=8, quiet=True)
    half = loop.resume(tmp_path / "half", steps=8, quiet=True, corpus=Addition)
    np.testing.assert_array_equal(half.trace["train_loss"], finished.trace["train_loss"])
    child = loop.fork(finished, 4, small(tmp_path / "child"), quiet=True, corpus=CORPUS)
    np.testing.assert_array_equal(child.trace["val_loss"][0], finished.trace["val_loss"].sel(step=4))


def test_data_that_changed_is_noticed(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Addition, "held_out", lambda self, n: np.tile([1, 13, 2, 14, 3], (n, 1)))
    with pytest.raises(ValueError, match="is not the one own was trained on"):
        loop.resume(finished.dir, steps=12, quiet=True, corpus=CORPUS)


def job_of(directory: Path, corpus: Callable[..., Any], accumulate: int = 1) -> loop.Job:
    config = small(directory, optim=replace(TOY.optim, batch_size=8, accumulate=accumulate))
    return loop.prepare(loop.on_corpus(config, corpus))


def test_the_loss_is_a_mean_over_the_targets_that_count_however_they_are_shared_out(tmp_path: Path) -> None:
    found = []
    for parts in (1, 4):
        job = job_of(tmp_path, Uneven, parts)
        found.append((float(loop.forward_backward(job, 3)), [p.grad for p in job.raw.parameters()]))
        rows = job.data.train(3, 8)
        counted = job.data.counted(rows)
        assert counted is not None and 8 < counted.sum() < 16
    by_hand = probes.per_token_loss(job.raw(rows[:, :-1]), rows)[counted].mean()
    (loss, whole), (again, parts) = found
    assert loss == pytest.approx(by_hand.item(), rel=1e-6) and again == pytest.approx(loss, rel=1e-6)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-7)


def test_without_a_mask_it_is_the_plain_loss_to_the_bit(tmp_path: Path) -> None:
    job = job_of(tmp_path, Unmasked)
    loss, rows = loop.forward_backward(job, 3), job.data.train(3, 8)
    plain = torch.nn.functional.cross_entropy(job.raw(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    assert job.data.counted(rows) is None and torch.equal(loss, plain.detach())


def test_held_out_losses_are_of_the_targets_that_count(finished: Run) -> None:
    model, row = finished.model(8), finished.trace.sel(step=8)
    rows = data.build(loop.on_corpus(finished.config, Addition).data, 4, 0).val(8)
    losses = probes.per_token_loss(model(rows[:, :-1]), rows)[:, 3]
    assert float(row["val_loss"]) == pytest.approx(losses.mean().item(), rel=1e-5)
    assert float(row["val_loss_se"]) == pytest.approx(losses.std().item() / 8**0.5, rel=1e-4)
    by_position = row["loss_by_position"].values
    assert np.isnan(by_position[:3]).all() and by_position[3] == pytest.approx(losses.mean().item(), rel=1e-5)


def test_rows_count_as_much_as_they_have_targets(tmp_path: Path) -> None:
    job = job_of(tmp_path, Uneven)
    row = ProbeRecorder(job.raw, job.config.record, job.data).measure(job.raw, with_patterns=False)
    rows = job.data.val(8)
    counted = job.data.counted(rows)
    losses = probes.per_token_loss(job.raw(rows[:, :-1]), rows)
    assert counted is not None and row["val_loss"] == pytest.approx(losses[counted].mean().item(), rel=1e-6)
    by_hand = [losses[counted[:, j], j].mean().item() for j in range(4)]
    np.testing.assert_allclose(row["loss_by_position"], by_hand, rtol=1e-6)
    answers = probes.in_context(rows, None, counted).counted
    assert answers is not None and torch.equal(answers, counted[:, -1:]) and not answers.all()
    assert float(unigram_loss(job.data, 8)) == pytest.approx(_unigram(job.data, rows[:, 1:][counted]), rel=1e-6)


def _unigram(data: data.Data, targets: torch.Tensor) -> float:
    seen = data.train(0, 5000)
    counted = data.counted(seen)
    counts = torch.bincount(seen[:, 1:][counted], minlength=15) + 1.0
    return float(-(counts / counts.sum()).log()[targets].mean())


def test_nothing_is_imported_because_a_run_names_it(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text("from tests.own_data import Addition\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    run = loop.train(small(tmp_path / "mine"), quiet=True, corpus="trap:Addition")
    NAMED.clear()
    del sys.modules["trap"]
    config, _ = configs.read(run.dir / "run.json")
    settings = tmp_path / "mine.json"
    settings.write_text(json.dumps({"preset": "induction", **json.loads((run.dir / "run.json").read_text())}))
    for refused in (
        lambda: data.build(run.config.data, 4, 0), lambda: loop.train(replace(run.config, run=None)),
        lambda: loop.train(replace(config, run="again")), lambda: loop.train(configs.read(settings)[0]),
        lambda: loop.resume(run.dir, steps=12), lambda: loop.fork(run, 4), lambda: trainings.train_all(
            config, None, (1, 2), (), ()),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="trap:Addition"):
            refused()
    assert "trap:Addition is code" in run.why_not("held_out") and run.can("prompts")
    found = batches(run)
    assert "trap" not in sys.modules
    (tmp_path / "settings.yaml").write_text("data: {corpus: 'trap:Addition'}\nmodel: {n_ctx: 4}\n")
    asked, _ = configs.read(tmp_path / "settings.yaml")
    named = data.build(asked.data, 4, 0)
    assert named.hash == run.corpus_hash and "trap" in sys.modules and run.can("held_out")
    assert found.text is not None and torch.equal(found.text, named.val(8)) and found.note == ""
    assert found.counted == batches(run).counted == slice(3, 4)
