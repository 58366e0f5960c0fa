"""A model that others wrote, edited like ours: equal to transformer-lens's bridge, and safe from many threads."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

import tracer
from tracer import ablate
from tracer.data.probes import per_token_loss
from tracer.hooks.refusals import CannotWatch
from tracer.huggingface.wrapped import WrappedModel
from tracer.interventions.edits import Edit, applied, recording
from tracer.model.protocol import HeadModel

IDS = torch.randint(2, 50, (4, 9), generator=torch.Generator().manual_seed(0))
OTHER = torch.randint(2, 50, (5, 9), generator=torch.Generator().manual_seed(1))
OURS = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "neox": "GPTNeoXForCausalLM"}
HEADS = [{(0, 1)}, {(1, 3)}, {(0, 0), (0, 3), (1, 2)}]


@pytest.fixture(scope="module", params=[(name, kernel) for name in OURS for kernel in ("sdpa", "eager")])
def pair(request: Any, build: Callable[..., Any]) -> tuple[WrappedModel, Any]:
    """The model, and the bridge around a copy of it: wrapping changes what it wraps."""
    name, kernel = request.param
    model = build(name, kernel).requires_grad_(False)
    twin = copy.deepcopy(build(name, "eager"))
    return tracer.load_hf(model), build_bridge_from_module(twin, OURS[name], hf_config=twin.config).eval()


def replaced(bridge: Any, heads: set[tuple[int, int]], values: dict[int, torch.Tensor | float], frozen: Any) -> Any:
    """Logits of the bridge with hook_z of these heads, and all patterns if they are frozen, set by hooks."""

    def off(layer: int, which: list[int]) -> Callable[..., torch.Tensor]:
        def hook(z: torch.Tensor, hook: Any) -> torch.Tensor:
            z, value = z.clone(), values[layer]
            for head in which:
                z[:, :, head] = value[:, :, head] if isinstance(value, torch.Tensor) else value
            return z

        return hook

    layers = {layer for layer, _ in heads}
    found: list[Any] = [
        (f"blocks.{i}.attn.hook_z", off(i, [head for at, head in heads if at == i])) for i in sorted(layers)
    ]
    if frozen is not None:
        found += [(name, lambda _, hook, held=held: held) for name, held in frozen.items()]
    return bridge.run_with_hooks(IDS, fwd_hooks=found, prepend_bos=False)


@pytest.mark.parametrize("mode", ablate.MODES)
@pytest.mark.parametrize("frozen", [False, True])
def test_ablation_is_that_of_transformer_lens(pair: tuple[WrappedModel, Any], mode: ablate.Mode, frozen: bool) -> None:
    model, bridge = pair
    with torch.no_grad():
        z = bridge.run_with_cache(OTHER, prepend_bos=False, names_filter=lambda n: n.endswith("hook_z"))[1]
        _, clean = bridge.run_with_cache(IDS, prepend_bos=False, names_filter=lambda n: n.endswith("attn.hook_pattern"))
        assert (model(IDS) - bridge(IDS, prepend_bos=False)).abs().max() < 4e-6
        for heads in HEADS:
            values: dict[int, torch.Tensor | float] = {}
            for i in range(2):
                theirs = z[f"blocks.{i}.attn.hook_z"]
                shuffled = theirs[ablate.derangement(5, seed=0)[: len(IDS)]]
                values[i] = {"zero": 0.0, "mean": theirs.mean(0, keepdim=True), "resample": shuffled}[mode]
            logits = replaced(bridge, heads, values, dict(clean) if frozen else None)
            found = ablate.effect(model, IDS, heads, mode, reference=OTHER, frozen=frozen, draws=1)
            expected = per_token_loss(logits, IDS)
            assert (found.ablated - expected).abs().max() < 4e-6
            assert found.delta.abs().max() > 1e-3


def test_a_sweep_is_every_head_by_itself(pair: tuple[WrappedModel, Any]) -> None:
    model, bridge = pair
    found = ablate.sweep(model, IDS)
    with torch.no_grad():
        clean = per_token_loss(bridge(IDS, prepend_bos=False), IDS).mean()
        for layer in range(model.n_layers):
            for head in range(model.n_heads):
                logits = replaced(bridge, {(layer, head)}, {layer: 0.0}, None)
                expected = float(per_token_loss(logits, IDS).mean() - clean)
                assert float(found[layer, head]) == pytest.approx(expected, abs=2e-6)
    one = ablate.sweep(model, IDS, layers=[1])
    np.testing.assert_array_equal(one.sel(layer=1), found.sel(layer=1))
    assert one.dims == found.dims and one["layer"].values.tolist() == [1]
    for layers, words in (([2], "layer 2 does not exist: the model has layers 0 to 1"), ([], "layers is empty")):
        with pytest.raises(ValueError, match=words):
            ablate.sweep(model, IDS, layers=layers)


def test_taps_are_those_of_transformer_lens(pair: tuple[WrappedModel, Any]) -> None:
    model, bridge = pair
    assert isinstance(model, HeadModel)
    with torch.no_grad(), recording("hook_pattern", "hook_z", "hook_v") as seen:
        model(IDS)
    with torch.no_grad():
        cache = bridge.run_with_cache(IDS, prepend_bos=False)[1]
    assert len(seen) == 6
    for name, value in seen.items():
        theirs = cache[name]
        if name.endswith("hook_v") and theirs.shape != value.shape:  # eager repeats the heads that share keys
            theirs = theirs.repeat_interleave(value.shape[2] // theirs.shape[2], 2)
        assert (value - theirs).abs().max() < 4e-6, name


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_threads_do_not_meet(build: Callable[..., Any], kernel: str) -> None:
    model = tracer.load_hf(build("gpt2", kernel).requires_grad_(False))
    edits = ablate.plan({(0, 1), (1, 2)}, "zero")
    clean = model(IDS)
    with applied(edits):
        off = model(IDS)
    assert (clean - off).abs().max() > 1e-2

    def work(number: int) -> int:
        wrong = 0
        for _ in range(50):
            if number % 2:
                with applied(edits):
                    wrong += not torch.equal(model(IDS), off)
            else:
                wrong += not torch.equal(model(IDS), clean)
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0


def test_wrong_input_is_answered(build: Callable[..., Any]) -> None:
    model = tracer.load_hf(build("gpt2"))
    for ids, says in (
        (torch.zeros(1, 65, dtype=torch.long), "65 tokens, the context holds n_ctx=64"),
        (torch.tensor([[3, 50]]), "token 50 is outside the vocabulary: 0 to 49"),
        (torch.tensor([[-1, 3]]), "token -1 is outside"),
    ):
        with pytest.raises(ValueError, match=says):
            model(ids)
    with pytest.raises(ValueError, match=r"blocks.7.attn.hook_z is no tap"), applied([Edit("blocks.7.attn.hook_z")]):
        model(IDS)
    with pytest.raises(ValueError, match="L0H4 does not exist"):
        ablate.effect(model, IDS, {(0, 4)})
    with pytest.raises(ValueError, match="head 4 does not exist"), applied([Edit("blocks.0.attn.hook_z", (4,))]):
        model(IDS)


def test_releasing_it_leaves_the_model_as_it_was(build: Callable[..., Any]) -> None:
    inner = build("llama")
    with torch.no_grad():
        plain = inner(IDS).logits
        model = tracer.load_hf(inner)
        assert torch.equal(model(IDS), plain)
        model.release()
        assert torch.equal(inner(IDS).logits, plain)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in inner.modules())


def test_a_part_in_another_place_leaves_no_hooks(build: Callable[..., Any]) -> None:
    inner = build("gpt2")
    block = inner.transformer.h[1]
    block.feed = block.mlp
    del block.mlp
    block.__class__ = type("Other", (type(block),), {"mlp": property(lambda self: self.feed.forward)})
    model = tracer.load_hf(inner)
    assert "mlp" in model.why_no_stream
    model.release()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in inner.modules())


def test_a_model_without_logits_is_refused(build: Callable[..., Any]) -> None:
    inner = build("bert").base_model
    with pytest.raises(CannotWatch, match=r"BertModel returned no logits \[batch pos d_vocab\]"):
        WrappedModel(inner, n_ctx=64, d_vocab=50, run=lambda m, ids: m(ids).pooler_output)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in inner.modules())
    assert np.isfinite(ablate.sweep(tracer.load_hf(build("gemma2", "eager")), IDS)).all()


def test_a_model_in_training_mode_is_not_measured(build: Callable[..., Any]) -> None:
    model = build("gpt2")
    foreign = tracer.load_hf(model)
    model.train()
    tokens = torch.arange(12).view(2, 6)
    for ask in (lambda: ablate.effect(foreign, tokens, [(0, 0)]), lambda: ablate.sweep(foreign, tokens)):
        with pytest.raises(ValueError, match=r"training mode, where dropout .* call model.eval\(\)"):
            ask()
    model.eval()
    assert ablate.sweep(foreign, tokens).shape == (2, 4)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_a_model_that_looks_ahead_predicts_nothing(kernel: str) -> None:
    sizes = {"vocab_size": 50, "hidden_size": 24, "intermediate_size": 32, "num_attention_heads": 4}
    hf: Any = transformers
    config = hf.BertConfig(**sizes, num_hidden_layers=2, attn_implementation=kernel)
    with pytest.raises(CannotWatch, match=r"looks ahead, .* is_decoder=True"):
        tracer.load_hf(hf.BertLMHeadModel(config))
    config.is_decoder = True
    assert tracer.load_hf(hf.BertLMHeadModel(config)).n_layers == 2


def test_activations_are_kept_by_name_as_in_transformer_lens(pair: tuple[WrappedModel, Any]) -> None:
    ours, bridge = pair
    logits, cache = ours.run_with_cache(IDS)
    theirs, kept = bridge.run_with_cache(IDS)
    torch.testing.assert_close(logits, theirs, atol=1e-5, rtol=1e-5)
    for name in ("pattern", "z"):
        torch.testing.assert_close(cache[name, 1], kept[f"blocks.1.attn.hook_{name}"], atol=1e-5, rtol=1e-4)
    only = ours.run_with_cache(IDS, names_filter="blocks.0.attn.hook_z")[1]
    assert list(only) == ["blocks.0.attn.hook_z"]
    assert set(cache) == set(ours.taps)  # each of them is seen
    with pytest.raises(KeyError, match=r"\('pattern', 0\) is no tap that was kept"):
        only["pattern", 0]


def test_what_nobody_sees_is_no_tap(build: Callable[..., Any]) -> None:
    """A model that computes its pattern itself shows no q and k: an edit there would change nothing, silently."""
    name = "blocks.0.attn.hook_q"
    assert name in tracer.load_hf(build("gpt2", "sdpa")).taps
    by_hand = tracer.load_hf(build("gpt2", "eager"))
    with pytest.raises(ValueError, match=f"{name} is no tap of this model; it has blocks.<0 to 1>.attn.hook_v"):
        by_hand.run_with_hooks(IDS, [(name, lambda q, hook: q * 0)])
