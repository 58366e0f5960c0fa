"""What transformer-lens does with the model: caches, parts of the stream, lenses, hooks, patching."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from transformer_lens import patching
from transformer_lens.head_detector import HeadName, detect_head

from tests.small import TOKENS, build, changes
from tracer.interventions.edits import recording
from tracer.model import Norm, Transformer

SUMS: dict[str, dict[str, Any]] = {
    "rms": {},
    "layer": {"norm": "layer"},
    "no gain": {"norm": "layer", "norm_gain": False},
    "no norm": {"norm": "none"},
    "no final norm": {"final_norm": False},
    "attention only": {"mlp_hidden": ()},
    "rotary": {"positions": "rotary"},
    "sinusoidal": {"positions": "sinusoidal"},
    "shortformer": {"positions": "shortformer"},
    "tied": {"tie_embeddings": True},
    "q and k normed": {"qk_norm": True},
    "sink": {"sink": "learned"},
    "soft cap": {"attn_softcap": 0.5},
    "gate": {"attn_gate": True},
    "sigmoids": {"attention": "sigmoid"},
}


@pytest.mark.parametrize("name", SUMS)
def test_the_stream_is_the_sum_of_its_parts(name: str) -> None:
    model = build(changes(**SUMS[name]))
    logits, cache = model.run_with_cache(TOKENS)
    stream = cache["resid_post", 1]
    n_heads, n_neurons = 8, 0 if model.config.attn_only else 2 * 20
    for expand, count in ((True, n_neurons), (False, n_neurons // 20)):
        parts, labels = cache.get_full_resid_decomposition(return_labels=True, expand_neurons=expand)
        n_embeddings = 1 if name in ("rotary", "shortformer") else 2
        assert len(parts) == len(labels) == n_heads + count + n_embeddings + 1
        assert (parts.sum(0) - stream).abs().max() < 1e-12
    assert (cache.decompose_resid().sum(0) - stream).abs().max() < 1e-12
    assert (cache.decompose_resid(layer=1).sum(0) - cache["resid_pre", 1]).abs().max() < 1e-12
    assert (cache.get_full_resid_decomposition(layer=1).sum(0) - cache["resid_pre", 1]).abs().max() < 1e-12
    if not model.config.attn_only:
        up_to_mlp = cache.get_full_resid_decomposition(layer=1, mlp_input=True)
        assert (up_to_mlp.sum(0) - cache["resid_mid", 1]).abs().max() < 1e-12
    parts = cache.get_full_resid_decomposition()
    attributed = cache.logit_attrs(parts, tokens=TOKENS)
    # a LayerNorm's bias is no part of the stream: what it adds to every logit comes on top
    bias = model.ln_final.b if isinstance(model.ln_final, Norm) else None
    constant = torch.zeros(13) if bias is None else bias @ model.W_U
    wanted = logits.gather(2, TOKENS[..., None])[..., 0]
    assert (attributed.sum(0) + model.b_U[TOKENS] + constant[TOKENS] - wanted).abs().max() < 1e-11
    last = cache.logit_attrs(parts[:, 1, -1], tokens=3, pos_slice=-1, batch_slice=1, has_batch_dim=False)
    assert (last.sum() + constant[3] - logits[1, -1, 3]).abs() < 1e-11


@pytest.mark.parametrize("name", SUMS)
def test_head_results(name: str) -> None:
    model = build(changes(**SUMS[name]))
    _, cache = model.run_with_cache(TOKENS)
    results, labels = cache.stack_head_results(return_labels=True)
    assert labels == [f"L{layer}H{head}" for layer in (0, 1) for head in range(4)]
    for layer, block in enumerate(model.blocks):
        assert block.attn.W_O is not None and block.attn.b_O is not None
        gate = cache.cache_dict.get(f"blocks.{layer}.attn.hook_gate", torch.ones(1))
        by_hand = torch.stack([(cache["z", layer] * gate)[:, :, head] @ block.attn.W_O[head] for head in range(4)])
        assert (results[4 * layer : 4 * layer + 4] - by_hand).abs().max() < 1e-12
        assert (by_hand.sum(0) + block.attn.b_O - cache["attn_out", layer]).abs().max() < 1e-12


@pytest.mark.parametrize("name", sorted(set(SUMS) - {"tied"}))
def test_the_logit_lens_ends_at_the_logits(name: str) -> None:
    model = build(changes(**SUMS[name]))
    logits, cache = model.run_with_cache(TOKENS)
    lens = cache.logit_lens(positions=None)
    assert lens.labels == ["0_pre", "1_pre", "final_post"]
    assert (lens.readout.values[-1] - logits).abs().max() < 1e-11
    first = model.ln_final(cache["resid_pre", 0]) @ model.W_U
    assert (lens.readout.values[0] - first).abs().max() < 1e-11


@pytest.mark.parametrize(
    "fields", [{"residual": False}, {"norm_position": "post"}, {"residual": False, "norm": "none"}]
)
@pytest.mark.parametrize(
    "call",
    [
        "accumulated_resid()", "decompose_resid()", "get_full_resid_decomposition()", "logit_lens()",
        "logit_attrs(cache['resid_post', 1][None], 0)",
    ],
)  # fmt: skip
def test_a_stream_that_is_no_sum_is_not_decomposed(fields: dict[str, Any], call: str) -> None:
    _, cache = build(changes(**fields)).run_with_cache(TOKENS)
    with pytest.raises(ValueError, match="needs a residual stream that is the sum of its parts"):
        eval(f"cache.{call}", {"cache": cache})


def test_post_without_a_norm_is_a_sum() -> None:
    _, cache = build(changes(norm="none", norm_position="post")).run_with_cache(TOKENS)
    assert (cache.decompose_resid().sum(0) - cache["resid_post", 1]).abs().max() < 1e-12


def test_heads_without_w_o_have_no_results() -> None:
    _, cache = build(changes(attn_out=False, attn_out_bias=False)).run_with_cache(TOKENS)
    with pytest.raises(ValueError, match="needs W_O"):
        cache.stack_head_results()
    assert (cache.decompose_resid().sum(0) - cache["resid_post", 1]).abs().max() < 1e-12


def test_run_with_cache_as_in_transformer_lens() -> None:
    model = build()
    _, cache = model.run_with_cache(TOKENS, names_filter=lambda name: name.endswith("hook_z"))
    assert list(cache.keys()) == ["blocks.0.attn.hook_z", "blocks.1.attn.hook_z"]
    _, cache = model.run_with_cache(TOKENS[:1], remove_batch_dim=True)
    assert cache["pattern", 0].shape == (4, 9, 9) and cache["resid_post", -1].shape == (9, 16)
    _, cache = model.run_with_cache(TOKENS, pos_slice=-1)
    assert cache["z", 0].shape == (3, 1, 4, 4) and cache["mlp_out", 0].shape == (3, 1, 16)
    assert hooks_of(model) == 0


def hooks_of(model: Transformer) -> int:
    return sum(len(tap.fwd_hooks) + len(tap.bwd_hooks) + len(tap._forward_hooks) for tap in model.hook_points())


def test_hooks_act_and_are_gone_after_the_call() -> None:
    model = build()
    clean = model(TOKENS)

    def zero(z: Tensor, hook: Any) -> Tensor:
        return z * (torch.arange(4) != 2)[:, None]

    def fail(z: Tensor, hook: Any) -> Tensor:
        raise KeyError(hook.name)

    twin = build()
    twin.get_parameter("blocks.1.attn.W_O")[2] = 0
    hooked = model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.1.attn.hook_z", zero)])
    assert (hooked - twin(TOKENS)).abs().max() < 1e-12
    assert hooks_of(model) == 0
    with pytest.raises(KeyError, match="blocks.1.hook_resid_pre"):
        model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.attn.hook_z", zero), ("blocks.1.hook_resid_pre", fail)])
    assert hooks_of(model) == 0 and torch.equal(model(TOKENS), clean)
    with pytest.raises(ValueError, match="token 1"):
        model.run_with_cache(TOKENS + 99)
    assert hooks_of(model) == 0 and torch.equal(model(TOKENS), clean)


@pytest.mark.parametrize("tap", ["hook_pattern", "hook_attn_scores"])
def test_hooks_on_scores_and_pattern_take_effect(tap: str) -> None:
    model = build()

    def first_key_only(x: Tensor, hook: Any) -> Tensor:
        value = torch.full_like(x, -torch.inf if tap == "hook_attn_scores" else 0.0)
        value[..., 0] = 1.0
        return value

    _, clean = model.run_with_cache(TOKENS)
    with model.hooks(fwd_hooks=[(f"blocks.0.attn.{tap}", first_key_only)]):
        _, cache = model.run_with_cache(TOKENS)
    assert torch.equal(cache["z", 0], clean["v", 0][:, :1].expand(3, 9, 4, 4))


def test_backward_hooks_see_the_gradient() -> None:
    model = build().requires_grad_(True)
    seen = {}

    def keep(gradient: Tensor, hook: Any) -> None:
        seen[hook.name] = gradient

    with model.hooks(bwd_hooks=[("blocks.1.hook_resid_post", keep)]):
        model(TOKENS)[..., 0].sum().backward()
    assert seen["blocks.1.hook_resid_post"].shape == (3, 9, 16)


def test_patching_the_stream() -> None:
    """Patching position p of the first stream undoes the corruption iff it is where the tokens differ."""
    model = build()
    clean, corrupted = TOKENS[:1], TOKENS[:1].clone()
    corrupted[0, 4] = (corrupted[0, 4] + 1) % 13
    logits, cache = model.run_with_cache(clean)

    def off(ours: Tensor) -> Tensor:
        return (ours - logits).abs().max()

    grid = patching.get_act_patch_resid_pre(model, corrupted, cache, off)
    assert grid.shape == (2, 9)
    assert grid[0, 4] < 1e-12 and grid[0, [*range(4), *range(5, 9)]].min() > 1e-3
    assert (grid[0, :4] - off(model(corrupted))).abs().max() < 1e-6 and hooks_of(model) == 0


WORDS = ["<bos>", *"abcdefghijkl"]


def test_detect_head_agrees_with_sums_by_hand() -> None:
    model = build()
    model.tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<bos>"))
    model.tokenizer.pre_tokenizer = Whitespace()
    text = "a b c a b d a"
    tokens = model.to_tokens(text)
    assert tokens.tolist() == [[0, 1, 2, 3, 1, 2, 4, 1]]
    assert model.to_tokens(text, prepend_bos=False).tolist() == [[1, 2, 3, 1, 2, 4, 1]]
    assert model.to_single_token("d") == 4
    with pytest.raises(ValueError, match="2 tokens, not one"):
        model.to_single_token("a b")
    with recording("hook_pattern") as seen:
        model(tokens)
    t = tokens[0].tolist()
    pairs: dict[HeadName, set[tuple[int, int]]] = {
        "previous_token_head": {(q, q - 1) for q in range(1, 8)},
        "duplicate_token_head": {(q, k) for q in range(8) for k in range(q) if t[k] == t[q]},
        "induction_head": {(q, k + 1) for q in range(8) for k in range(q) if t[k] == t[q]},
    }
    for kind, wanted in pairs.items():
        scores = detect_head(model, text, kind)
        for layer in (0, 1):
            pattern = seen[f"blocks.{layer}.attn.hook_pattern"][0]
            for head in range(4):
                by_hand = sum(pattern[head, q, k].item() for q, k in wanted) / pattern[head].sum().item()
                assert scores[layer, head].item() == pytest.approx(by_hand, abs=1e-6), (kind, layer, head)


def test_cfg_says_what_the_model_is() -> None:
    cfg = build(changes(norm="layer", norm_gain=False)).cfg
    assert isinstance(cfg, SimpleNamespace)
    assert (cfg.n_layers, cfg.n_heads, cfg.d_model, cfg.d_head, cfg.n_ctx, cfg.d_vocab) == (2, 4, 16, 4, 10, 13)
    assert (cfg.d_mlp, cfg.attn_only, cfg.normalization_type, cfg.dtype) == (20, False, "LNPre", torch.float64)
