"""Sweeps over a whole run: right numbers, computed once, whatever kills them, on one process or two."""

import importlib
import json
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from tracer import ablate, data
from tracer.analysis.eval_sequences import Batches, batches
from tracer.analysis.given_tokens import given_tokens
from tracer.analysis.run_sweep import sweep_run
from tracer.cli.commands import main
from tracer.config import RecordConfig, TrainConfig
from tracer.data import probes
from tracer.presets import preset
from tracer.store import NotARun, Run, open_run
from tracer.training import loop
from tracer.training.progress import Bar

TOY = preset("induction").config


def tiny(directory: Path, **changes) -> TrainConfig:
    """The toy recipe, smaller and shorter, with a snapshot every second step."""
    record = RecordConfig(every=2, snapshot_every=2, log_every=100, val_rows=4, repeat_rows=6)
    config = replace(TOY, run=str(directory), steps=6, device="cpu", record=record)
    model, rows = replace(TOY.model, d_model=16, n_ctx=24), replace(TOY.data, period_max=12)
    return replace(config, **dict[str, Any](model=model, data=rows, optim=replace(TOY.optim, batch_size=4)) | changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return loop.train(tiny(tmp_path_factory.mktemp("runs") / "r"), quiet=True)


@pytest.fixture
def run(trained, tmp_path) -> Run:
    shutil.copytree(trained.dir, tmp_path / "r")
    return open_run(tmp_path / "r")


@pytest.fixture(scope="module")
def swept(trained, tmp_path_factory) -> Run:
    directory = tmp_path_factory.mktemp("swept") / "r"
    shutil.copytree(trained.dir, directory)
    sweep_run(directory, draws=2)
    return open_run(directory)


def test_a_single_token_that_repeats_is_foretold_by_none():
    """A context of four tokens and three kinds has a period of 1: effects are measured on text alone, or not at all."""
    probe = probes.repeated(d_vocab=3, n_ctx=4, seed=0, batch=2)
    text = np.zeros((2, 4), np.int64)
    assert probe.period == 1
    assert [one.name for one in Batches(probe, torch.from_numpy(text), "").sequences()] == ["text"]
    with pytest.raises(ValueError, match="n_ctx and d_vocab must be 7 or more"):
        Batches(probe, None, "").sequences()


def test_it_says_what_it_holds(swept):
    effects = swept.effects
    assert effects["effect"].dims == ("step", "probe", "mode", "layer", "head")
    assert effects["step"].values.tolist() == [0, 2, 4, 6] == swept.steps
    assert effects["probe"].values.tolist() == ["repeat", "text"]
    assert effects["mode"].values.tolist() == ["zero", "resample", "mean"]
    attrs = effects["effect"].attrs
    assert attrs["units"] == "nats" and attrs["draws"] == 2 and attrs["seed"] == 0
    assert attrs["n_sequences"] == {"repeat": 6, "text": 4} and "z replaced" in attrs["formula"]
    assert np.isfinite(effects["effect"]).all()


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_each_number_is_that_of_one_ablation(swept, mode):
    config, step = swept.config, 4
    repeat, texts = probes.repeated(65, 24, batch=6), data.build(config.data, 24, config.seed)
    more = probes.repeated(65, 24, batch=48, seed=probes.PROBE_SEED + 1).control  # 8 times as many, without a repeat
    parts = ("repeat", repeat.tokens, repeat.predictable, more), ("text", texts.val(4), slice(None), texts.val(32))
    for name, tokens, where, wide in parts:
        how = {"draws": 2, "reference": wide if mode == "mean" or (mode, name) == ("resample", "repeat") else None}
        expected = [
            [ablate.effect(swept.model(step), tokens, [(layer, head)], mode, **how).delta[:, where].mean()
             for head in range(4)] for layer in range(2)
        ]  # fmt: skip
        found = swept.effects["effect"].sel(step=step, probe=name, mode=mode)
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_mode_opens_without_our_code(swept):
    with xr.open_zarr(swept.dir / "effects.zarr" / "zero", chunks=None) as plain:
        plain = plain.isel(step=plain["step"].values >= 0).sortby("step")
        np.testing.assert_array_equal(plain["effect"], swept.effects["effect"].sel(mode="zero"))


class Told(list):
    """What progress said: (ablations done, ablations to do)."""

    def __call__(self, done: int, of: int) -> None:
        self.append((done, of))


def test_only_what_is_missing_is_computed(run, swept):
    told = Told()
    stamp = run.stamp
    sweep_run(run, ["zero"], [4], progress=told, draws=2)
    one = 2 * 2 * 4  # a mode of a snapshot: probes x layers x heads
    assert told[0] == (0, one) and told[-1] == (one, one) and run.stamp != stamp
    assert len({done for done, _ in told}) > 2 and told == sorted(told), "a snapshot is followed from within"
    assert told.count((one, one)) == 1, "the end is told once, when the numbers are kept"
    told.clear()
    sweep_run(run, ["mean", "zero"], [0, 4], progress=told, draws=2)
    assert told[0] == (0, 3 * one) and told[-1] == (3 * one, 3 * one)
    assert run.effects["step"].values.tolist() == [0, 4], "an earlier step, swept later, stands in order"
    assert np.isfinite(run.effects["effect"]).all()
    sweep_run(run, "resample", [6], draws=2)
    missing = np.isnan(run.effects["effect"]).all(("probe", "layer", "head"))
    assert missing.transpose("mode", "step").values.tolist() == [[0, 0, 1], [1, 1, 0], [0, 0, 1]]
    sweep_run(run, draws=2)
    xr.testing.assert_equal(run.effects, swept.effects)
    told.clear()
    sweep_run(run, progress=told, draws=2)
    assert told == [(0, 0)]


def test_a_run_that_has_grown_is_swept_on(run):
    before = sweep_run(run, ["zero"])["effect"].load()
    loop.resume(run.dir, steps=9, quiet=True)
    told = Told()
    after = sweep_run(run, ["zero"], progress=told)["effect"]
    assert told[-1] == (2 * 16, 2 * 16) and after["step"].values.tolist() == [0, 2, 4, 6, 8, 9]
    xr.testing.assert_equal(after.sel(step=before["step"]), before)


def test_ctrl_c_stops_within_a_snapshot_and_keeps_the_modes_that_are_whole(run):
    def stop(done: int, of: int) -> None:
        if 16 < done < 32:  # within the second mode, asked as Ctrl-C does
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sweep_run(run, steps=[4], progress=stop, draws=2)
    assert run.effects["mode"].values.tolist() == ["zero"]
    told = Told()
    sweep_run(run, steps=[4], progress=told, draws=2)
    assert told[0] == (0, 16 * 3), "mean and two draws"


def test_frozen_patterns_are_kept_apart(run):
    sweep_run(run, ["zero"])
    both = sweep_run(run, ["zero"], frozen=True)
    assert set(both.data_vars) == {"effect", "effect_frozen"}
    full, frozen = both["effect"], both["effect_frozen"]
    np.testing.assert_allclose(full.sel(layer=1), frozen.sel(layer=1), atol=2e-6)  # nothing reads the last layer
    assert (abs(full.sel(layer=0) - frozen.sel(layer=0)) > 1e-5).any()


def rows(run: Run) -> int:
    try:
        return run.effects.sizes["step"]
    except NotARun:
        return 0


def test_progress_without_a_terminal_is_lines(capsys, monkeypatch):
    monkeypatch.setattr("tracer.training.progress.LINE_SECONDS", 0.0)
    with Bar("sweeping", "ablations") as bar:
        for done in range(4):
            bar.update(done, 3)
            time.sleep(0.01)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sweeping: 0 of 3 ablations" and lines[3] == "sweeping: 3 of 3 ablations"
    assert re.fullmatch(r"sweeping: 2 of 3 ablations, about [0-9]+ s to go", lines[2])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"modes": ["zero", "half"]}, "modes=zero, half: choose among zero, mean, resample"),
        ({"modes": []}, "modes=none: choose among"),
        ({"steps": [2, 3]}, "no snapshot of step 3; it has those of 0, 2, 4, 6"),
        ({"modes": ["resample"], "draws": 0}, "draws=0"),
    ],
)
def test_mistakes_are_named(run, options, words):
    with pytest.raises(ValueError, match=words):
        sweep_run(run, **options)
    with pytest.raises(NotARun, match="has not been swept: `tracer sweep"):
        run.effects  # noqa: B018 - the property raises


