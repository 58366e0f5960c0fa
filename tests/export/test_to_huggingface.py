"""Exported models against ours: logits, patterns, tokens, files, for every option that can go and all that cannot."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.models import as_trained
from tracer.config import InitConfig, ModelConfig
from tracer.data.prompts import encode_prompt
from tracer.data.tokenizer import train_bpe, words
from tracer.export.to_huggingface import as_huggingface, huggingface_tokenizer, to_huggingface
from tracer.interventions.edits import recording
from tracer.model import Transformer
from tracer.model.generate import generate
from tracer.presets import PRESETS

WIDTHS: dict[str, Any] = {"n_layers": 2, "n_heads": 4, "d_model": 24, "n_ctx": 12, "d_vocab": 17}
TOKENS = torch.randint(0, 17, (3, 12), generator=torch.Generator().manual_seed(1))
FLOAT32_INSIDE = ("Llama", "Arcee", "Starcoder2")  # their RMSNorm or their rotation, whatever the dtype of the model


def changes(**fields: Any) -> ModelConfig:
    return ModelConfig(**WIDTHS | {"init": InitConfig(embed=1.0, pos=0.7, attn=0.25, unembed=0.5)} | fields)


def error(model: Transformer, theirs: Any) -> float:
    """Largest difference of logits; relative where they are above 1."""
    with torch.no_grad():
        ours, logits = model(TOKENS), theirs(TOKENS).logits
    assert logits.dtype == ours.dtype and ours.abs().max() > 0.1
    return float((ours - logits).abs().max() / ours.abs().max().clamp(min=1))


def shrunk(name: str) -> ModelConfig:
    c = PRESETS[name].config.model
    return replace(
        c, d_model=24, n_ctx=12, d_vocab=17, d_head=c.d_head and 24, mlp_hidden=(8,) * len(c.mlp_hidden),
        unembed_hidden=(8,) * len(c.unembed_hidden), init=InitConfig(embed=1.0, pos=0.7, attn=0.25, unembed=0.5),
    )  # fmt: skip


TWO_LAYERS = "mlp_hidden=(8, 8) (one hidden layer could go, or none)"
NO_RESIDUAL = "residual=False (True could go); unembed_hidden=(8, 8) (a single W_U could go)"
OF_PRESETS: dict[str, tuple[str, int] | str] = {
    "demo": ("GPT2", 48), "induction-natural": ("GPT2", 48), "one-layer": ("GPT2", 48), "induction": ("GPT2", 48),
    "many-eyes": ("GPT2", 24), "many-eyes-bare": ("GPT2", 24), "one-matmul": ("GPT2", 24), "post-norm": ("OPT", 24),
    "single-head-unscaled": NO_RESIDUAL, "single-head-scaled": NO_RESIDUAL, "single-head-residual": TWO_LAYERS,
    "single-head": TWO_LAYERS, "multi-head-full": TWO_LAYERS, "multi-head": TWO_LAYERS, "two-blocks": TWO_LAYERS,
    "four-blocks": TWO_LAYERS, "four-blocks-rms": TWO_LAYERS,
}  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_goes_or_says_why_not(name: str) -> None:
    expected, model = OF_PRESETS[name.removesuffix("-small")], as_trained(shrunk(name))
    if isinstance(expected, str):
        with pytest.raises(ValueError) as refused:
            as_huggingface(model)
        assert str(refused.value).endswith(f"In the way: {expected}")
    else:
        theirs = as_huggingface(model)
        assert (
            type(theirs).__name__.removesuffix("LMHeadModel").removesuffix("ForCausalLM"),
            width(theirs),
        ) == expected
        assert error(model, theirs) < 2e-5


def width(theirs: Any) -> int:
    return theirs.config.hidden_size


LN, ROTARY = {"norm": "layer", "mlp_hidden": (40,)}, {"positions": "rotary"}
GO: dict[str, tuple[ModelConfig, str, int]] = {
    "LayerNorm": (changes(**LN, activation="gelu", attn_out_bias=True), "GPT2", 24),
    "LayerNorm without gain": (changes(**LN, norm_gain=False), "GPT2", 24),
    "eps": (changes(**LN, norm_eps=0.1), "GPT2", 24),
    "tied": (changes(**LN, tie_embeddings=True), "GPT2", 24),
    "sinusoidal": (changes(**LN, positions="sinusoidal"), "GPT2", 24),
    "no positions": (changes(**LN, positions="none"), "GPT2", 24),
    "no W_O": (changes(**LN, attn_out=False), "GPT2", 24),
    "not scaled": (changes(**LN, attn_scale="none"), "GPT2", 24),
    "scaled by d_model": (changes(**LN, attn_scale="d_model"), "GPT2", 24),
    "narrow heads": (changes(**LN, d_head=3), "GPT2", 24),
    "wide heads": (changes(**LN, d_head=10), "GPT2", 48),
    "full-rank heads": (changes(**LN, d_head=24), "GPT2", 96),
    "five heads": (changes(**LN, n_heads=5, d_head=3), "GPT2", 50),
    "RMSNorm": (changes(), "GPT2", 48),
    "RMSNorm, eps, five heads": (changes(norm_eps=0.1, n_heads=5, d_head=3), "GPT2", 50),
    "RMSNorm, tied": (changes(tie_embeddings=True), "GPT2", 48),
    "no norm": (changes(norm="none", mlp_hidden=(40,)), "GPT2", 48),
    "no norm, post or final": (changes(norm="none", norm_position="post", final_norm=False), "GPT2", 48),
    "post-norm": (changes(**LN, norm_position="post", final_norm=False), "OPT", 24),
    "post-norm, RMSNorm, tied": (
        changes(norm_position="post", final_norm=False, mlp_hidden=(40,), tie_embeddings=True), "OPT", 48
    ),
    "no final norm": (changes(**LN, final_norm=False, norm_eps=0.1), "OPT", 24),
    "no final norm, RMSNorm": (changes(final_norm=False), "OPT", 48),
    "rotary": (changes(**ROTARY, attn_out_bias=True), "Llama", 24),
    "rotary, wide heads, tied": (changes(**ROTARY, d_head=10, tie_embeddings=True), "Llama", 24),
    "rotary, no norm": (changes(**ROTARY, norm="none"), "Llama", 24),
    "rotary, MLP": (changes(**ROTARY, mlp_hidden=(40,), activation="gelu", attn_scale="d_model"), "Arcee", 24),
    "rotary, MLP, no norm": (changes(**ROTARY, mlp_hidden=(40,), norm="none"), "Arcee", 24),
    "rotary, LayerNorm": (changes(**ROTARY, **LN, d_head=10), "Starcoder2", 24),
    "rotary, LayerNorm, five heads": (changes(**ROTARY, norm="layer", n_heads=5, d_head=4), "Starcoder2", 24),
}  # fmt: skip


@pytest.mark.parametrize("name", GO)
def test_logits_and_patterns_agree(name: str) -> None:
    config, family, expected_width = GO[name]
    single, model = as_trained(config), as_trained(config, torch.float64)
    before = [weight.clone() for weight in model.parameters()]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    theirs = as_huggingface(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(weight, old) for weight, old in zip(model.parameters(), before, strict=True))
    assert type(theirs).__name__.startswith(family) and width(theirs) == expected_width and not theirs.training
    assert theirs.config.tie_word_embeddings == (config.tie_embeddings and width(theirs) == 24 and family != "OPT")
    close = 2e-5 if family in FLOAT32_INSIDE else 1e-10
    assert error(model, theirs) < close
    assert error(single, as_huggingface(single)) < 2e-5
    theirs.set_attn_implementation("eager")
    with recording("hook_pattern") as seen:
        model(TOKENS)
    patterns = theirs(TOKENS, output_attentions=True).attentions
    for layer in range(config.n_layers):
        assert (seen[f"blocks.{layer}.attn.hook_pattern"] - patterns[layer]).abs().max() < max(close, 2e-7)


def test_the_comparison_can_tell_a_difference() -> None:
    model = as_trained(changes())
    theirs = as_huggingface(model)
    model.blocks[0].attn.W_Q[0, 0] += 0.01
    assert error(model, theirs) > 1e-4


POST, PRE_OR = {"norm_position": "post"}, "(pre could go, or"
STAY: dict[str, tuple[ModelConfig, list[str]]] = {
    "shortformer": (changes(positions="shortformer"), ["positions='shortformer' (all others could go)"]),
    "sink": (changes(sink="learned"), ["sink='learned' ('none' could go)"]),
    "soft cap": (changes(attn_softcap=30), ["attn_softcap=30 (None could go)"]),
    "sigmoids": (changes(attention="sigmoid"), ["attention='sigmoid' ('softmax' could go)"]),
    "gate": (changes(attn_gate=True), ["attn_gate=True (False could go)"]),
    "q and k normed": (changes(qk_norm=True), ["qk_norm=True (False could go)"]),
    "smeared keys": (changes(smear="keys"), ["smear='keys' ('none' could go)"]),
    "everything": (
        changes(residual=False, mlp_hidden=(8, 9), unembed_hidden=(7,), positions="shortformer"),
        ["residual=False", "mlp_hidden=(8, 9)", "unembed_hidden=(7,)", "positions='shortformer'"],
    ),
    "post-norm, attention only": (
        changes(**POST, final_norm=False), [f"norm_position='post' with mlp_hidden=() {PRE_OR} one hidden layer)"]
    ),
    "post-norm, final norm": (
        changes(**POST, mlp_hidden=(9,)), [f"norm_position='post' with final_norm=True {PRE_OR} no final norm)"]
    ),
    "post-norm, rotary": (
        changes(**POST, **ROTARY, mlp_hidden=(9,), final_norm=False), ["positions='rotary' with norm_position='post'"]
    ),
    "rotary, no final norm": (changes(**ROTARY, final_norm=False), ["positions='rotary' with final_norm=False"]),
    "rotary, five heads": (
        changes(**ROTARY, n_heads=5, d_head=4), ["n_heads=5 with positions='rotary' (a divisor of d_model=24 could go)"]
    ),
    "wide heads, LayerNorm, no final norm": (
        changes(norm="layer", d_head=10, final_norm=False), ["n_heads=4 of d_head=10 with final_norm=False"]
    ),
    "no eps, no final norm": (changes(norm_eps=0.0, final_norm=False), ["norm_eps=0.0 with final_norm=False"]),
}  # fmt: skip


@pytest.mark.parametrize("name", STAY)
def test_what_stands_in_the_way_is_named(name: str, tmp_path) -> None:
    config, named = STAY[name]
    with pytest.raises(ValueError) as refused:
        to_huggingface(Transformer(config), tmp_path / "new")
    options = str(refused.value).partition("In the way: ")[2].split("; ")
    assert len(options) == len(named) and all(map(str.startswith, options, named))
    assert not (tmp_path / "new").exists()


INSTEAD: dict[str, dict[str, Any]] = {
    "residual": {"residual": True}, "mlp_hidden": {"mlp_hidden": (9,)}, "unembed_hidden": {"unembed_hidden": ()},
    "positions": {"positions": "learned"}, "norm_position": {"norm_position": "pre"}, "norm_eps": {"norm_eps": 1e-6},
    "n_heads": {"n_heads": 4, "d_head": None},
}  # fmt: skip


@settings(max_examples=60)
@given(
    n_heads=st.integers(1, 5),
    d_head=st.sampled_from([2, 4, 6, 10, 24]),
    norm=st.sampled_from(["none", "rms", "layer"]),
    norm_position=st.sampled_from(["pre", "post"]),
    norm_gain=st.booleans(),
    norm_eps=st.sampled_from([1e-6, 1e-5, 0.1]),
    final_norm=st.booleans(),
    attn_scale=st.sampled_from(["d_head", "d_model", "none"]),
    attn_out_bias=st.booleans(),
    residual=st.sampled_from([True, True, True, False]),
    positions=st.sampled_from(["learned", "sinusoidal", "rotary", "shortformer", "none"]),
    mlp_hidden=st.sampled_from([(), (9,), (30,), (5, 7)]),
    activation=st.sampled_from(["relu", "gelu"]),
    tie_embeddings=st.booleans(),
)
def test_any_model_goes_once_what_is_named_is_changed(**fields: Any) -> None:
    config = changes(**fields)
    try:
        theirs = as_huggingface(model := as_trained(config, torch.float64))
    except ValueError as refused:
        named = re.findall(r"(?:: |; )(\w+)=(\S+)", str(refused))
        assert named and all(value.startswith(repr(getattr(config, name))[:3]) for name, value in named)
        config = replace(config, **{k: v for name, _ in named for k, v in INSTEAD[name].items()})
        theirs = as_huggingface(model := as_trained(config, torch.float64))
    assert error(model, theirs) < (2e-5 if type(theirs).__name__.startswith(FLOAT32_INSIDE) else 1e-9)


BPE = train_bpe(["def f(self): return héllo * 2 # ein Käse"] * 5, 300)
ON_DISK = ("LayerNorm", "tied", "RMSNorm", "no norm", "no final norm, RMSNorm", "post-norm, RMSNorm, tied", "rotary")
ON_DISK = (*ON_DISK, "rotary, wide heads, tied", "rotary, MLP", "rotary, LayerNorm")


@pytest.mark.parametrize("name", ON_DISK)
def test_what_is_opened_from_disk_is_the_same(name: str, tmp_path) -> None:
    config = replace(GO[name][0], d_vocab=BPE.get_vocab_size(), n_ctx=24)
    model = as_trained(config)
    model.tokenizer = BPE
    to_huggingface(model, tmp_path / "new")
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names >= {"config.json", "model.safetensors", "generation_config.json", "tokenizer.json"}
    theirs: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "new")
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert error(model, theirs) < 2e-5
    assert len(tokenizer) == theirs.config.vocab_size == config.d_vocab
    encoded = tokenizer("def f(", return_tensors="pt")
    assert torch.equal(encoded["input_ids"], model.to_tokens("def f("))
    new = theirs.generate(**encoded, max_new_tokens=12, do_sample=False)[:, encoded["input_ids"].shape[1] :]
    ours = generate(model, encoded["input_ids"], 12, [0.0])
    assert new.shape[1] == 12 or new[0, -1] == 0  # the start token ends a document
    assert torch.equal(new, ours[:, : new.shape[1]])


@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [(BPE, "def f(é):\n\treturn  <|bos|> 雪"), (BPE, " x"), (words(9), "1 2 8"), (words(9), "8 <|bos|> 3")],
)
def test_their_tokenizer_gives_our_prompts(tokenizer: Any, text: str, tmp_path) -> None:
    huggingface_tokenizer(tokenizer, 64).save_pretrained(tmp_path)
    theirs: Any = AutoTokenizer.from_pretrained(tmp_path)
    ours = encode_prompt(tokenizer, text, 64).tokens
    assert theirs(text)["input_ids"] == ours
    assert theirs.decode(ours, skip_special_tokens=True) == tokenizer.decode(ours)
    assert theirs.bos_token_id == theirs.eos_token_id == 0 and theirs.model_max_length == 64
    assert tokenizer.encode(text).ids == ours[1:]  # ours puts no start token, still


@pytest.mark.parametrize(("bos", "ids"), [(None, [2, 0, 8]), (3, [3, 2, 0, 8])])
def test_a_start_token_is_another_or_there_is_none(bos: int | None, ids: list[int], tmp_path) -> None:
    huggingface_tokenizer(words(9, bos), 64).save_pretrained(tmp_path)
    theirs: Any = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("2 0 8")["input_ids"] == ids and theirs.bos_token_id == bos
    model = as_trained(changes())
    model.bos = bos
    assert as_huggingface(model).generation_config.eos_token_id == bos


def test_nothing_is_overwritten(tmp_path) -> None:
    model = as_trained(changes())
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(ValueError, match="exists and is not an empty directory"):
            to_huggingface(model, taken)
    assert (tmp_path / "file").read_text() == "mine" and len(list(tmp_path.iterdir())) == 2
    to_huggingface(model, tmp_path / "empty")
    assert not (tmp_path / "empty" / "tokenizer.json").exists()  # the model has none
    with pytest.raises(ValueError, match="step=3 is for runs"):
        to_huggingface(model, tmp_path / "new", step=3)
