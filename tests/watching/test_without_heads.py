"""A loop whose model shows no attention is recorded all the same: everything but the heads, to the bit beside it."""

import warnings
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
from tests.watching.headless import ROW, TOKENS, MixerBlock, Pictures, language, next_token_loss, rows
from tests.watching.headless import train as trained
from tracer.analysis.run_sweep import sweep_run
from tracer.cli import commands
from tracer.diagnosis import examine
from tracer.hooks.refusals import CannotWatch, NoHeads
from tracer.measures import HEAD_MEASURES
from tracer.measures.abilities import OF_HEADS
from tracer.store import open_run
from tracer.store.check import check
from tracer.store.snapshots import load_tensors
from tracer.watching import stream

SAID = "records r without heads: no attention was seen in this Language"
NORMS = ("grad_norm", "weight_norm", "update_ratio")


def train(model: Any, batches: Iterator[Tensor], **options: Any) -> list[dict[str, Any]]:
    """Recorded as r, with the one warning that says why there are no heads."""
    with pytest.warns(RuntimeWarning, match="records r without heads") as said:
        seen = trained(model, batches, "r", **options)
    assert len(said) == 1
    return seen


@pytest.fixture
def ddp(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


CALLED: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda model: model,
    "torch.compile": lambda model: torch.compile(model, backend="eager"),
    "ddp": nn.parallel.DistributedDataParallel,
}


@pytest.mark.parametrize("how", quick(CALLED, ("as it is",)))
def test_the_training_is_the_same_to_the_bit_and_the_run_is_whole(
    here: Path, how: str, request: pytest.FixtureRequest
) -> None:
    if how == "ddp":
        request.getfixturevalue("ddp")
    plain, model = language(), language()
    expected = trained(plain, rows(12), called=CALLED[how](plain))
    after = torch.get_rng_state()
    found = train(model, rows(12), called=CALLED[how](model), every=3)
    assert found == expected and torch.equal(torch.get_rng_state(), after)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    assert model.training and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    run = open_run("r")
    assert run.status == "finished" and run.trace["step"].values.tolist() == [0, 1, 2, 3, 6, 9, 12]
    assert run.updates is not None and run.updates["step"].values.tolist() == list(range(12))
    assert check(run.dir).damaged == {}


def test_what_is_recorded_is_what_the_loop_saw(here: Path) -> None:
    model, held_out = language(), next(rows(1, 4)).flip(0)
    seen = train(model, rows(9), every=1, held_out=held_out)
    run = open_run("r")
    trace, updates = run.trace, run.updates
    assert updates is not None
    for name in NORMS:
        np.testing.assert_allclose(trace[name][:-1], [one[name] for one in seen], rtol=2e-5, err_msg=name)
    losses = np.array([one["train_loss"] for one in seen], np.float32)
    np.testing.assert_array_equal(trace["train_loss"][:-1], losses)
    np.testing.assert_array_equal(updates["train_loss"], losses)
    assert (updates["learning_rate"] == np.float32(1e-2)).all() and (updates["same_batch"][1:] == 0).all()
    assert (updates["step_ms"][1:] > 0).all() and (updates["tokens_per_second"][1:] > 0).all()
    with torch.no_grad():
        model.eval()
        assert float(trace["val_loss"][-1]) == pytest.approx(float(next_token_loss(model, held_out)), rel=1e-6)
        assert (trace["future_effect"].dropna("step") == 0).all()  # it sees no later token
        x = model.embed(next(rows(1))[:1])  # of a batch of 8 one row is kept
        by_hand = [x]
        for block in model.blocks:
            by_hand.append(block(by_hand[-1]))
    sizes = [float(x.square().mean(-1).sqrt().median()) for x in by_hand]
    np.testing.assert_allclose(trace["resid_rms"][-1], sizes, rtol=1e-6)
    assert np.isfinite(trace["repeat_loss"]).all() and np.isfinite(trace["shifted_loss"][:-1]).all()
    assert trace["param"].values.tolist() == [name for name, _ in model.named_parameters()]


def test_nothing_in_the_run_is_of_heads_and_it_says_why(here: Path) -> None:
    train(language(), rows(4), every=1)
    run = open_run("r")
    assert not {"layer", "head", "matrix", "prompt"} & set(run.trace.sizes) and "pattern" not in run.trace
    assert not set(HEAD_MEASURES) & set(run.trace.variables) and run.meta["layers"] == [] and run.about.layers == ()
    why = run.about.why_not("heads")
    assert why.startswith("no attention was seen in this Language: neither F.scaled_dot_product_attention nor a")
    assert "Did a forward pass run" not in why  # it did
    assert all(run.about.why_not(what) == why for what in OF_HEADS) and not run.about.why_not("training")
    assert (run.about.d_vocab, run.about.row) == (TOKENS, ROW)
    said = run.trace["val_loss"].attrs  # what it is of is its author's choice
    assert (said["units"], said["formula"]) == ("", "mean loss on the batches given as held_out")