def test_numbers_of_two_kinds_never_stand_side_by_side(run):
    sweep_run(run, ["resample"], [0], draws=2)
    with pytest.raises(ValueError, match="was swept with draws=2, now draws=5: sweep the same way, or remove"):
        sweep_run(run, ["resample"], [2])


def test_means_that_held_the_row_itself_are_not_continued(run):
    sweep_run(run, ["mean"], [0])
    described = run.dir / "effects.zarr" / "mean" / "zarr.json"  # as sweeps were written that did not say it
    described.write_text(described.read_text().replace('"mean_of"', '"unused"'))
    with pytest.raises(ValueError, match="was swept with mean_of=None, now mean_of='8 times as many sequences, for"):
        sweep_run(run, ["mean"], [2])


def test_draws_from_rows_that_repeat_are_not_continued(run):
    sweep_run(run, ["resample"], [0])
    described = run.dir / "effects.zarr" / "resample" / "zarr.json"  # as older sweeps were written
    described.write_text(described.read_text().replace('"drawn_from"', '"unused"'))
    with pytest.raises(ValueError, match="drawn_from=None, now drawn_from='other sequences, for `repeat` without"):
        sweep_run(run, ["resample"], [2])


def test_a_damaged_sweep_is_named(run):
    sweep_run(run, ["zero"], [0])
    (run.dir / "effects.zarr" / "zero" / "zarr.json").write_text("{")
    with pytest.raises(NotARun, match="remove that folder and sweep again"):
        run.effects  # noqa: B018 - the property raises


