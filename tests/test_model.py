"""The claims of the tutorials, the initial weights, the errors, and what transformer-lens does with the model."""

import copy
import math
from types import SimpleNamespace
from typing import Any

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor, nn
from transformer_lens import patching
from transformer_lens.head_detector import HeadName, detect_head

from tracer.config import InitConfig, ModelConfig
from tracer.edits import recording
from tracer.model import Norm, Transformer

SMALL = ModelConfig(
    n_layers=2, n_heads=4, d_model=16, n_ctx=10, d_vocab=13, mlp_hidden=(12, 20), attn_out_bias=True,
    init=InitConfig(attn=0.5),
)  # fmt: skip
TOKENS = torch.randint(0, 13, (3, 9), generator=torch.Generator().manual_seed(0))
T1 = ModelConfig(
    n_layers=1, n_heads=1, d_model=256, n_ctx=32, d_vocab=2048, mlp_hidden=(2048, 2048), norm="none", attn_out=False
)


def changes(base: ModelConfig = SMALL, **fields: Any) -> ModelConfig:
    return ModelConfig(**{name: getattr(base, name) for name in base.__dataclass_fields__} | fields)


def build(config: ModelConfig = SMALL, seed: int = 1) -> Transformer:
    """A float64 model in eval mode whose gains and biases are random too."""
    model = Transformer(config, seed=seed).double().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(2)
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            weight.normal_(1 if name.endswith(".w") else 0, 0.5, generator=generator)
    return model


def n_params(model: nn.Module, part: str = "") -> int:
    return sum(p.numel() for name, p in model.named_parameters() if part in name)


def unit(n: int, i: int) -> Float[Tensor, "n"]:
    return F.one_hot(torch.tensor(i), n).double()


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
def test_one_head_is_the_single_head_module_bit_for_bit(width: int, shape: tuple[int, int]) -> None:
    attn = Transformer(ModelConfig(n_layers=1, n_heads=1, d_model=width, n_ctx=16, d_vocab=9), seed=3).blocks[0].attn
    x = torch.randn(*shape, width, generator=torch.Generator().manual_seed(4))
    single = single_head(x, *(weight[0] for weight in attn.parameters()))
    with recording("hook_pattern"):
        assert torch.equal(attn(x), single)
    assert (attn(x) - single).abs().max() < 1e-5  # the fused kernel sums in another order


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
        patch.setattr("tracer.model.init_weights", lambda model, seed: None)
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


def stds(config: ModelConfig, seed: int = 0) -> dict[str, float]:
    model = Transformer(config, seed=seed)
    return {name: weight.std().item() if weight.any() else 0.0 for name, weight in model.named_parameters()}


WIDE = ModelConfig(n_layers=1, n_heads=4, d_model=64, d_head=32, n_ctx=60, d_vocab=70, norm="none")


