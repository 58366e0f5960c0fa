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
from tests.analysis.test_run_sweep import rows, run, swept, tiny, trained  # noqa: F401
from tests.ranks import ROOT, launch
from tests.waiting import wait
from tracer import ablate
from tracer.analysis.eval_sequences import batches
from tracer.analysis.run_sweep import sweep_run
from tracer.config import RecordConfig
from tracer.store import RunInUse, open_run
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
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
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