def test_a_run_without_snapshots_or_without_code_is_refused(run):
    shutil.rmtree(run.dir / "snapshots")
    with pytest.raises(ValueError, match="holds no snapshot.*nothing to sweep"):
        sweep_run(run)


def test_text_that_is_gone_is_replaced_by_what_the_run_kept(run):
    whole = batches(run)
    assert whole.note == "" and whole.text is not None and tuple(whole.text.shape) == (4, 25)
    (run.dir / "run.json").write_text((run.dir / "run.json").read_text().replace(run.meta["corpus"]["hash"], "0" * 64))
    kept = batches(run)
    assert kept.note == "the text it was trained on has changed since" and kept.text is not None
    np.testing.assert_array_equal(kept.text, whole.text[:3, :24])


def rank(logits: torch.Tensor, targets: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    """How many tokens stand above the right one, mean over positions."""
    right = logits.gather(-1, targets[..., None])
    return (logits > right).double().sum(-1).mean(-1)


def test_a_metric_whose_code_has_changed_is_another(run, tmp_path, monkeypatch):
    source, code = (
        tmp_path / "changing.py",
        "def far(logits, targets, clean):\n    return (logits - clean).{}((1, 2))\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for what in ("amax", "amin"):
        source.write_text(code.format(what))
        sys.modules.pop("changing", None)
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        found.append(sweep_run(run, "zero", [4], metric="changing:far").load())
    assert len(run.own_effects) == 2
    assert float(found[0]["effect"].max()) > 0 > float(found[1]["effect"].min())


REFUSED = [
    ({"metric": lambda logits, targets, clean: logits.mean((1, 2))}, "cannot be named again, and a run keeps which"),
    ({"tokens": torch.zeros(2, 26, dtype=torch.long)}, "sequences of 26 tokens, the context holds n_ctx=24"),
    ({"tokens": torch.full((2, 9), 65)}, "token 65 is outside the vocabulary: 0 to 64"),
    ({"tokens": torch.zeros(2, 9)}, r"whole numbers \[sequence pos\], not torch.float32 \[2, 9\]"),
    ({"tokens": torch.zeros(1, 9, dtype=torch.long), "modes": "mean"}, "holds 1 sequence, and mean takes"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "says"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_kept_or_read_is_refused(run, how, says):
    with pytest.raises(ValueError, match=says):
        sweep_run(run, **how)
    assert not (run.dir / "effects.zarr").exists()


def test_the_command_takes_the_same_words(run, tmp_path, capsys):
    np.save(tmp_path / "ids.npy", np.arange(1, 61).reshape(3, 20))
    words = ["sweep", str(run.dir), "--modes", "zero", "--steps", "4", "--json", "--metric", f"{__name__}:rank"]
    with pytest.raises(SystemExit) as done:
        main([*words, "--tokens", str(tmp_path / "ids.npy")])
    said = json.loads(capsys.readouterr().out)
    assert done.value.code == 0 and said["metric"] == f"{__name__}:rank" and said["probes"] == ["tokens"]
    assert said["tokens"].startswith("ids.npy: 3 sequences of 20 tokens")
    with pytest.raises(SystemExit):
        main([word for word in words if word != "--json"] + ["--tokens", str(tmp_path / "ids.npy")])
    (effect,) = (found["effect"].squeeze() for found in run.own_effects.values())
    layer, head = np.unravel_index(int(abs(effect.values).argmax()), effect.shape)
    assert f"mean over modes and probes: L{layer}H{head} {effect.values[layer, head]:+.4g}," in capsys.readouterr().out
    (tmp_path / "words.txt").write_text(" ".join(map(str, range(1, 60))))
    told = given_tokens(tmp_path / "words.txt", run).tokens
    assert told.tolist() == [[0, *range(1, 24)], [0, *range(24, 47)]], "rows of the context, each with its start token"
