"""What takes long of tests/analysis/test_run_sweep.py."""

import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
import xarray as xr
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from tests import children
from tests.analysis.test_run_sweep import Told, rank, rows, run, swept, tiny, trained  # noqa: F401
from tests.forked import ROOT
from tests.ranks import launch
from tests.waiting import wait
from tracer import ablate
from tracer.analysis.eval_sequences import batches
from tracer.analysis.run_sweep import sweep_run
from tracer.config import RecordConfig
from tracer.store import RunInUse, open_run
from tracer.store.layout import Lock
from tracer.training import loop
from tracer.watching.opening import open_hf


def test_a_sweep_that_was_killed_goes_on(tmp_path):
    """kill -9, then Ctrl-C, then to the end: every row that was committed stays, and the end is that of one sweep."""
    record = RecordConfig(every=16, snapshot_every=1, log_every=100, val_rows=4, repeat_rows=6)
    run = loop.train(tiny(tmp_path / "r", steps=15, record=record), quiet=True)
    shutil.copytree(run.dir, tmp_path / "whole")
    command = [sys.executable, "-m", "tracer", "sweep", str(run.dir), "--modes", "resample", "--draws", "100"]
    with (tmp_path / "out.txt").open("w") as output:
        killed = children.start(command, cwd=ROOT, stdout=output, stderr=output)
        wait(lambda: rows(run) > 0)
        with pytest.raises(RunInUse, match="is being swept by another process"):
            sweep_run(run)
        killed.kill()
        killed.wait()
        first = run.effects.load()
        assert 0 < first.sizes["step"] < 16 and np.isfinite(first["effect"]).all()
        stopped = children.start(command, cwd=ROOT, stdout=output, stderr=output)
        wait(lambda: rows(run) > first.sizes["step"])
        stopped.send_signal(signal.SIGINT)
        assert stopped.wait(300) == 130
    said = (tmp_path / "out.txt").read_text()
    assert "sweeping: 0 of 25600 ablations" in said and "goes on where it stopped" in said and "Traceback" not in said
    second = run.effects.load()
    assert first.sizes["step"] < second.sizes["step"] < 16
    xr.testing.assert_equal(second.sel(step=first["step"]), first)
    last = sweep_run(run, ["resample"], draws=100)
    whole = sweep_run(tmp_path / "whole", ["resample"], [0, 15], draws=100)
    assert last["step"].values.tolist() == list(range(16))
    xr.testing.assert_equal(last.sel(step=second["step"]), second)
    xr.testing.assert_equal(last.sel(step=[0, 15]), whole)


def test_two_processes_give_the_numbers_of_one(run, swept, free_port):
    outputs = launch(2, free_port, "sweep", str(run.dir), "--draws", "2", "--steps", "0", "4", "6")
    assert "3 snapshots swept, into" in outputs[0] and outputs[1] == ""
    xr.testing.assert_equal(run.effects, swept.effects.sel(step=[0, 4, 6]))


