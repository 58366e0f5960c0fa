"""Training as a person meets it: a run directory that is true, complete, and the same again from the same seed."""

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from tests.tiers import quick
from tests.trainings import TOY, tiny
from tracer import ablate
from tracer.cli import demo
from tracer.config import ModelConfig, OptimConfig, RecordConfig
from tracer.data import probes
from tracer.model import Transformer
from tracer.store import FORMAT, NotARun, Run, list_runs, open_run
from tracer.training import loop
from tracer.training.job import dropout_seed
from tracer.training.progress import _strongest
from tracer.training.session import strongest


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return loop.train(tiny(tmp_path_factory.mktemp("runs") / "whole"), quiet=True)


HEAD_DIMS = ("step", "layer", "head")
VARIABLES = {
    **dict.fromkeys(
        ("entropy", "entropy_normalised", "previous_token", "current_token", "first_token", "duplicate_token",
         "induction", "max_logit"), HEAD_DIMS,
    ),
    **dict.fromkeys(("grad_norm", "grad_norm_clipped", "weight_norm", "update_ratio"), ("step", "param")),
    **dict.fromkeys(
        ("head_grad_norm", "head_grad_norm_clipped", "head_weight_norm", "head_update_ratio"), (*HEAD_DIMS, "matrix")
    ),
    **dict.fromkeys(("train_loss", "val_loss", "icl_score", "repeat_loss", "first_copy_loss"), ("step",)),
    "loss_by_position": ("step", "pos"),
    "resid_rms": ("step", "depth"),
    "pattern": ("step", "prompt", "layer", "head", "query_pos", "key_pos"),
}  # fmt: skip


def ours(run: Run, step: int | None = None) -> Transformer:
    model = run.model(step)
    assert isinstance(model, Transformer)
    return model


def test_the_trace_holds_what_was_promised(finished):
    trace = finished.trace
    assert finished.status == "finished" and not finished.live
    assert trace["step"].values.tolist() == [0, 1, 2, 4, 8, 12, 16, 20]
    assert finished.steps == [0, 8, 16, 20]
    for name, dims in VARIABLES.items():
        assert trace[name].dims == dims, name
        assert trace[name].attrs["formula"] and trace[name].attrs["source"], name
    assert trace["param"].values.tolist() == [name for name, _ in finished.model().named_parameters()]
    assert np.isfinite(trace["entropy"]).all() and np.isfinite(trace["train_loss"]).all()
    assert np.isfinite(trace["grad_norm"]).all()
    assert np.isnan(trace["update_ratio"][-1]).all() and np.isfinite(trace["update_ratio"][:-1]).all()


def test_the_trace_opens_without_our_code(finished):
    with xr.open_zarr(finished.dir / "trace.zarr", chunks=None) as plain:
        assert plain["step"].values.tolist() == finished.trace["step"].values.tolist()
        np.testing.assert_array_equal(plain["induction"], finished.trace["induction"])


def test_recorded_numbers_are_those_of_the_snapshot(finished):
    model, probe = finished.model(16), probes.repeated(65, 40, batch=32)
    logits, cache = model.run_with_cache(probe.tokens)
    row = finished.trace.sel(step=16)
    loss = probes.per_token_loss(logits, probe.tokens)
    np.testing.assert_allclose(row["repeat_loss"], loss[:, probe.predictable].mean(), rtol=1e-5)
    _, control = model.run_with_cache(probe.control[:16])
    n = probe.tokens.shape[1]
    rows = np.arange(n - probe.period, n)
    for layer in range(2):
        for name, seen in (("induction", cache), ("induction_control", control)):
            pattern = seen["pattern", layer].double().numpy()
            each = [p[:, rows, rows - int(back) + 1] for p, back in zip(pattern, probe.periods, strict=False)]
            np.testing.assert_allclose(row[name].sel(layer=layer), np.mean(each, (0, 2)), atol=1e-6)
        stored = row["pattern"].sel(prompt="repeat 0", layer=layer).values[:, :n, :n]
        np.testing.assert_allclose(stored, cache["pattern", layer][0], atol=1e-3)
    expected = [float(p.detach().norm()) for p in model.parameters()]
    np.testing.assert_allclose(row["weight_norm"], expected, rtol=1e-5)


