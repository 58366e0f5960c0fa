"""Our models as transformer-lens bridges: the same logits, patterns, z and tokens, or what stands in the way."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

import tracer
from tests.models import as_trained
from tracer.config import InitConfig, ModelConfig
from tracer.data.tokenizer import train_bpe, words
from tracer.export.bridge import save_bridge, to_bridge
from tracer.interventions.edits import recording
from tracer.model import Transformer
from tracer.presets import PRESETS

WIDTHS: dict[str, Any] = {"n_layers": 2, "n_heads": 4, "d_model": 24, "n_ctx": 12, "d_vocab": 17}
INIT = InitConfig(embed=1.0, pos=0.7, attn=0.25, unembed=0.5)
TOKENS = torch.randint(0, 17, (3, 12), generator=torch.Generator().manual_seed(1))


def changes(**fields: Any) -> ModelConfig:
    return ModelConfig(**WIDTHS | {"init": INIT} | fields)


def close(config: ModelConfig) -> float:
    """Of a float64 model: there, norms but a full LayerNorm, and the table of rotations, are float32."""
    exact = config.norm == "none" or (config.norm == "layer" and config.norm_gain)
    return 1e-10 if exact and config.positions != "rotary" else 1e-5


GO = {
    "LayerNorm": changes(norm="layer", mlp_hidden=(40,), activation="gelu", attn_out_bias=True, dropout=0.3),
    "LayerNorm without gain": changes(norm="layer", norm_gain=False, mlp_hidden=(40,)),
    "RMSNorm": changes(),
    "RMSNorm without gain": changes(norm_gain=False, norm_eps=0.1),
    "no norm, post or final": changes(norm="none", norm_position="post", final_norm=False),
    "tied": changes(norm="layer", tie_embeddings=True),
    "not scaled, sinusoidal": changes(norm="layer", attn_scale="none", positions="sinusoidal"),
    "scaled by d_model, no positions": changes(norm="layer", attn_scale="d_model", positions="none"),
    "no W_O": changes(norm="layer", attn_out=False),
    "five heads of 24": changes(norm="layer", n_heads=5, d_head=24),
    "rotary": changes(norm="none", positions="rotary", mlp_hidden=(40,)),
    "rotary, narrow heads": changes(positions="rotary", d_head=2, attn_scale="none"),
}


@pytest.mark.parametrize("name", ["LayerNorm", "no W_O", "five heads of 24"])
def test_weights_and_their_products_are_those_of_transformer_lens(name: str) -> None:
    model = as_trained(GO[name], torch.float64)
    bridge: Any = to_bridge(model)
    for weight in ("W_Q", "W_K", "W_V", "W_O"):
        torch.testing.assert_close(getattr(model, weight), getattr(bridge, weight), atol=1e-14, rtol=0)
    for product in ("QK", "OV"):
        ours, theirs = getattr(model, product), getattr(bridge, product)
        assert ours.AB.shape == (2, GO[name].n_heads, 24, 24)
        torch.testing.assert_close(ours.AB, theirs.AB, atol=1e-12, rtol=0)
    shapes = [list(getattr(model, weight).shape) for weight in ("W_Q", "W_O")]
    width = GO[name].head_width
    assert shapes == [[2, GO[name].n_heads, 24, width], [2, GO[name].n_heads, width, 24]]


@pytest.mark.parametrize("name", GO)
def test_logits_patterns_and_z_agree(name: str) -> None:
    config = GO[name]
    single, model = as_trained(config), as_trained(config, torch.float64)
    before = [weight.clone() for weight in model.parameters()]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    bridge = to_bridge(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(weight, old) for weight, old in zip(model.parameters(), before, strict=True))
    with torch.no_grad(), recording("hook_pattern", "hook_z") as seen:
        ours = model(TOKENS)
    with torch.no_grad():
        theirs, cache = bridge.run_with_cache(TOKENS)
        rounded = to_bridge(single)(TOKENS)
        assert rounded.dtype == torch.float32 and (rounded - single(TOKENS)).abs().max() < 2e-5
    assert theirs.dtype == torch.float64 and ours.abs().max() > 1
    assert (theirs - ours).abs().max() < close(config)
    for tap, value in seen.items():
        assert (cache[tap].reshape(value.shape) - value).abs().max() < close(config)


def test_the_comparison_can_tell_a_difference() -> None:
    model = as_trained(changes())
    bridge = to_bridge(model)
    model.blocks[0].attn.W_Q[0, 0] += 0.01
    with torch.no_grad():
        assert (bridge(TOKENS) - model(TOKENS)).abs().max() > 1e-4


NO_RESIDUAL, TWO_LAYERS, POST = "residual=False", "mlp_hidden=(8, 8)", "norm_position='post'"
NO_LAST = "final_norm=False"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (changes(final_norm=False), [NO_LAST]),
        (changes(norm="layer", norm_position="post"), [POST]),
        (changes(positions="shortformer"), ["positions='shortformer'"]),
        (
            changes(residual=False, mlp_hidden=(8, 8), unembed_hidden=(7,), norm_position="post", final_norm=False),
            [NO_RESIDUAL, TWO_LAYERS, "unembed_hidden=(7,)", POST, NO_LAST],
        ),
    ],
)
def test_what_stands_in_the_way_is_named(config: ModelConfig, named: list[str]) -> None:
    with pytest.raises(ValueError) as refused:
        to_bridge(Transformer(config))
    options = str(refused.value).partition("In the way: ")[2].split("; ")
    assert len(options) == len(named) and all(map(str.startswith, options, named))


OF_PRESETS: dict[str, list[str]] = {
    **dict.fromkeys(
        ["demo", "induction-natural", "one-layer", "induction", "many-eyes", "many-eyes-bare", "one-matmul"], []
    ),
    **dict.fromkeys(["single-head-unscaled", "single-head-scaled"], [NO_RESIDUAL, "unembed_hidden=(8, 8)"]),
    **dict.fromkeys(["single-head-residual", "single-head", "multi-head-full", "multi-head"], [TWO_LAYERS]),
    **dict.fromkeys(["two-blocks", "four-blocks"], [TWO_LAYERS]),
    "four-blocks-rms": [TWO_LAYERS, NO_LAST],
    "post-norm": [POST, NO_LAST],
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_goes_or_says_why_not(name: str) -> None:
    c = PRESETS[name].config.model
    small = replace(
        c, d_model=24, n_ctx=12, d_vocab=17, d_head=c.d_head and 24, mlp_hidden=(8,) * len(c.mlp_hidden),
        unembed_hidden=(8,) * len(c.unembed_hidden), init=INIT,
    )  # fmt: skip
    model = as_trained(small)
    if named := OF_PRESETS[name.removesuffix("-small")]:
        with pytest.raises(ValueError) as refused:
            to_bridge(model)
        assert all(option in str(refused.value) for option in named)
        assert str(refused.value).count("; ") == len(named) - 1
    else:
        with torch.no_grad():
            assert (to_bridge(model)(TOKENS) - model(TOKENS)).abs().max() < 2e-5


@settings(max_examples=40)
@given(
    n_heads=st.integers(1, 5),
    d_head=st.sampled_from([2, 4, 6, 10, 24]),
    norm=st.sampled_from(["none", "rms", "layer"]),
    norm_gain=st.booleans(),
    norm_eps=st.sampled_from([1e-6, 0.1]),
    attn_scale=st.sampled_from(["d_head", "d_model", "none"]),
    attn_out_bias=st.booleans(),
    positions=st.sampled_from(["learned", "sinusoidal", "rotary", "none"]),
    mlp_hidden=st.sampled_from([(), (9,), (30,)]),
    activation=st.sampled_from(["relu", "gelu"]),
    tie_embeddings=st.booleans(),
)
def test_any_combination_of_what_can_go_goes(**fields: Any) -> None:
    model = as_trained(config := changes(**fields), torch.float64)
    with torch.no_grad():
        ours = model(TOKENS)
        error = (to_bridge(model)(TOKENS) - ours).abs().max() / ours.abs().max().clamp(min=1)
    assert error < close(config)


@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [(train_bpe(["def f(self): return 2"] * 5, 280), "def f("), (words(17), "3 16 3")],
)
def test_it_takes_our_tokenizer_along(tokenizer: Tokenizer, text: str) -> None:
    model = as_trained(changes(d_vocab=tokenizer.get_vocab_size()))
    model.tokenizer = tokenizer
    bridge = to_bridge(model)
    assert torch.equal(bridge.to_tokens(text), model.to_tokens(text))
    assert (bridge(text) - model(model.to_tokens(text))).abs().max() < 2e-5
    model.tokenizer = None
    assert to_bridge(model).tokenizer is None
    assert torch.equal(to_bridge(model, tokenizer).to_tokens(text), bridge.to_tokens(text))


def test_without_a_start_token_none_is_put_in_front() -> None:
    bridge = to_bridge(as_trained(changes(d_vocab=17)), words(17, bos=None))
    assert bridge.to_tokens("3 16 0").tolist() == [[3, 16, 0]]


def test_an_unknown_word_is_an_error() -> None:
    with pytest.raises(Exception, match="WordLevel error"):
        to_bridge(as_trained(changes()), words(17)).to_tokens("a")


@pytest.mark.parametrize("name", ["RMSNorm", "rotary"])
def test_a_saved_bridge_is_opened_by_the_lines_beside_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = as_trained(GO[name])
    tracer.to_bridge(model)
    save_bridge(model, tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    (lines,) = re.findall(r"^```python\n(.*?)^```", Path("README.md").read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(lines, "README.md", "exec"), names)
    with torch.no_grad():
        assert (names["bridge"](TOKENS) - model(TOKENS)).abs().max() < 2e-5
    with pytest.raises(ValueError, match="is not an empty directory"):
        save_bridge(model, tmp_path / "out")