def test_a_model_without_tokens_is_recorded(here: Path) -> None:
    torch.manual_seed(0)
    model = Pictures()
    recorder = tracer.watch(model, run="r", every=1)
    optimizer, generator = torch.optim.SGD(model.parameters(), lr=0.1), torch.Generator().manual_seed(2)
    with pytest.warns(RuntimeWarning, match="without heads: no attention was seen in this Pictures"):
        for _ in range(4):
            x, y = torch.randn(32, 1, 12, 12, generator=generator), torch.randint(3, (32,), generator=generator)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    recorder.close()
    run = open_run("r")
    assert recorder.off is None and np.isfinite(run.trace["grad_norm"][:-1]).all()
    assert (run.about.d_vocab, run.about.row, run.meta["classes"]) == (None, None, 3)
    assert "resid_rms" not in run.trace  # no row of like blocks hands anything on
    assert recorder.max_logits is None and recorder.max_logits_unseen == run.about.why_not("heads")
    assert check(run.dir).damaged == {}


def test_health_looks_for_what_needs_no_heads(here: Path) -> None:
    batch = next(rows(1))
    train(language(), iter([batch] * 60), every=4)
    found = examine(open_run("r"))
    assert "repeated" in [one.kind for one in found.findings]
    named = {"the same batch at every update", "divergence", "updates that do not change the weights",
             "weights that never move", "update ratios out of band", "an exploding residual stream"}  # fmt: skip
    assert named <= set(found.looked_for)
    about_heads = {"dead heads", "idle heads", "entropy collapse", "exploding attention scores",
                   "attention that does not choose", "heads that are copies of each other"}  # fmt: skip
    assert about_heads <= set(found.not_measured)


def test_a_leak_is_found_and_no_pattern_is_offered_for_it(here: Path) -> None:
    train(language(block=MixerBlock), rows(12), every=1)
    (found,) = [one for one in tracer.diagnose(open_run("r")) if one.kind == "leak"]
    said = " ".join(found.advice.texts().values())
    assert "that is not causal" in said and "Heads" not in said


@torch.no_grad()
def bad_weight(model: Any) -> None:
    model.blocks[1].read.weight[3, 2] = torch.nan


@torch.no_grad()
def overflow(model: Any) -> None:
    model.blocks[0].write.weight.fill_(3e38)


@pytest.mark.parametrize(
    ("put", "cause", "where", "layer"),
    [
        (bad_weight, "weight", "blocks.1.read.weight", 1),
        (overflow, "activation", "output of blocks.0.write", 0),
    ],
)
def test_the_first_bad_value_is_named_with_its_block(
    here: Path, put: Callable[[Any], None], cause: str, where: str, layer: int
) -> None:
    model = language()
    with pytest.warns(RuntimeWarning) as said:
        trained(model, rows(8), "r", every=2, before=lambda step: put(model) if step == 5 else None)
    assert [SAID in str(said[0].message), f"first in {where}" in str(said[1].message)] == [True, True]
    run = open_run("r")
    found = run.meta["divergence"]
    assert run.status == "diverged" and found["cause"] == cause and found["non_finite"]["step"] == 5
    assert (found["non_finite"]["where"], found["non_finite"]["layer"]) == (where, layer)
    assert tracer.diagnose(run)[0].kind == "divergence" and check(run.dir).damaged == {}


def test_a_state_that_no_loss_tells_of_is_found_at_the_next_record(here: Path) -> None:
    model, ids = language(), next(rows(1))
    recorder = tracer.watch(model, run="r", every=1)
    with pytest.warns(RuntimeWarning) as said:
        model(ids)
        recorder.step(0.5)
        bad_weight(model)
        for _ in range(2):
            model(ids)
            recorder.step(0.5)
    recorder.close()
    run = open_run("r")
    assert len(said) == 2 and "not finite at step 2, first in blocks.1.read.weight" in str(said[1].message)
    assert run.status == "diverged" and run.meta["divergence"]["non_finite"]["layer"] == 1


