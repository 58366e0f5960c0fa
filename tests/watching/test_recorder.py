"""Recording somebody's training loop: the training is the same to the bit, and the run is true."""

import contextlib
import copy
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from tests.tiers import quick
from tests.watching.loops import STEPS, batches
from tracer.measures import HEAD_MEASURES, MEASURES
from tracer.measures.gradients import gradients, tensor_norms
from tracer.store import open_run
from tracer.watching.head_weights import stretches
from tracer.watching.signs import COUNTED


class Encoder(nn.Module):
    """A toy task for torch's own encoder, sequences first: [pos batch] tokens to logits."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 32, dropout=0.2, batch_first=False)
        self.embed, self.body, self.out = nn.Embedding(20, 24), nn.TransformerEncoder(layer, 2), nn.Linear(24, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.body(self.embed(tokens)))


def train(kind: str, gpt: Callable[..., Any], run: str | None, **options: Any) -> tuple[Any, list[Tensor]]:
    """A loop as somebody writes it; with `run`, three lines more."""
    torch.manual_seed(0)
    recorder = None
    model: Any = Encoder() if kind == "encoder" else gpt(flash="flash" in kind)
    called: Any = model
    if kind == "torch.compile":
        called = torch.compile(model, backend="eager")
    if kind == "model.compile":
        model.compile(backend="eager")
    if kind == "ddp":
        called = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if run is not None:
        recorder = tracer.watch(called, run=run, **options)
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        x, y = batch[:, :-1], batch[:, 1:]
        if kind == "encoder":
            loss = F.cross_entropy(called(x.T).transpose(1, 2), x.T)
            loss.backward()
        elif kind == "accumulation":
            for part, target in zip(x.chunk(2), y.chunk(2), strict=True):
                loss = called(part, target)[1] / 2
                loss.backward()
        else:
            with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
                loss = called(x, y)[1]
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        if recorder is not None:
            recorder.step(loss)
    if recorder is not None:
        recorder.close()
        assert recorder.off is None
    return model, losses


@pytest.fixture
def ddp(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize(
    "kind",
    quick(
        ["flash", "by hand", "accumulation", "autocast", "encoder", "torch.compile", "model.compile", "ddp"],
        ("flash", "accumulation"),
    ),
)
def test_recorded_training_is_the_same_to_the_bit(
    here: Path, gpt: Callable[..., Any], kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "ddp":
        request.getfixturevalue("ddp")
    plain, expected = train(kind, gpt, None)
    after = torch.get_rng_state()
    model, losses = train(kind, gpt, "r", every=8)
    assert torch.equal(torch.get_rng_state(), after) and torch.equal(torch.stack(losses), torch.stack(expected))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    assert model.training and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    run = open_run("r")
    trace = run.trace
    assert run.status == "finished" and run.meta["step"] == STEPS and run.about.kind == "watched"
    assert trace["step"].values.tolist() == [0, 1, 2, 4, *range(8, 61, 8), 60]
    rows = [step for step in trace["step"].values.tolist() if step < STEPS]
    wanted = torch.stack(expected)[rows].numpy()
    np.testing.assert_array_equal(trace["train_loss"].sel(step=rows), wanted)
    assert np.isfinite(trace["entropy"]).all()
    assert np.isfinite(trace["update_ratio"][:-1].where(trace["weight_norm"][:-1] > 0, 0)).all()
    assert trace["param"].values.tolist() == [name for name, _ in model.named_parameters()]
    if kind == "encoder":  # tokens are [pos batch]: no row of them is a sequence
        assert run.about.causal == (False, False) and trace["induction"].isnull().all()
        assert trace["repeat_loss"].isnull().all() and (trace["prompt_tokens"] == -1).all()
    else:
        assert run.about.layers == ("h.0.attn", "h.1.attn") and all(run.about.causal)
        assert np.isfinite(trace["induction"]).all() and np.isfinite(trace["repeat_loss"]).all()


def test_what_is_recorded_is_true(here: Path, gpt: Callable[..., Any], tokenizer_of: Callable[[int], Any]) -> None:
    """Each number beside the same one taken from copies of the model made in the loop."""
    model = gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    copies, grads, nan = [], [], torch.tensor(float("nan"))
    with tracer.watch(model, run="r", tokenizer=tokenizer_of(20), every=1) as recorder:
        for batch in batches(3, size=32):
            copies.append(copy.deepcopy(model).eval())  # as people do for averages
            torch.save(model, io.BytesIO())
            loss = model(batch[:, :-1], batch[:, 1:])[1]
            optimizer.zero_grad()
            loss.backward()
            grads.append(tensor_norms(gradients(dict(model.named_parameters()))))
            optimizer.step()
            recorder.step(loss)
            if len(copies) == 1:
                first = batch[:2, :-1]
    run = open_run("r")
    trace = run.trace
    assert [f"text {i}" for i in range(2)] + [f"repeat {i}" for i in range(2)] == trace["prompt"].values.tolist()
    assert torch.equal(torch.from_numpy(trace["prompt_tokens"].values[:2, :16]), first)
    assert run.about.setting is not None and MEASURES["induction"].chance is not None
    assert trace["induction"].attrs["chance"] == pytest.approx(MEASURES["induction"].chance(run.about.setting)) != 0
    assert run.tokenizer.get_vocab_size() == 20 and run.about.bos == 0 and run.about.d_vocab == 20
    assert (
        trace["prompt_tokens"].attrs["strings"][0][0] == ["<s>", "<unk>", "the", "a"][first[0, 0]]
        if (first[0, 0] < 4)
        else f"w{first[0, 0]}"
    )
    for step, twin in enumerate(copies):
        with torch.no_grad(), tracer.watch(twin, keep=2) as watcher:
            twin(first)
        for name in ("entropy", "previous_token"):
            np.testing.assert_allclose(trace[name].sel(step=step), watcher.read()[name], atol=1e-5)
        largest = watcher.read()["max_logit"]
        assert (
            trace["max_logit"].sel(step=step) >= largest - 1e-5
        ).all()  # of the training pass too, if it was looked at
        if step == 0:
            np.testing.assert_allclose(trace["pattern"].sel(step=0)[0, 1, 2], watcher.pattern(1, 2), atol=1e-3)
        np.testing.assert_allclose(trace["grad_norm"].sel(step=step), grads[step], rtol=1e-6)
        norms = tensor_norms(dict(twin.named_parameters()))
        np.testing.assert_allclose(trace["weight_norm"].sel(step=step), norms, rtol=1e-6)
        np.testing.assert_allclose(
            trace["update_ratio"].sel(step=step), 0.1 * grads[step] / norms.where(norms > 0, nan), rtol=1e-2
        )
        assert float(trace["learning_rate"].sel(step=step)) == pytest.approx(0.1)
    last = trace.sel(step=3)  # no update follows it, but its weights are known
    weights = {name: p.detach() for name, p in model.named_parameters()}
    np.testing.assert_allclose(last["weight_norm"], tensor_norms(weights), rtol=1e-6)
    assert np.isfinite(last["head_weight_norm"]).all() and np.isnan(last["grad_norm"]).all()
    assert set(HEAD_MEASURES) <= set(trace.data_vars)


def test_a_script_may_change_its_folder(
    here: Path, gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = gpt()
    recorder = tracer.watch(model, run="moved", every=1)
    for batch in batches(3):
        loss = model(batch[:, :-1], batch[:, 1:])[1]
        loss.backward()
        recorder.step(loss)
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    recorder.close()
    assert open_run(here / "checkpoints" / "moved").meta["status"] == "finished"


@pytest.mark.parametrize(
    ("options", "says"),
    [({"share": 0}, "share=0"), ({"every": 0}, "every=0"), ({"tokenizer": 7}, "int is no tokenizer")],
)
def test_wrong_options_are_told_at_once(gpt: Callable[..., Any], options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tracer.watch(gpt(), run="r", **options)


def test_masks_and_blanks_are_not_taken_for_tokens(here: Path, build: Callable[..., Any]) -> None:
    """Whatever the order of the arguments."""
    model, ids = build("llama").train(), torch.arange(2, 18).view(2, 8)
    labels = ids.clone()
    labels[:, :3] = -100
    recorder = tracer.watch(model, run="r", every=1)
    model(attention_mask=torch.ones_like(ids), labels=labels, input_ids=ids)
    recorder.step()
    recorder.close()
    trace = open_run("r").trace
    assert trace["prompt_tokens"].values[0, :8].tolist() == ids[0].tolist()
    assert np.isfinite(trace["train_loss"][0])  # from the model's own output


def test_a_model_of_one_length_only_is_recorded_without_probe_r(here: Path) -> None:
    class OneLength(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(24, 4, 32, batch_first=True)
            self.embed, self.body = nn.Embedding(20, 24), nn.TransformerEncoder(layer, 1)

        def forward(self, tokens: Tensor) -> Tensor:
            assert tokens.shape[1] == 15
            return self.body(self.embed(tokens))

    model = OneLength()
    with tracer.watch(model, run="length", every=1) as recorder:
        for batch in batches(3):
            recorder.step(model(batch[:, :15]).square().mean())
        assert recorder.off is None
    trace = open_run("checkpoints/length").trace
    assert np.isfinite(trace["entropy"]).all() and np.isnan(trace["induction"]).all()


def test_a_resumed_loop_goes_on_with_its_run(here: Path, gpt: Callable[..., Any]) -> None:
    """Killed after step 9, resumed at 6 from a checkpoint: the run is that of a training that nobody stopped."""

    def train(run: str, first: int, last: int, state: Any = None) -> Any:
        model = gpt(dropout=0.0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        if state is not None:
            model.load_state_dict(state[0])
            optimizer.load_state_dict(state[1])
        kept = None
        with tracer.watch(model, run=run, every=3, start_step=first, max_logits="never") as recorder:
            for step, batch in enumerate(batches(12)):
                if not first <= step < last:
                    continue
                if step == 6:
                    kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
                optimizer.zero_grad()
                loss = model(batch[:, :-1], batch[:, 1:])[1]
                loss.backward()
                optimizer.step()
                recorder.step(loss)
            assert recorder.off is None and recorder.steps == last
        return kept

    train("whole", 0, 12)
    train("parts", 6, 12, train("parts", 0, 9))
    whole, parts = open_run("whole"), open_run("parts")
    assert not Path("checkpoints/parts-2").exists() and parts.meta["resumed"] == [6] and parts.status == "finished"
    trace, again = whole.trace.load(), parts.trace.load()
    assert again["step"].values.tolist() == trace["step"].values.tolist() == [0, 1, 2, 3, 6, 9, 12]
    since_it_began = {"unmoved", "future_effect", "row_effect", *COUNTED}  # beside earlier records of one job
    for name in set(trace.data_vars) - {"step_ms"} - since_it_began:
        np.testing.assert_array_equal(again[name], trace[name], err_msg=name)
    assert whole.updates is not None and parts.updates is not None
    for name in ("train_loss", "learning_rate"):
        np.testing.assert_array_equal(parts.updates[name], whole.updates[name])
    assert parts.updates["step"].values.tolist() == list(range(12))
    assert np.isfinite(parts.updates["tokens_per_second"][[1, 5, 7, 11]]).all()


def test_another_model_does_not_go_on_with_a_run(here: Path, gpt: Callable[..., Any]) -> None:
    ids = torch.zeros(2, 5, dtype=torch.long)
    with tracer.watch(gpt(), run="r") as recorder:
        recorder.model(ids)
        recorder.step(0.5)
    before = open_run("r").trace["step"].values.tolist()
    with (
        pytest.warns(RuntimeWarning, match="recorded from another model: its layers differ"),
        tracer.watch(gpt(heads=2), run="r", start_step=1) as recorder,
    ):
        recorder.model(ids)
    assert open_run("r").trace["step"].values.tolist() == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"share": 0.0}, "share=0.0 must be over 0 and at most 1"), ({"share": 1.5}, "share=1.5 must be over 0"),
        ({"every": 0}, "every=0 must be at least 1"), ({"rows": 0}, "rows=0 must be at least 1"),
        ({"start_step": -1}, "start_step=-1 must be at least 0"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(here: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tracer.watch(torch.nn.Linear(2, 2), run="r", **options)
    assert not list(here.iterdir())


@pytest.mark.parametrize("options", [{"share": 1.0}, {"every": 1}, {"rows": 1}, {"start_step": 0}])
def test_the_least_and_the_most_are_taken(here: Path, options: dict[str, Any]) -> None:
    tracer.watch(torch.nn.Linear(2, 2), run="r", **options).close()


@pytest.mark.parametrize("run", ["s3://bucket/mine", Path("s3://bucket/mine"), "hf://datasets/me/mine"])
def test_an_address_is_refused_and_no_folder_is_made(here: Path, gpt: Callable[..., Any], run: Any) -> None:
    with pytest.raises(ValueError, match="is an address: a training is recorded into a folder of this machine"):
        tracer.watch(gpt(), run=run)
    assert not list(here.iterdir())


@pytest.mark.parametrize(("rows", "kept"), [(None, 1), (8, 8), (3, 3), (99, 16)])
def test_rows_that_are_asked_for_are_kept(
    here: Path, gpt: Callable[..., Any], rows: int | None, kept: int
) -> None:  # fmt: skip
    model: Any = gpt()
    with tracer.watch(model, run="r", rows=rows) as recorder:
        model(torch.arange(16 * 5).reshape(16, 5) % 20)
        assert recorder.probing is not None and recorder.probing.inputs.batch == kept
        recorder.step(0.5)
    with pytest.raises(ValueError, match="rows=0 must be at least 1"):
        tracer.watch(model, run="none", rows=0)


def test_an_ablation_around_the_loop_is_not_that_of_the_probe(here: Path, gpt: Callable[..., Any]) -> None:
    found, batch = [], next(iter(batches(1)))
    for ablated in (False, True):
        model: Any = gpt(dropout=0.0)
        watcher = tracer.watch(model)
        with watcher:
            model(batch)
        before = watcher.read()
        around = watcher.ablate({(0, 1), (1, 0)}) if ablated else contextlib.nullcontext()
        with around, tracer.watch(model, run=f"r{ablated}", every=1) as recorder:
            recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
        assert recorder.off is None and open_run(recorder.dir).status == "finished"
        found.append(open_run(recorder.dir).trace["entropy"].values)
        assert ablated or watcher.read().equals(before)
    np.testing.assert_array_equal(*found)


def test_the_cost_holds_the_threads_that_write(here: Path, gpt: Callable[..., Any]) -> None:
    model: Any = gpt()
    with tracer.watch(model, run="r", every=1) as recorder:
        for batch in batches(3):
            recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
        assert recorder.probing is not None and recorder.probing.writer is not None
        recorder.probing.writer.flush()
        recorder.probing.writer.wait()
        wrote = recorder.probing.writer.seconds
        before, cost = recorder.pace.seconds - recorder.pace.setup, recorder.pace.cost()
    assert 0 < wrote <= cost["writing_seconds"]
    assert cost["recording_seconds"] == pytest.approx(before + cost["writing_seconds"])
    assert open_run("r").meta["cost"]["writing_seconds"] >= wrote


def test_a_dead_head_leaves_the_norms_of_its_layer(here: Path, gpt: Callable[..., Any]) -> None:
    model: Any = gpt(dropout=0.0)
    attn = model.h[1].attn.c_attn
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tracer.watch(model, run="r", every=1) as recorder:
        for batch in batches(2):
            with torch.no_grad():
                attn.weight[48 + 6 : 48 + 12] = attn.bias[48 + 6 : 48 + 12] = 0  # W_V of L1H1
            loss = model(batch[:, :-1], batch[:, 1:])[1]
            optimizer.zero_grad()
            loss.backward()
            attn.weight.grad[48 + 6 : 48 + 12] = attn.bias.grad[48 + 6 : 48 + 12] = 0
            optimizer.step()
            recorder.step(loss)
    norms = open_run("r").trace["head_weight_norm"].values
    assert np.isfinite(norms).all() and (norms[:, 1, :, 2] == 0).tolist() == [[False, True, False, False]] * 3
    np.testing.assert_allclose(norms[-1, 1, 2, 2], attn.weight[60:66].detach().norm(), rtol=1e-5)
    dead = [found for found in tracer.diagnose(open_run("r")) if found.kind == "dead"]
    assert [found.heads for found in dead] == [((1, 1),)]


@pytest.mark.parametrize("dead", [(1,), (0, 1), (2, 3), (0, 3), (0, 1, 2)])
@pytest.mark.parametrize("layout", ["one after the other", "q, k, v by head", "taken apart"])
def test_a_head_that_gives_nothing_stands_in_line(layout: str, dead: tuple[int, ...]) -> None:
    n, d = 4, 6
    heads = torch.randn(3, n, d, generator=torch.Generator().manual_seed(0))
    heads[:, list(dead)] = 0
    others = torch.randn(3, n, 2 * d, generator=torch.Generator().manual_seed(1))
    among = {
        "one after the other": torch.cat([others.flatten(1), heads.flatten(1)], 1),
        "q, k, v by head": torch.cat([others, heads], 2).flatten(1),
        "taken apart": heads.transpose(1, 2).flatten(1),
    }[layout]
    found = stretches(heads, among)
    if layout == "taken apart" and len(dead) == 3:  # of one head alone nobody can say how they lie
        return
    assert found is not None
    torch.testing.assert_close(among[:, found], heads)
    assert len({tuple(row) for row in found.tolist()}) == n


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize("name", quick(["nanoGPT", "gpt2", "llama", "neox", "mha"], ("gpt2", "llama")))
def test_gradients_of_each_head(here: Path, gpt: Callable[..., Any], build: Callable[..., Any], name: str) -> None:
    """Beside slices taken by the names that each family has for them."""
    model: Any = Encoder() if name == "mha" else gpt(dropout=0.0) if name == "nanoGPT" else build(name)
    ids = torch.randint(2, 20, (6, 9), generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tracer.watch(model, run="r", every=1) as recorder:
        out = model(ids, ids) if name == "nanoGPT" else model(ids)
        logits = out if isinstance(out, Tensor) else out[0] if isinstance(out, tuple) else out.logits
        logits.square().mean().backward()
        modules = dict(model.named_modules())
        path, parts = {
            "nanoGPT": ("h.1.attn", ("c_attn", "c_proj")), "gpt2": ("transformer.h.1.attn", ("c_attn", "c_proj")),
            "llama": ("model.layers.1.self_attn", ("q_proj", "o_proj")),
            "neox": ("gpt_neox.layers.1.attention", ("query_key_value", "dense")),
            "mha": ("body.layers.1.self_attn", ()),
        }[name]  # fmt: skip
        attention = modules[path]
        if name == "mha":
            w_q, w_o = attention.in_proj_weight.grad[:24], attention.out_proj.weight.grad
        else:
            w_q, w_o = (getattr(attention, part).weight.grad for part in parts)
            if name == "gpt2":  # [in out]
                w_q, w_o = w_q.T, w_o.T
            w_q = w_q.unflatten(0, (4, 3, 6))[:, 0].flatten(0, 1) if name == "neox" else w_q[: w_o.shape[1]]
        n = 6 if name == "llama" else 4
        expected = [
            w_q.unflatten(0, (n, -1)).flatten(1).norm(dim=1),
            w_o.unflatten(1, (n, -1)).transpose(0, 1).flatten(1).norm(dim=1),
        ]
        expected = [x.clone() for x in expected]
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        recorder.step(0.5)
        assert recorder.off is None
        assert recorder.last["attn/L1H3/grad_norm/Q"] == pytest.approx(float(expected[0][3]), rel=1e-4)
    trace = open_run("r").trace.sel(step=0)
    found = trace["head_grad_norm"].sel(layer=1)
    np.testing.assert_allclose(found.sel(matrix="Q"), expected[0], rtol=1e-4)
    np.testing.assert_allclose(found.sel(matrix="O"), expected[1], rtol=1e-4)
    assert np.isfinite(trace["head_update_ratio"]).all() and np.isfinite(trace["resid_rms"]).all()
    clipped = trace["head_grad_norm_clipped"] / trace["head_grad_norm"]
    np.testing.assert_allclose(clipped, float(trace["clip_factor"]), rtol=1e-3)
