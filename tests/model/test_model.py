"""The claims of the tutorials, the two paths of attention, positions, copies, and the errors."""

import copy
import math
from itertools import product
from typing import Any

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from tests.small import TOKENS, build, changes
from tests.tiers import quick
from tracer.config import ModelConfig
from tracer.interventions.edits import recording
from tracer.model import Transformer

T1 = ModelConfig(
    n_layers=1, n_heads=1, d_model=256, n_ctx=32, d_vocab=2048, mlp_hidden=(2048, 2048), norm="none", attn_out=False
)


def n_params(model: nn.Module, part: str = "") -> int:
    return sum(p.numel() for name, p in model.named_parameters() if part in name)


def single_head(
    x: Float[Tensor, "batch pos width"], query: Tensor, key: Tensor, value: Tensor, out: Tensor
) -> Float[Tensor, "batch pos width"]:
    """T4's single head: scaled dot products under a causal mask, softmax, values, projection."""
    q, k, v = x @ query, x @ key, x @ value
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    future = torch.tril(torch.ones(x.shape[1], x.shape[1])) == 0
    return scores.masked_fill(future, -torch.inf).softmax(-1) @ v @ out


@pytest.mark.parametrize("shape", [(2, 11), (1, 1), (3, 16)])
@pytest.mark.parametrize("width", [8, 32, 100])
def test_one_head_is_the_single_head_module(width: int, shape: tuple[int, int]) -> None:
    """In float64, so that only the order of sums, which is the CPU's, is left to differ: a few parts in 1e15."""
    model = Transformer(ModelConfig(n_layers=1, n_heads=1, d_model=width, n_ctx=16, d_vocab=9), seed=3).double()
    attn = model.blocks[0].attn
    x = torch.randn(*shape, width, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    single = single_head(x, *(weight[0] for weight in attn.parameters()))
    with recording("hook_pattern"):
        torch.testing.assert_close(attn(x), single, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(attn(x), single, rtol=1e-12, atol=1e-12)  # the fused kernel


@pytest.mark.parametrize("n_heads", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("d_model", [64, 256])
def test_the_attention_has_4_d_model_squared_parameters_whatever_the_heads(d_model: int, n_heads: int) -> None:
    config = ModelConfig(n_layers=1, n_heads=n_heads, d_model=d_model, n_ctx=4, d_vocab=5)
    model = Transformer(config)
    assert n_params(model, ".attn.") == 4 * d_model**2
    assert model(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 5)


def test_gpt2_small_shape() -> None:
    model = Transformer(ModelConfig(n_layers=1, n_heads=12, d_model=768, n_ctx=4, d_vocab=5))
    assert model.blocks[0].attn.W_Q.shape == (12, 768, 64)
    assert n_params(model, ".attn.") == 2_359_296


@pytest.mark.parametrize(
    ("config", "count"),
    [
        pytest.param(T1, 6_500_608, id="single-head-residual"),
        pytest.param(
            changes(T1, n_layers=4, n_heads=4, attn_out=True, norm="rms", final_norm=False),
            23_096_320,
            id="four-blocks-rms",
        ),
        # d_k = d for each of 4 heads: Q, K, V 3 * 4 * 256^2, W_O (4 * 256) * 256, against 3 * 256^2 of one head
        pytest.param(changes(T1, n_heads=4, d_head=256, attn_out=True), 6_500_608 + 13 * 256**2, id="multi-head-full"),
        pytest.param(changes(T1, n_heads=4, attn_out=True), 6_500_608 + 256**2, id="multi-head"),
        # embedding 2048 * 256, W_pos 32 * 256, Q K V 3 * 256^2, then 256 -> 2048 -> 2048 -> 2048 with biases
        pytest.param(
            changes(T1, residual=False, mlp_hidden=(), unembed_hidden=(2048, 2048)),
            2048 * 256 + 32 * 256 + 3 * 256**2 + 256 * 2048 + 2 * 2048 * 2048 + 3 * 2048,
            id="single-head-unscaled",
        ),
    ],
)
def test_parameter_counts_of_the_specimens(config: ModelConfig, count: int) -> None:
    with torch.device("meta"), pytest.MonkeyPatch.context() as patch:  # shapes only
        patch.setattr("tracer.model.transformer.init_weights", lambda model, seed: None)
        assert n_params(Transformer(config)) == count


@pytest.mark.parametrize("n_heads", [4, 8])
def test_the_audit_of_many_eyes(n_heads: int) -> None:
    """T3: (B, T, d_model) in and out for 4 and 8 heads, as many parameters as one full-width head, b_O on top."""
    config = ModelConfig(n_layers=1, n_heads=n_heads, d_model=384, n_ctx=16, d_vocab=7, attn_out_bias=True)
    attn, one = Transformer(config).blocks[0].attn, Transformer(changes(config, n_heads=1)).blocks[0].attn
    x = torch.randn(2, 5, 384, generator=torch.Generator().manual_seed(0))
    assert attn(x).shape == x.shape
    assert sum(p.numel() for p in attn.parameters()) == 4 * 384**2 + 384 == sum(p.numel() for p in one.parameters())
    with recording("hook_pattern") as seen:
        attn(x)
    (pattern,) = seen.values()
    assert pattern.shape == (2, n_heads, 5, 5)
    for head in range(1, n_heads):
        assert not torch.allclose(pattern[:, head], pattern[:, 0], atol=1e-3)
    bare = Transformer(changes(config, attn_out=False, attn_out_bias=False)).blocks[0].attn
    assert sum(p.numel() for p in bare.parameters()) == 3 * 384**2 and bare(x).shape == x.shape


def test_post_norm_without_gain_leaves_rows_of_mean_0_and_std_1() -> None:
    """T5: "the cat sat on mat", 4 heads of size 2, LayerNorm(x + sublayer(x)); max entropy log 5 = 1.61."""
    config = ModelConfig(
        n_layers=1, n_heads=4, d_model=8, n_ctx=5, d_vocab=5, norm="layer", norm_position="post", norm_gain=False,
        norm_eps=1e-5, final_norm=False, mlp_hidden=(32,),
    )  # fmt: skip
    model = Transformer(config, seed=1)
    assert [name for name, _ in model.named_parameters() if ".ln" in name] == []
    with torch.no_grad(), recording("hook_resid_mid", "hook_resid_post", "hook_pattern") as seen:
        model(torch.arange(5)[None])
    for name in ("hook_resid_mid", "hook_resid_post"):
        rows = seen[f"blocks.0.{name}"]
        assert rows.mean(-1).abs().max() < 1e-6
        assert (rows.std(-1, correction=0) - 1).abs().max() < 1e-4
    pattern = seen["blocks.0.attn.hook_pattern"]
    entropy = -(pattern * pattern.clamp_min(1e-30).log()).sum(-1)
    assert entropy.shape == (1, 4, 5) and entropy.max() <= math.log(5) + 1e-6 and entropy[..., 0].abs().max() == 0


def test_uniform_pattern_when_q_is_zero() -> None:
    model = build()
    for block in model.blocks:
        block.attn.W_Q.zero_()
    _, cache = model.run_with_cache(TOKENS)
    uniform = torch.ones(9, 9).tril().double() / torch.arange(1, 10)[:, None]
    assert torch.allclose(cache["pattern", 1], uniform.expand(3, 4, 9, 9), atol=1e-15)


@pytest.mark.parametrize("watched", [False, True])
def test_the_fused_kernel_runs_when_nobody_looks(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, kernel = [], F.scaled_dot_product_attention

    def spy(*args: Any, **kwargs: Any) -> Tensor:
        calls.append(kwargs["scale"])
        return kernel(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    model = build()
    with recording("hook_q", *(["blocks.1.attn.hook_pattern"] if watched else [])):
        model(TOKENS)
    assert calls == [0.5] * (1 if watched else 2)


@pytest.mark.parametrize("watched", [(), ("hook_pattern",)])
def test_dropout_acts_in_training_only(watched: tuple[str, ...]) -> None:
    model = build(changes(dropout=0.4))
    twin = build()
    with recording(*watched):
        assert torch.equal(model(TOKENS), model(TOKENS))
        assert torch.equal(model(TOKENS), twin(TOKENS))
        model.train()
        twin.train()
        torch.manual_seed(0)
        first, second = model(TOKENS), model(TOKENS)
        assert not torch.equal(first, second)
        assert torch.equal(twin(TOKENS), twin(TOKENS))
        torch.manual_seed(0)
        assert torch.equal(model(TOKENS), first)


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (torch.zeros(1, 11, dtype=torch.long), ["11 tokens", "n_ctx=10"]),
        (torch.tensor([[0, 13]]), ["token 13", "0 to 12"]),
        (torch.tensor([[3, -1]]), ["token -1", "0 to 12"]),
    ],
)
def test_an_input_that_does_not_fit(tokens: Int[Tensor, "1 pos"], says: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        build()(tokens)
    for part in says:
        assert part in str(error.value)


def test_what_a_model_cannot_give() -> None:
    with pytest.raises(ValueError, match="d_vocab is not set"):
        Transformer(changes(d_vocab=None))
    with pytest.raises(ValueError, match="no tokenizer"):
        build().to_tokens("a b")
    with pytest.raises(ValueError, match="it has no W_U"):
        _ = build(changes(unembed_hidden=(9,))).W_U


@pytest.mark.parametrize("positions", ["learned", "rotary", "sinusoidal"])
def test_a_copy_and_a_state_dict_are_the_same_model(positions: Any) -> None:
    model = build(changes(positions=positions))
    loaded = Transformer(model.config, seed=9).double().eval()
    loaded.load_state_dict(model.state_dict())
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}  # tables are computed, not stored
    for twin in (copy.deepcopy(model), loaded):
        logits, cache = twin.run_with_cache(TOKENS)
        assert torch.equal(twin(TOKENS), model(TOKENS))
        with recording(*twin.hook_dict) as seen:
            assert torch.equal(twin(TOKENS), logits)
        assert torch.equal(seen["blocks.1.attn.hook_q"], cache["q", 1])
        with torch.no_grad():
            twin.embed.W_E.zero_()
        assert (twin(TOKENS) - model(TOKENS)).abs().max() > 1e-3


COMPILED: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary, normed q and k, sink, smeared": {
        "positions": "rotary",
        "qk_norm": True,
        "sink": "learned",
        "smear": "keys",
    },
    "soft cap, gate, sigmoids": {"attn_softcap": 0.5, "attn_gate": True, "attention": "sigmoid"},
    "shortformer": {"positions": "shortformer", "norm_position": "post"},
    "unembedding is an MLP": {"residual": False, "norm": "none", "mlp_hidden": (), "unembed_hidden": (7,)},
}


@pytest.mark.parametrize("fields", quick(COMPILED.values(), [COMPILED["rotary, normed q and k, sink, smeared"]]))
def test_compiled_equals_eager(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # dynamo cannot trace the shape checks
    model = build(changes(**fields))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(TOKENS), model(TOKENS))
    with recording("hook_pattern") as seen:
        explicit = model(TOKENS)
    assert len(seen) == 2 and (explicit - compiled(TOKENS)).abs().max() < 1e-12
    torch.compiler.reset()


def test_the_taps_whose_product_is_the_score() -> None:
    for positions, normed, smear in product(("learned", "rotary"), (False, True), ("none", "keys", "queries")):
        model = build(changes(positions=positions, qk_norm=normed, smear=smear))
        q, k = model.qk_taps(1)
        with recording(q, k, "hook_attn_scores") as seen:
            model(TOKENS)
        made = torch.einsum("bihd,bjhd->bhij", seen[q], seen[k]) / 2
        scores, causal = seen["blocks.1.attn.hook_attn_scores"], torch.ones(9, 9, dtype=torch.bool).tril()
        assert torch.allclose(scores[..., causal], made[..., causal], atol=1e-12)
        assert (scores[..., ~causal] == -torch.inf).all()


def test_rotary_scores_depend_on_the_distance_only() -> None:
    model = build(changes(n_layers=1, positions="rotary", mlp_hidden=()))
    with recording("hook_attn_scores") as seen:
        model(torch.full((1, 10), 7))
    scores = seen["blocks.0.attn.hook_attn_scores"][0]
    for distance in range(10):
        diagonal = scores.diagonal(-distance, 1, 2)
        assert (diagonal - diagonal[:, :1]).abs().max() < 1e-5
    assert scores[:, 9].std(-1).min() > 1e-3