@pytest.mark.parametrize(
    ("init", "fields", "expected"),
    [
        (
            InitConfig(),
            {"mlp_hidden": (128, 96)},
            {
                "embed.W_E": 1.0,
                "pos_embed.W_pos": 1.0,
                "blocks.0.attn.W_Q": 64**-0.5,
                "blocks.0.attn.W_K": 64**-0.5,
                "blocks.0.attn.W_V": 64**-0.5,
                "blocks.0.attn.W_O": 128**-0.5,  # fan-in n_heads * d_head
                "blocks.0.mlp.W_in": (3 * 64) ** -0.5,  # uniform(-a, a) has std a / sqrt(3)
                "blocks.0.mlp.b_in": (3 * 64) ** -0.5,
                "blocks.0.mlp.W_1": (3 * 128) ** -0.5,
                "blocks.0.mlp.b_1": (3 * 128) ** -0.5,
                "blocks.0.mlp.W_out": (3 * 96) ** -0.5,
                "blocks.0.mlp.b_out": (3 * 96) ** -0.5,
                "unembed.W_U": 64**-0.5,
            },
        ),
        (
            InitConfig(embed=0.02, pos=0.2, attn=1.0, mlp=0.3, unembed="linear"),
            {"mlp_hidden": (128,), "attn_out_bias": True},
            {
                "embed.W_E": 0.02,
                "pos_embed.W_pos": 0.2,
                "blocks.0.attn.W_Q": 1.0,
                "blocks.0.attn.W_K": 1.0,
                "blocks.0.attn.W_V": 1.0,
                "blocks.0.attn.W_O": 1.0,
                "blocks.0.attn.b_O": 0.0,
                "blocks.0.mlp.W_in": 0.3,
                "blocks.0.mlp.b_in": 0.0,
                "blocks.0.mlp.W_out": 0.3,
                "blocks.0.mlp.b_out": 0.0,
                "unembed.W_U": (3 * 64) ** -0.5,
            },
        ),
        (
            InitConfig(attn="linear", mlp="fan_in"),
            {"unembed_hidden": (128,), "positions": "rotary"},
            {
                "embed.W_E": 1.0,
                "blocks.0.attn.W_Q": (3 * 64) ** -0.5,
                "blocks.0.attn.W_K": (3 * 64) ** -0.5,
                "blocks.0.attn.W_V": (3 * 64) ** -0.5,
                "blocks.0.attn.W_O": (3 * 128) ** -0.5,
                "unembed.W_in": 64**-0.5,
                "unembed.b_in": 0.0,
                "unembed.W_out": 128**-0.5,
                "unembed.b_out": 0.0,
            },
        ),
        (
            InitConfig(embed=0.5),
            {"tie_embeddings": True, "positions": "shortformer", "attn_out": False, "d_head": 16},
            {
                "embed.W_E": 0.5,
                "pos_embed.W_pos": 1.0,
                "blocks.0.attn.W_Q": 64**-0.5,
                "blocks.0.attn.W_K": 64**-0.5,
                "blocks.0.attn.W_V": 64**-0.5,
            },
        ),
    ],
)
def test_the_initial_standard_deviations(init: InitConfig, fields: dict[str, Any], expected: dict[str, float]) -> None:
    measured = stds(changes(WIDE, init=init, **fields))
    assert list(measured) == list(expected)
    for name, std in expected.items():
        assert measured[name] == pytest.approx(std, rel=0.2 if ".b_" in name else 0.04), name


def test_a_uniform_init_stays_within_its_bound_and_gains_start_at_one() -> None:
    model = Transformer(changes(WIDE, norm="layer", init=InitConfig(attn="linear")))
    assert 0.99 / 8 < model.blocks[0].attn.W_Q.abs().max() <= 1 / 8
    for norm in (model.blocks[0].ln1, model.ln_final):
        assert isinstance(norm, Norm) and norm.w is not None and norm.b is not None
        assert torch.equal(norm.w, torch.ones(64)) and torch.equal(norm.b, torch.zeros(64))


def test_a_seed_means_its_weights() -> None:
    torch.manual_seed(1)
    one = Transformer(SMALL, seed=5).state_dict()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    same, other = Transformer(SMALL, seed=5).state_dict(), Transformer(SMALL, seed=6).state_dict()
    assert torch.equal(torch.get_rng_state(), state)  # nothing of the caller's randomness is used
    for name, weight in one.items():
        assert torch.equal(weight, same[name])
        assert torch.equal(weight, other[name]) == name.endswith((".w", "b_O")), name


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


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"positions": "rotary"},
        {"positions": "shortformer", "norm_position": "post"},
        {"residual": False, "norm": "none", "mlp_hidden": (), "unembed_hidden": (7,)},
    ],
)
def test_compiled_equals_eager(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # dynamo cannot trace the shape checks
    model = build(changes(**fields))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(TOKENS), model(TOKENS))
    with recording("hook_pattern") as seen:
        explicit = model(TOKENS)
    assert len(seen) == 2 and (explicit - compiled(TOKENS)).abs().max() < 1e-12
    torch.compiler.reset()


SUMS = {
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
        by_hand = torch.stack([cache["z", layer][:, :, head] @ block.attn.W_O[head] for head in range(4)])
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


def test_the_taps_whose_product_is_the_score() -> None:
    for positions in ("learned", "rotary"):
        model = build(changes(positions=positions))
        q, k = model.qk_taps(1)
        with recording(q, k, "hook_attn_scores") as seen:
            model(TOKENS)
        product = torch.einsum("bihd,bjhd->bhij", seen[q], seen[k]) / 2
        scores, causal = seen["blocks.1.attn.hook_attn_scores"], torch.ones(9, 9, dtype=torch.bool).tril()
        assert torch.allclose(scores[..., causal], product[..., causal], atol=1e-12)
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