def test_the_update_ratio_is_the_true_step(tmp_path):
    record = RecordConfig(every=1, snapshot_every=1, val_rows=2)
    run = loop.train(tiny(tmp_path / "r", steps=3, record=record), quiet=True)
    for step in range(3):
        old, new = ours(run, step), ours(run, step + 1)
        moved = [float((b - a).norm() / a.norm()) for a, b in zip(old.parameters(), new.parameters(), strict=True)]
        np.testing.assert_allclose(run.trace["update_ratio"].sel(step=step), moved, rtol=1e-4)


def test_logs_and_samples(finished):
    log = finished.log()
    assert [row["step"] for row in log] == [0, 20]
    for key in (
        "epoch",
        "epochs",
        "train_perplexity",
        "val_perplexity",
        "tokens_seen",
        "entropy",
        "step_ms",
        "train_loss",
        "val_loss",
        "gradients",
        "best_head",
    ):
        assert key in log[-1]
    assert log[0]["step_ms"] is None, "no step was taken yet"
    last, trace = log[-1], finished.trace.sel(step=20)
    assert (last["steps"], last["tokens_seen"], last["epoch"], last["epochs"]) == (20, 20 * 8 * 40, None, None)
    for name in ("train_loss", "val_loss", "repeat_loss"):
        assert last[name] == pytest.approx(float(trace[name]))
    for loss in ("train", "val"):
        assert last[f"{loss}_perplexity"] == pytest.approx(np.exp(last[f"{loss}_loss"]))
    best = trace["induction"].stack(head_of=("layer", "head")).idxmax().item()
    assert last["best_head"] == "L{}H{}".format(*best)
    assert last["best_induction"] == pytest.approx(float(trace["induction"].max()))
    assert last["best_control"] == pytest.approx(float(trace["induction_control"].sel(layer=best[0], head=best[1])))
    np.testing.assert_allclose([*last["entropy"].values()], trace["entropy"], atol=6e-5)
    assert list(last["gradients"]) == finished.trace["param"].values.tolist()
    for row in log:
        at = finished.trace.sel(step=row["step"])
        sizes = [at[name].values for name in ("grad_norm", "weight_norm", "update_ratio")]
        np.testing.assert_allclose(np.array([*row["gradients"].values()], float), np.transpose(sizes), rtol=1e-6)
    assert {(s["step"], s["temperature"]) for s in finished.samples()} == {(0, 0.5), (0, 0.0), (20, 0.5), (20, 0.0)}


def test_the_log_names_the_head_that_is_farthest_above_its_control(finished):
    for row in finished.log():
        at = finished.trace.sel(step=row["step"])
        above = at["induction"].values - at["induction_control"].values
        layer, head = np.unravel_index(int(above.argmax()), above.shape)
        assert row["best_head"] == f"L{layer}H{head}"
        assert row["best_control"] == pytest.approx(float(at["induction_control"][layer, head]))
    scores, control = np.array([[0.42, 0.3]]), np.array([[0.44, 0.1]])
    assert _strongest(strongest(scores, control)) == "best induction head L0H1 0.300  (no repeat 0.100)"
    assert _strongest(strongest(scores, scores)) == "induction head: none stands out"


def test_same_seed_same_run_other_seed_another(finished, tmp_path):
    again = loop.train(tiny(tmp_path / "again"), quiet=True)
    other = loop.train(tiny(tmp_path / "other", seed=1), quiet=True)
    np.testing.assert_array_equal(again.trace["train_loss"], finished.trace["train_loss"])
    assert not np.array_equal(other.trace["train_loss"], finished.trace["train_loss"])