def test_a_run_in_training_is_swept_as_far_as_it_is(tmp_path):
    options = ["--steps", "100000", "--record.snapshot-every", "2", "--record.snapshot-mb", "1e6",
               "--record.repeat-rows", "4", "--record.val-rows", "4", "--model.d-model", "16",
               "--optim.batch-size", "4"]  # fmt: skip
    command = [sys.executable, "-m", "tracer", "train", "induction", "--run", str(tmp_path / "r"), "--device", "cpu"]
    training_now = children.start([*command, *options], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        wait(lambda: (tmp_path / "r" / "run.json").exists() and len(open_run(tmp_path / "r").steps) > 2)
        run = open_run(tmp_path / "r")
        effects = sweep_run(run, ["zero"], run.steps[:3])
        assert run.live and effects["step"].values.tolist() == [0, 2, 4]
    finally:
        training_now.kill()
        training_now.wait()


def test_the_checkpoints_of_a_model_of_others_are_swept_and_one_is_shared_by_its_layers(tmp_path, free_port):
    words = Tokenizer(models.WordLevel({"<s>": 0, "<unk>": 1, "def": 2, "self": 3}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", unk_token="<unk>")
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=50, n_embd=16, n_layer=2, n_head=4, n_positions=32, bos_token_id=0, eos_token_id=0
        )
        for step in (10, 20):
            GPT2LMHeadModel(config).save_pretrained(tmp_path / "models" / f"checkpoint-{step}")
            tokenizer.save_pretrained(tmp_path / "models" / f"checkpoint-{step}")
    run = open_hf(tmp_path / "models", str(tmp_path / "r"), rows=3)
    effects = sweep_run(run, ["zero", "mean"])["effect"]
    assert effects["step"].values.tolist() == [10, 20] and effects["probe"].values.tolist() == ["repeat", "text"]
    found, model = batches(run), run.model(20)
    reference = found.reference("repeat", "mean")
    assert reference is not None and len(reference) == 8 * len(found.repeat.tokens)
    how = {"mode": "mean", "reference": reference}
    expected = ablate.effect(model, found.repeat.tokens, [(1, 2)], **how).delta[:, found.repeat.predictable].mean()
    one = effects.sel(step=20, probe="repeat", mode="mean", layer=1, head=2)
    assert float(one) == pytest.approx(float(expected), abs=2e-6)
    shutil.copytree(run.dir, tmp_path / "shared", ignore=shutil.ignore_patterns("effects*"))
    outputs = launch(2, free_port, "sweep", str(tmp_path / "shared"), "--steps", "20", "--modes", "zero", "mean")
    assert "1 snapshot swept, into" in outputs[0] and "swept" not in outputs[1]
    xr.testing.assert_equal(open_run(tmp_path / "shared").effects["effect"], effects.sel(step=[20]))


def test_clamped_heads_are_swept_as_they_were_trained(tmp_path):
    run = loop.train(tiny(tmp_path / "r", steps=4, clamp=("L0H1 off", "L0H2 previous 2:")), quiet=True)
    effect = sweep_run(run, ["zero"])["effect"].sel(mode="zero", probe="text")
    assert (effect.sel(layer=0, head=1) == 0).all(), "a head that is off cannot be switched off"
    text = batches(run).text
    assert text is not None
    expected = ablate.effect(run.model(4), text, [(0, 2)]).mean
    assert float(effect.sel(step=4, layer=0, head=2)) == pytest.approx(expected, abs=2e-6)
    assert abs(ablate.effect(run.model(4, clamps=False), text, [(0, 2)]).mean - expected) > 1e-5


def test_draws_are_nothing_to_a_mode_that_does_not_draw(run):
    sweep_run(run, ["zero", "mean"], [0], draws=1, seed=3)
    told = Told()
    sweep_run(run, steps=[0, 2], progress=told)
    assert told[0] == (0, 16 * 5 + 16 * (1 + 1 + 5))
    assert run.effects.sizes == {
        "step": 2,
        "probe": 2,
        "mode": 3,
        "layer": 2,
        "head": 4,
    }
    assert np.isfinite(run.effects["effect"]).all()
    Lock(run.dir, "effects.lock").release()


def test_another_metric_and_other_tokens_are_kept_apart(run):
    """Beside the run's own effects, and beside each other: each says of what it is, and none is taken for another."""
    tokens = torch.randint(1, 65, (5, 24), generator=torch.Generator().manual_seed(1))
    loss = sweep_run(run, "zero", [4], metric="loss").load()  # which is the run's own
    here = f"{rank.__module__}:rank"
    of_kl = sweep_run(run, "zero", [4], metric="kl").load()
    of_rank = sweep_run(run, "zero", [4], metric=here).load()
    on_tokens = sweep_run(run, "zero", [4], metric=rank, tokens=tokens).load()
    xr.testing.assert_identical(run.effects, loss)
    assert "metric" not in loss["effect"].attrs, "as it was before there was another"
    kept = run.own_effects
    assert len(kept) == 3 and {name.partition("-")[0] for name in kept} == {"kl", "rank"}
    assert [found["effect"].attrs["metric"] for found in (of_kl, of_rank, on_tokens)] == ["kl", here, here]
    assert on_tokens["effect"].attrs["tokens"].startswith("tokens: 5 sequences of 24 tokens, sha256 ")
    model, found = run.model(4), batches(run)
    for probe, read, where in found.sequences():
        for metric, table in ((ablate.kl, of_kl), (rank, of_rank)):
            expected = ablate.sweep(model, read, metric=metric, positions=where)
            np.testing.assert_allclose(table["effect"].sel(step=4, probe=probe, mode="zero"), expected, atol=1e-6)
    expected = ablate.sweep(model, tokens, metric=rank)
    np.testing.assert_allclose(on_tokens["effect"].sel(step=4, probe="tokens", mode="zero"), expected, atol=1e-6)
    assert float(abs(expected).max()) > 0.01
    told = Told()
    sweep_run(run, "zero", [4], metric=here, tokens=tokens.numpy(), progress=told)
    assert told == [(0, 0)], "computed once, however it is named"
