"""Clamps: what they do to every forward pass of a model, when they are held, and what the trace says of them."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiers import quick
from tracer import ablate
from tracer.analysis import prompt_attention
from tracer.analysis.entropy_bound import bound
from tracer.config import Clamp, ModelConfig, OptimConfig, RecordConfig, TrainConfig
from tracer.data.probes import per_token_loss
from tracer.export.bridge import to_bridge
from tracer.export.to_huggingface import as_huggingface
from tracer.heads import definitions
from tracer.heads.call import AttentionCall
from tracer.interventions import clamps
from tracer.interventions.edits import applied, recording, visiting
from tracer.model import Transformer
from tracer.presets import preset
from tracer.store import Run
from tracer.training import loop

TOY = preset("induction").config


def tiny(directory: Path, **changes) -> TrainConfig:
    """The toy recipe, smaller and shorter, measured at every step."""
    record = RecordConfig(every=1, snapshot_every=4, log_every=100, val_rows=4, repeat_rows=8, pattern_ctx=24)
    config = replace(TOY, run=str(directory), steps=6, device="cpu", record=record)
    model, data = replace(TOY.model, d_model=16, n_ctx=24), replace(TOY.data, period_max=12)
    return replace(config, **dict[str, Any](model=model, data=data, optim=replace(TOY.optim, batch_size=4)) | changes)


def weights(run: Run, step: int) -> Transformer:
    model = run.model(step)
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L0H1 off", Clamp(0, 1, "off")),
        ("L12H10 off 200:600", Clamp(12, 10, "off", 200, 600)),
        ("L0 no-previous", Clamp(0, None, "no-previous")),
        (" L0H2 previous 5: ", Clamp(0, 2, "previous", 5, None)),
        ("L0H2 previous :5", Clamp(0, 2, "previous", 0, 5)),
    ],
)
def test_the_grammar(text, expected):
    assert Clamp.parse(text) == expected


def test_a_window_ends_before_its_last_number():
    assert [Clamp.parse("L0 off 2:4").held(step) for step in range(6)] == [False, False, True, True, False, False]
    assert all(Clamp.parse("L0 off").held(step) for step in range(6))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"clamp": ("L0H1",)}, r"'L0H1' is not understood: write \"L0H1 off\""),
        ({"clamp": ("H1 off",)}, "is not understood"),
        ({"clamp": ("L0H1 of",)}, "L0H1 off 200:600"),
        ({"clamp": ("L0H1 off 5",)}, "is not understood"),
        ({"clamp": ("L0H1 off 5:5",)}, "never held: its window ends at step 5"),
        ({"clamp": ("L0H1 off", "L2 off")}, "'L2 off': this model has layers 0 to 1 and heads 0 to 3"),
        ({"clamp": ("L0H4 off",)}, "'L0H4 off': this model has layers 0 to 1 and heads 0 to 3"),
        ({"clamp": ("L0H1 previous", "L0 no-previous")}, "leave a head nothing to attend to"),
        ({"clamp": ("L0H1 off",), "optim": OptimConfig(compile=True)}, "compiled anew wherever a clamp begins or ends"),
    ],
)
def test_mistakes_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        TrainConfig(**wrong)


def test_opposite_clamps_may_follow_each_other():
    TrainConfig(clamp=("L0H1 previous :5", "L0H1 no-previous 5:", "L0H2 no-previous"))


MODEL = ModelConfig(n_layers=2, n_heads=4, d_model=16, n_ctx=12, d_vocab=11)


def without_previous(pattern: torch.Tensor) -> torch.Tensor:
    """By hand: the mass on key q - 1 is taken away, and the row divided by what is left."""
    p = pattern.double().clone()
    p.diagonal(-1, -2, -1).zero_()
    return p / p.sum(-1, keepdim=True)


def only_previous(pattern: torch.Tensor) -> torch.Tensor:
    p = torch.zeros_like(pattern).double()
    p[..., 0, 0] = 1
    p.diagonal(-1, -2, -1).fill_(1)
    return p


@pytest.mark.parametrize(
    ("text", "heads", "by_hand"),
    [
        ("L0H1 no-previous", [1], without_previous),
        ("L0 no-previous", [0, 1, 2, 3], without_previous),
        ("L0H2 previous", [2], only_previous),
    ],
)
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_the_pattern_is_that_by_hand(text, heads, by_hand: Callable[[torch.Tensor], torch.Tensor], positions):
    model = Transformer(replace(MODEL, positions=positions)).eval()
    tokens = torch.randint(11, (3, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), recording("hook_pattern") as clean:
        model(tokens)
    model.clamps = clamps.edits(TrainConfig(model=MODEL, clamp=(text,)), 0)
    with torch.no_grad(), recording("hook_pattern", "hook_z", "hook_v") as seen:
        model(tokens)
    expected = clean["blocks.0.attn.hook_pattern"].double()
    expected[:, heads] = by_hand(expected[:, heads])
    found = seen["blocks.0.attn.hook_pattern"].double()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    z = torch.einsum("bhqk,bkhd->bqhd", expected, seen["blocks.0.attn.hook_v"].double())
    torch.testing.assert_close(seen["blocks.0.attn.hook_z"].double(), z, atol=1e-6, rtol=0)


def test_off_is_the_zero_ablation():
    model, tokens = Transformer(MODEL).eval(), torch.arange(11)[None]
    heads = [(0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    ablated = ablate.effect(model, tokens, heads).ablated
    model.clamps = clamps.edits(TrainConfig(model=MODEL, clamp=("L0H1 off", "L1 off")), 7)
    with torch.no_grad():
        torch.testing.assert_close(per_token_loss(model(tokens), tokens), ablated, atol=0, rtol=0)


def test_clamps_are_those_of_a_config():
    edits: Any = inspect.unwrap(clamps.edits)  # `make test-all` checks the signature around it
    with pytest.raises(TypeError, match="clamps are of a TrainConfig, such as run.config, not of dict"):
        edits({}, 3)


def test_a_run_without_clamps_applies_nothing():
    assert clamps.edits(TrainConfig(clamp=("L0H1 off 3:",)), 2) == []
    model = clamped_model("L0H1 off")
    assert model.visible(0, torch.zeros(1, 5, 4, 4)) is None
    assert copy.deepcopy(model).clamps == model.clamps != Transformer(MODEL).clamps == ()


def clamped_model(*clamp: str, **changes) -> Transformer:
    model = Transformer(replace(MODEL, **changes)).eval()
    model.clamps = clamps.edits(TrainConfig(model=MODEL, clamp=clamp), 0)
    return model


def test_a_clamp_of_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"blocks.2.attn.hook_z is no tap of this model that can be clamped"):
        Transformer(MODEL).clamps = clamps.edits(TrainConfig(model=replace(MODEL, n_layers=3), clamp=("L2 off",)), 0)


TOKENS = torch.randint(11, (3, 12), generator=torch.Generator().manual_seed(0))
BOTH = ("L0H1 no-previous", "L1H2 off")


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_a_sweep_of_a_clamped_model_is_that_of_edits_in_force(mode, frozen):
    """From the prefix that heads share, where a with block let every head run by itself; a head that is off costs 0."""
    model, free = clamped_model(*BOTH, "L1H3 previous"), Transformer(MODEL).eval()
    with applied(model.clamps):
        expected = ablate.sweep(free, TOKENS, mode, frozen=frozen)
    found = ablate.sweep(model, TOKENS, mode, frozen=frozen)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert float(found.sel(layer=1, head=2)) == pytest.approx(0, abs=1e-6) and float(abs(found).max()) > 1e-3


def test_what_has_no_clamps_refuses_them():
    with pytest.raises(ValueError, match=r"In the way: clamps at .*hook_z \(run.model\(step, clamps=False\) could go"):
        as_huggingface(clamped_model("L0H1 off"))
    with pytest.raises(ValueError, match=r"In the way: clamps at blocks.1.attn.hook_attn_scores"):
        to_bridge(clamped_model("L1H1 previous"))


@pytest.fixture(scope="module")
def clamped(tmp_path_factory):
    held = ("L0H2 previous 2:4", "L1 no-previous 3:", "L0H1 off")
    return loop.train(tiny(tmp_path_factory.mktemp("runs") / "clamped", clamp=held), quiet=True)


def test_run_json_says_what_was_held(clamped):
    assert clamped.config.clamp == ("L0H2 previous 2:4", "L1 no-previous 3:", "L0H1 off")


def test_windows_open_and_close_at_their_step(clamped):
    previous = clamped.trace["previous_token"]
    assert (previous.sel(layer=0, head=2).values == 1).tolist() == [False, False, True, True, False, False, False]
    assert (previous.sel(layer=1).values < 1e-30).all(-1).tolist() == [False, False, False, True, True, True, True]
    norms = clamped.trace["head_grad_norm"].sel(layer=0)
    forced = norms.sel(head=2, matrix=["Q", "K"]).values
    assert (forced == 0).all(-1).tolist() == [False, False, True, True, False, False, False]
    assert (norms.sel(head=1) == 0).all() and (norms.sel(head=2, matrix=["V", "O"]) > 0).all()


def test_the_trace_measures_the_model_as_it_is_trained(clamped):
    step = 4
    model, row, val = clamped.model(step), clamped.trace.sel(step=step), loop.prepare(clamped.config).data.val(4)
    with torch.no_grad(), recording("hook_pattern") as seen:
        loss = per_token_loss(model(val[:, :-1]), val)
    assert float(row["val_loss"]) == pytest.approx(float(loss.mean()), rel=1e-6)
    for layer in range(2):
        pattern = seen[f"blocks.{layer}.attn.hook_pattern"]
        entropy = definitions.entropy(pattern)[..., 1:].mean((0, 2))
        np.testing.assert_allclose(row["entropy"].sel(layer=layer), entropy, rtol=1e-5)
        kept = row["pattern"].sel(prompt="text 0", layer=layer).values
        np.testing.assert_allclose(kept, pattern[0], atol=1e-3)
    of_text = bound(model, val[:, :-1])
    np.testing.assert_allclose(of_text.entropy, row["entropy"], rtol=1e-5)
    assert (of_text.by_weights <= of_text.by_scores).all() and (of_text.by_scores <= of_text.entropy).all()
    with torch.no_grad():
        let_go = per_token_loss(clamped.model(step, clamps=False)(val[:, :-1]), val)
    assert abs(float(let_go.mean()) - float(row["val_loss"])) > 1e-4


def test_before_its_window_a_clamp_changes_nothing(tmp_path):
    free = loop.train(tiny(tmp_path / "free"), quiet=True).trace["train_loss"].values
    late = loop.train(tiny(tmp_path / "late", clamp=("L0 off 3:",)), quiet=True).trace["train_loss"].values
    assert (free == late).tolist() == [True, True, True, False, False, False, False]


def test_a_head_that_is_off_learns_nothing(tmp_path):
    optim = OptimConfig(name="sgd", lr=0.1, weight_decay=0.0, batch_size=4)
    run = loop.train(tiny(tmp_path / "r", clamp=("L0H1 off",), optim=optim), quiet=True)
    first, last = (weights(run, step).blocks[0].attn for step in (0, 6))
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        before, after = getattr(first, name), getattr(last, name)
        assert [torch.equal(before[head], after[head]) for head in range(4)] == [False, True, False, False], name


@pytest.mark.parametrize("optimizer", quick(["adamw", "muon"], ("adamw",)))
def test_resume_keeps_clamps_to_the_bit(tmp_path, optimizer):
    held = ("L0H1 off", "L0H2 previous 2:8", "L1 no-previous 3:")
    optim = OptimConfig(name=optimizer, lr=0.01, batch_size=4, accumulate=2, warmup=5)
    model = replace(tiny(tmp_path).model, dropout=0.1)
    base = tiny(tmp_path / "whole", clamp=held, optim=optim, model=model, steps=10)
    whole = loop.train(base, quiet=True)
    loop.train(replace(base, run=str(tmp_path / "half"), steps=5), quiet=True)
    half = loop.resume(tmp_path / "half", steps=10, quiet=True)
    assert half.config.clamp == held
    for name in ("train_loss", "previous_token", "head_grad_norm", "repeat_loss"):
        joined = half.trace[name].sel(step=whole.trace["step"])
        np.testing.assert_array_equal(joined, whole.trace[name], err_msg=name)
    for a, b in zip(weights(whole, 10).parameters(), weights(half, 10).parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_clamp_nests_with_an_ablation():
    """Clamps first, then the heads that are switched off: both are in force."""
    model, tokens = Transformer(MODEL).eval(), torch.arange(11)[None]
    nested = ablate.effect(clamped_model("L0H1 off"), tokens, [(1, 2)])
    assert torch.equal(nested.clean, ablate.effect(model, tokens, [(0, 1)]).ablated)
    assert torch.equal(nested.ablated, ablate.effect(model, tokens, [(0, 1), (1, 2)]).ablated)
    with applied([]):
        assert torch.equal(ablate.effect(model, tokens, [(1, 2)]).clean, per_token_loss(model(tokens), tokens))


@pytest.mark.parametrize("what", ["no-previous", "previous"])
def test_what_is_hidden_is_hidden_from_statistics(what: str) -> None:
    """Patterns made of q and k are those that the model multiplies v with."""
    model = Transformer(ModelConfig(n_layers=2, n_heads=3, d_model=12, d_vocab=9, n_ctx=8), seed=0).eval()
    tokens = torch.arange(14).view(2, 7) % 9
    config = TrainConfig(model=model.config, clamp=(f"L0H1 {what}", "L1H2 no-previous"))
    seen: dict[int, AttentionCall] = {}
    model.clamps = clamps.edits(config, 0)
    with recording("hook_pattern") as patterns, visiting(lambda call: seen.update({call.layer: call})):
        model(tokens)
    held = prompt_attention.look(model, tokens[:1])
    for layer in (0, 1):
        pattern = patterns[f"blocks.{layer}.attn.hook_pattern"]
        torch.testing.assert_close(seen[layer].pattern(), pattern)
        torch.testing.assert_close(seen[layer].stats(tokens)["previous_token"][..., 1:], pattern.diagonal(-1, 2, 3))
        for head in range(3):
            np.testing.assert_allclose(held.pattern(layer, head), pattern[0, head].detach().numpy(), atol=1e-6)