@pytest.mark.parametrize("optimizer", quick(["sgd", "adamw", "muon"], ("adamw",)))
def test_resume_is_exact(tmp_path, optimizer):
    optim = OptimConfig(name=optimizer, lr=0.01, batch_size=8, accumulate=2, warmup=5)
    base = tiny(tmp_path / "whole", optim=optim, model=replace(tiny(tmp_path).model, dropout=0.1, mlp_hidden=(16,)))
    whole = loop.train(base, quiet=True)
    loop.train(replace(base, run=str(tmp_path / "half"), steps=11), quiet=True)
    half = loop.resume(tmp_path / "half", steps=20, quiet=True)
    for name in ("train_loss", "induction", "grad_norm", "repeat_loss"):
        joined = half.trace[name].sel(step=whole.trace["step"])
        np.testing.assert_array_equal(joined, whole.trace[name], err_msg=name)
    for a, b in zip(ours(whole).parameters(), ours(half).parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_batch_in_parts_has_the_gradient_of_the_whole(tmp_path):
    found = []
    for parts in (1, 4):
        config = tiny(tmp_path / "r", optim=replace(TOY.optim, batch_size=8, accumulate=parts))
        job = loop.prepare(config)
        state = torch.get_rng_state()
        found.append((float(loop.forward_backward(job, 3)), [p.grad for p in job.raw.parameters()]))
        assert torch.equal(torch.get_rng_state(), state)  # without dropout nothing is random
    (loss, whole), (again, parts) = found
    assert again == pytest.approx(loss, rel=1e-6)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-7)


def test_dropout_is_a_function_of_seed_and_step(tmp_path):
    """Beside a pass by hand from the same random numbers, of batch 3 of seed 5; each seed and step has its own."""
    job = loop.prepare(tiny(tmp_path / "r", seed=5, model=replace(tiny(tmp_path).model, dropout=0.5)))
    loss, batch = float(loop.forward_backward(job, 3)), job.data.train(3, 8)
    torch.manual_seed(dropout_seed(5, 3, 0))
    logits = job.raw(batch[:, :-1])
    by_hand = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    assert loss == pytest.approx(by_hand.item(), rel=1e-6)
    drawn = set()
    for place in itertools.product(range(3), repeat=3):
        torch.manual_seed(dropout_seed(*place))
        drawn.add(float(torch.rand(())))
    assert len(drawn) == 27


def test_a_run_is_never_overwritten(finished):
    with pytest.raises(ValueError, match="already holds a run"):
        loop.train(tiny(finished.dir), quiet=True)