def test_what_a_model_keeps_blank_behind_its_loss_is_no_divergence(here: Path) -> None:
    class Blank(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = language()

        def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
            return next_token_loss(self.inner, tokens), torch.tensor(torch.nan)

    model = Blank()
    recorder = tracer.watch(model, run="r", every=1)
    with pytest.warns(RuntimeWarning, match="without heads"):
        for tokens in rows(3):
            loss = model(tokens)[0]
            loss.backward()
            recorder.step(loss)
    recorder.close()
    assert recorder.off is None and open_run("r").status == "finished"


class Late(nn.Module):
    """Attends from its second update on."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.attend = language(), False

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.inner.embed(tokens)
        if self.attend:
            q = x.unflatten(-1, (2, -1)).transpose(1, 2)
            x = x + F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)
        return self.inner.unembed(x)


def test_attention_that_comes_later_stays_unseen(here: Path) -> None:
    """When its scores overflow no head is named either, but the first module that gives what is not finite."""
    model = Late()
    used = [p for name, p in model.named_parameters() if "blocks" not in name]
    optimizer, recorder = torch.optim.SGD(used, lr=0.1), tracer.watch(model, run="r", every=1, max_logits="every")
    with pytest.warns(RuntimeWarning, match="without heads|not finite at step 3") as said:
        for step, tokens in enumerate(rows(4)):
            model.attend = step > 0
            if step == 3:
                model.inner.embed.weight.data *= 1e30
            loss = next_token_loss(model, tokens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    recorder.close()
    run = open_run("r")
    assert len(said) == 2 and run.meta["layers"] == [] and run.trace["step"].values.tolist() == [0, 1, 2, 3]
    found = run.meta["divergence"]["non_finite"]
    assert (found["where"], found["layer"], found["head"]) == ("output of inner.unembed", None, None)


class TalkingHeads(nn.Module):
    """Attention by hand whose heads are mixed behind the softmax; or, if `broken`, a pattern that does not sum to 1."""

    def __init__(self, broken: bool) -> None:
        super().__init__()
        self.embed, self.out, self.broken = nn.Embedding(TOKENS, 16), nn.Linear(16, TOKENS), broken

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        q = x.unflatten(-1, (4, -1)).transpose(1, 2)
        weights = (q @ q.mT).softmax(-1)
        weights = weights * 0.5 if self.broken else torch.einsum("bhqk,hg->bgqk", weights, torch.eye(4))
        return self.out(x + (weights @ q).transpose(1, 2).flatten(2))


def test_attention_that_cannot_be_told_apart_is_left_out(here: Path) -> None:
    train(TalkingHeads(broken=False), rows(3), every=1)
    run = open_run("r")
    assert "no attention could be told apart" in run.about.why_not("heads") and run.status == "finished"
    assert np.isfinite(run.trace["grad_norm"][:-1]).all()


def test_a_number_that_would_be_wrong_is_still_refused(here: Path) -> None:
    with pytest.warns(RuntimeWarning, match="stopped recording r, training goes on. Why: TalkingHeads: what is mul"):
        trained(TalkingHeads(broken=True), rows(3), "r", every=1)
    assert not (here / "checkpoints" / "r" / "run.json").exists()


def test_a_look_at_one_pass_still_raises() -> None:
    model = language()
    with tracer.watch(model) as watcher:
        model(next(rows(1)))
    with pytest.raises(NoHeads, match=r"no attention was seen .* Did a forward pass run inside the watch\?"):
        watcher.read()
    assert issubclass(NoHeads, CannotWatch)


@pytest.mark.filterwarnings("ignore:.*fast path:UserWarning")
def test_snapshots_of_mamba_are_kept(here: Path) -> None:
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": TOKENS, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}
    model: Any = MambaForCausalLM(MambaConfig(**sizes, bos_token_id=0, eos_token_id=0, pad_token_id=0))
    first = {name: x.clone() for name, x in model.state_dict().items()}
    recorder, optimizer = tracer.watch(model, run="r", every=2), torch.optim.AdamW(model.parameters(), lr=1e-2)
    with pytest.warns(RuntimeWarning, match="without heads: no attention was seen in this MambaForCausalLM"):
        for tokens in rows(4):
            loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    recorder.close()
    run = open_run("r")
    assert recorder.off is None and run.steps[0] == 0 and run.steps[-1] == 4 and check(run.dir).damaged == {}
    assert run.trace["resid_rms"].sizes["depth"] == 3 and run.why_not("prompts") == run.why_not("heads") != ""
    kept = load_tensors(run.dir / "snapshots" / "000000.safetensors")
    assert all(torch.equal(x, first[name]) for name, x in kept.items())
    with pytest.raises(NoHeads, match="no attention was seen in this MambaForCausalLM"):
        run.model(4)
    with pytest.raises(ValueError, match="has no heads to switch off: no attention was seen"):
        sweep_run(run)


def test_snapshots_of_what_a_function_builds_are_kept(here: Path) -> None:
    model = language()
    train(model, rows(4), every=2, build="tests.watching.headless:language")
    run = open_run("r")
    kept = load_tensors(run.dir / "snapshots" / "000004.safetensors")
    assert run.steps[-1] == 4 and all(torch.equal(x, model.state_dict()[name]) for name, x in kept.items())
    with pytest.raises(NoHeads, match="no attention was seen in this Language"):
        run.model(4, build=language)


def test_a_classifier_of_rows_of_tokens_reads_no_repeats(here: Path) -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(TOKENS, 8), nn.Linear(8, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.out(self.embed(tokens).mean(1))

    model = Bag()
    recorder = tracer.watch(model, run="r", every=1)
    with pytest.warns(RuntimeWarning, match="without heads"):
        for tokens in rows(3):
            loss = F.cross_entropy(model(tokens), tokens[:, 0] % 3)
            loss.backward()
            recorder.step(loss)
    recorder.close()
    run = open_run("r")
    assert recorder.off is None and (run.about.d_vocab, run.about.period, run.meta["classes"]) == (TOKENS, None, 3)
    assert run.trace["repeat_loss"].isnull().all()


def test_the_loop_hears_of_it(here: Path) -> None:
    heard: list[dict[str, float]] = []
    train(language(), rows(3), every=1, on_record=lambda step, flat: heard.append(flat))
    assert {"loss/train", "stream/2/resid_rms", "param/blocks.0.decay/grad_norm"} <= heard[0].keys()
    assert not any(name.startswith("attn/") for name in heard[0])


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        (["ls", "checkpoints", "--find", "language"], 0, "watched Language"),
        (["check", "checkpoints/r"], 0, "whole: "),
        (["diagnose", "checkpoints/r"], 0, "Looked for divergence, a mask that shows the future"),
        (["watch-run", "checkpoints/r", "--once"], 0, ""),
        (["sweep", "checkpoints/r"], 2, "r has no heads to switch off: no attention was seen in this Language"),
        (["export", "checkpoints/r", "out"], 2, "r holds no snapshot yet. No heads were recorded either: no attention"),
    ],
)  # fmt: skip
def test_every_command_answers(
    here: Path, command: list[str], status: int, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    train(language(), rows(6), every=1)
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        commands.main(command)
    said = capfd.readouterr()
    assert (ended.value.code, "Traceback" in said.err) == (status, False), said
    assert says in (said.err if status else said.out), said


def block(d_in: int = 4, d_out: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(d_in, d_out))


class Rows(nn.Module):
    """A list of like blocks, called in some order, behind a list of one."""

    def __init__(self, order: list[int]) -> None:
        super().__init__()
        self.few, self.row = nn.ModuleList([block()]), nn.ModuleList([block() for _ in range(3)])
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        x = self.few[0](x)
        for i in self.order:
            x = self.row[i](x)
        return x


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (Rows([0, 1, 2]), ["row.0", "row.1", "row.2"]), (Rows([0, 2, 1]), []), (Rows([0, 1]), []),
        (Rows([0, 1, 2, 2]), []), (language(), ["blocks.0", "blocks.1"]), (Pictures(), []),
        (nn.Sequential(block(), block()), ["0", "1"]), (nn.Sequential(block(4, 2), block(2, 4)), []),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), []),
    ],
)  # fmt: skip
@torch.no_grad()
def test_blocks_are_those_that_hand_one_shape_on(model: nn.Module, found: list[str]) -> None:
    x: Tensor = torch.randn(2, 5, 4)
    x = next(rows(1)) if hasattr(model, "embed") else torch.randn(2, 1, 12, 12) if hasattr(model, "body") else x
    names = {id(module): name for name, module in model.named_modules()}
    assert [names[id(one)] for one in stream.chain(model, lambda: model(x))] == found


def test_a_recurrent_net_with_positions_first_is_kept_whole(here: Path) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.body, self.out = nn.Embedding(TOKENS, 8), nn.LSTM(8, 8), nn.Linear(8, TOKENS)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.out(self.body(self.embed(tokens))[0])

    torch.manual_seed(0)
    model = Recurrent()
    recorder = tracer.watch(model, run="r", every=1)
    with pytest.warns(RuntimeWarning, match="without heads"):
        for tokens in rows(3):
            loss = model(tokens.T).square().mean()
            loss.backward()
            recorder.step(loss)
    recorder.close()
    run = open_run("r")
    assert recorder.off is None and run.probe()["0"].shape == (ROW, 8) and run.about.d_vocab is None


def test_warnings_as_errors_end_no_training(here: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert len(trained(language(), rows(2), "r", every=1)) == 2
    assert open_run("r").trace.sizes["step"] == 3