def test_other_files_are_never_mixed_with_a_run(tmp_path):
    (tmp_path / "thesis.txt").write_text("all I have")
    with pytest.raises(ValueError, match=r"holds other files \(thesis.txt\)"):
        loop.train(tiny(tmp_path), quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("start_again", [loop.train, demo._train_or_continue])
def test_a_run_that_ended_before_its_first_step_starts_again(finished, tmp_path, start_again):
    """Killed during set-up: there is a run.json, and nothing to go on from."""
    directory = tmp_path / "early"
    directory.mkdir()
    meta = {**json.loads((finished.dir / "run.json").read_text()), "status": "training", "step": 0}
    (directory / "run.json").write_text(json.dumps(meta))
    (directory / "trace.zarr").mkdir()
    assert open_run(directory).status == "interrupted"
    with pytest.raises(NotARun, match="not laid out yet"):
        open_run(directory).trace  # noqa: B018 - the property raises
    with pytest.raises(ValueError, match="start it again with `tracer train`"):
        loop.resume(directory, quiet=True)
    assert start_again(tiny(directory, steps=2)).status == "finished"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": {"d_vocab": 100}}, "model.d_vocab=100 is not the tokenizer's vocabulary, 65"),
        ({"model": {"n_ctx": 3}, "data": {"corpus": "markov"}}, "n_ctx=3 is too short to be recorded: .*is 4"),
        ({"model": {"n_ctx": 2048}, "record": {"pattern_ctx": 2048}}, r"record.pattern_ctx=2048: .* at most \d+ fit"),
    ],
)
def test_a_mistake_leaves_no_run_behind(tmp_path, changes, words):
    config = tiny(tmp_path / "r")
    config = replace(config, **{part: replace(getattr(config, part), **fields) for part, fields in changes.items()})
    with pytest.raises(ValueError, match=words):
        loop.train(config, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_listing(finished):
    assert [run.name for run in list_runs(finished.dir.parent)] == ["whole"]


@pytest.mark.slow
def test_the_toy_forms_induction_heads(trained_toy):
    """The fast truth: 600 steps of the toy; induction, the loss it brings, and the copying of every last-layer head."""
    run = open_run(trained_toy)
    last = run.trace.isel(step=-1)
    assert float(last["induction"].max()) > 0.6
    assert float(last["repeat_loss"]) < 1.0 < float(last["first_copy_loss"]) - 2
    head = dict(zip(("layer", "head"), np.unravel_index(last["induction"].values.argmax(), (2, 4)), strict=True))
    assert float(last["induction_control"].isel(head)) < 0.1
    model = ours(run)
    for head in range(4):
        attn = model.blocks[1].attn
        assert attn.W_O is not None
        values = torch.linalg.eigvals((attn.W_O[head] @ model.W_U @ model.embed.W_E @ attn.W_V[head]).double())
        assert float(values.sum().real / values.abs().sum()) > 0.8


def test_json_of_a_run_is_plain(finished):
    meta = json.loads((finished.dir / "run.json").read_text())
    assert meta["format"] == FORMAT and meta["seed"] == 0 and meta["corpus"]["hash"] and meta["versions"]["torch"]
    assert os.path.getsize(finished.dir / "tokenizer.json") > 0
    assert ModelConfig(**meta["config"]["model"] | {"init": TOY.model.init, "mlp_hidden": (), "unembed_hidden": ()})
    assert ablate.effect(finished.model(), probes.repeated(65, 40).tokens, [(1, 0)]).delta.shape == (32, 39)


def test_gradient_norms_are_there_before_and_after_clipping(tmp_path: Path) -> None:
    """Beside those of the first batch, clipped by torch itself; each head has its share of both."""
    config = tiny(tmp_path / "clipped", steps=8)
    config = replace(config, optim=replace(config.optim, clip=0.05))
    trace = loop.train(config, quiet=True).trace
    job = loop.prepare(config)
    loop.forward_backward(job, 0)
    params = list(job.raw.parameters())

    def norms() -> list[float]:
        return [float(p.grad.double().norm()) for p in params if p.grad is not None]

    before = norms()
    whole = float(torch.nn.utils.clip_grad_norm_(params, 0.05))
    np.testing.assert_allclose(trace["grad_norm"][0], before, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(trace["grad_norm_clipped"][0], norms(), rtol=1e-4, atol=1e-8)
    assert float(trace["clip_factor"][0]) == pytest.approx(0.05 / whole, rel=1e-4) and whole > 0.1
    of_heads = (trace["head_grad_norm_clipped"][0] ** 2).sum("head") ** 0.5
    names = trace["param"].values.tolist()
    for layer in range(trace.sizes["layer"]):
        for matrix in trace["matrix"].values:
            norm = trace["grad_norm_clipped"][0][names.index(f"blocks.{layer}.attn.W_{matrix}")]
            assert float(of_heads[layer].sel(matrix=matrix)) == pytest.approx(float(norm), rel=1e-4)
    assert np.isnan(trace["grad_norm_clipped"][-1]).all() and np.isfinite(trace["head_grad_norm_clipped"][:-1]).all()


def test_the_factor_of_clipping_is_torchs(tmp_path: Path) -> None:
    """Of a gradient so small that what torch adds to its norm counts: 1e-6 / (1e-6 + 1e-6)."""
    config = tiny(tmp_path / "r")
    job = loop.prepare(replace(config, optim=replace(config.optim, clip=1e-6)))
    for size, expected in ((1e-6, 0.5), (1e-7, 10 / 11), (0.0, 1.0)):
        for parameter in job.raw.parameters():
            parameter.grad = torch.zeros_like(parameter)
        alone = torch.nn.Parameter(torch.zeros(1))
        job.raw.get_parameter("blocks.0.attn.W_Q").grad[0, 0, 0] = size
        alone.grad = torch.tensor([size])
        factor = float(loop.update(job, 0)[1])
        torch.nn.utils.clip_grad_norm_([alone], 1e-6)
        assert float(alone.grad) == pytest.approx(size * factor, rel=1e-5) and factor == pytest.approx(expected)
