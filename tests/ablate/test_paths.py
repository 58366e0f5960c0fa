"""Path patching against transformer-lens's, against algebra by hand, and against the ablation that it adds up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.patching import get_act_patch_direct_path
from transformers import PreTrainedTokenizerFast

from tracer.ablate import Part, Path, derangement, effect, planner
from tracer.config import InitConfig, ModelConfig
from tracer.export.to_huggingface import as_huggingface
from tracer.interventions.edits import applied, recording
from tracer.model import Transformer

WIDTHS: dict[str, Any] = {"n_layers": 3, "n_heads": 2, "d_model": 16, "n_ctx": 8, "d_vocab": 11}
TOKENS = torch.randint(0, 11, (3, 7), generator=torch.Generator().manual_seed(0))
ALL = [(sender, (layer, head), into) for sender in ((0, 1),) for layer in (1, 2) for head in (0, 1) for into in "qkv"]


def build(**fields: Any) -> Transformer:
    model = Transformer(ModelConfig(**WIDTHS | {"init": InitConfig(attn=0.5)} | fields), seed=3).double().eval()
    generator = torch.Generator().manual_seed(4)
    for name, weight in model.requires_grad_(False).named_parameters():
        if weight.ndim == 1:
            weight.normal_(1 if name.endswith(".w") else 0, 0.3, generator=generator)
    return model


def run(model: Transformer, paths: Sequence[Part], mode: str = "zero", **options: Any) -> Tensor:
    (edits,) = planner(model, TOKENS, mode, draws=1, **options)(paths)
    with applied(edits):
        return model(TOKENS)


def bridge(model: Transformer) -> TransformerBridge:
    """transformer-lens around the same model as Hugging Face has it: there it can reach a head's input alone."""
    one_letter = Tokenizer(WordLevel({"a": 0}, unk_token="a"))  # booting asks for a tokenizer, and tries it on "a"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=one_letter, bos_token="a", eos_token="a", add_bos_token=True, name_or_path="one letter"
    )
    theirs = as_huggingface(model)
    return TransformerBridge.boot_transformers(
        "gpt2", hf_model=theirs, tokenizer=tokenizer, dtype=torch.float64, device="cpu"
    ).eval()


@pytest.mark.parametrize("fields", [{}, {"mlp_hidden": (20,), "activation": "gelu"}], ids=["attention only", "MLP"])
@pytest.mark.parametrize("into", ["q", "k", "v"])
def test_transformer_lens_agrees(fields: dict, into: Any) -> None:
    """Clean there is our other sequences, corrupted our own run: what arrives on the path is resampled."""
    model = build(norm="layer", **fields)
    theirs, other, seen = bridge(model), TOKENS[derangement(3, seed=5)], []
    with torch.no_grad():
        _, from_other = theirs.run_with_cache(other)
        logits, own = theirs.run_with_cache(TOKENS)
        assert (logits - model(TOKENS)).abs().max() < 1e-12
        z = {"blocks.0.attn.hook_z": [cache["blocks.0.attn.hook_z"] for cache in (from_other, own)]}
        from_other, own = ({name: part[i].reshape(3, 7, 2, 8) for name, part in z.items()} for i in (0, 1))

        def metric(patched: Tensor) -> Tensor:
            seen.append(patched)
            return patched.mean()

        get_act_patch_direct_path(theirs, TOKENS, from_other, own, metric, 0, 1, into, verbose=False)  # pyrefly: ignore[bad-argument-type]
    receivers = [(layer, head) for layer in (1, 2) for head in (0, 1)]
    for receiver, patched in zip(receivers, seen, strict=True):
        ours = run(model, [Path((0, 1), receiver, into)], "resample", seed=5)
        assert (ours - patched).abs().max() < 1e-12
        assert (ours - logits).abs().max() > 1e-3


def test_a_path_into_values_by_hand() -> None:
    model = build(norm="none", n_layers=2)
    with recording("hook_z", "hook_pattern") as seen:
        clean = model(TOKENS)
    sender, receiver = model.blocks[0].attn, model.blocks[1].attn
    assert sender.W_O is not None and receiver.W_O is not None
    written = seen["blocks.0.attn.hook_z"][:, :, 1] @ sender.W_O[1]
    read = seen["blocks.1.attn.hook_pattern"][:, 0] @ (written @ receiver.W_V[0])
    expected = clean - read @ receiver.W_O[0] @ model.W_U
    assert (run(model, [Path((0, 1), (1, 0), "v")]) - expected).abs().max() < 1e-12


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"attn_out": False},
        {"positions": "rotary"},
        {"positions": "shortformer"},
        {"norm": "rms"},
        {"qk_norm": True},
        {"sink": "learned"},
        {"attn_softcap": 0.5},
        {"attention": "sigmoid"},
        {"smear": "keys", "positions": "rotary"},
    ],
)
@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_all_paths_and_the_direct_one_are_the_head(fields: dict, mode: str) -> None:
    """In two layers a head reaches the logits through the inputs of later heads and straight through the stream."""
    model = build(**{"norm": "none", "n_layers": 2, "final_norm": False, **fields})
    paths = [Path((0, 1), (1, head), into) for head in (0, 1) for into in ("q", "k", "v")]
    head_off = run(model, [(0, 1)], mode)
    with recording("hook_z") as clean:
        model(TOKENS)
    with applied(planner(model, TOKENS, mode, draws=1)([(0, 1)])[0]), recording("hook_z") as off:
        model(TOKENS)
    change = (off["blocks.0.attn.hook_z"] - clean["blocks.0.attn.hook_z"])[:, :, 1]
    weight = model.blocks[0].attn.W_O
    direct = change @ (torch.eye(16).double().view(2, 8, 16)[1] if weight is None else weight[1])
    assert (run(model, paths, mode) + direct @ model.W_U - head_off).abs().max() < 1e-11
    assert (run(model, paths, mode) - head_off).abs().max() > 1e-4


def test_later_receivers_read_the_stream_that_earlier_ones_changed() -> None:
    """With every path cut, layer by layer, layer 2 sees what it sees with the head off but for what the head wrote."""
    model = build(norm="none")
    paths = [Path(sender, receiver, into) for sender, receiver, into in ALL]  # pyrefly: ignore[bad-argument-type]
    with applied(planner(model, TOKENS)(paths)[0]), recording("hook_pattern") as cut:
        model(TOKENS)
    with applied(planner(model, TOKENS)([(0, 1)])[0]), recording("hook_pattern") as off:
        model(TOKENS)
    for layer in (1, 2):
        name = f"blocks.{layer}.attn.hook_pattern"
        assert (cut[name] - off[name]).abs().max() < 1e-11


def test_two_senders_add_up() -> None:
    model = build(norm="none")
    clean = model(TOKENS)
    one, two = Path((0, 0), (2, 1), "v"), Path((1, 1), (2, 1), "v")
    assert (run(model, [one, two]) - clean - (run(model, [one]) + run(model, [two]) - 2 * clean)).abs().max() < 1e-12


def test_positions_are_those_of_the_sender() -> None:
    model = build()
    clean, path = model(TOKENS), Path((0, 1), (1, 0), "v")
    late = run(model, [path], positions=[4])
    assert (late - clean)[:, :4].abs().max() < 1e-12 and (late - clean)[:, 4:].abs().max() > 1e-5
    assert (run(model, [path], positions=range(7)) - run(model, [path])).abs().max() < 1e-12


def test_a_sender_that_is_off_already_sends_nothing() -> None:
    model = build()
    both = run(model, [(0, 1), Path((0, 1), (1, 0), "k")])
    assert (both - run(model, [(0, 1)])).abs().max() < 1e-12


def test_frozen_patterns_leave_the_path_into_values() -> None:
    model = build()
    path = Path((0, 1), (2, 0), "v")
    assert (run(model, [path], frozen=True) - run(model, [path])).abs().max() < 1e-12  # its own pattern is no later one
    with pytest.raises(ValueError, match="with frozen patterns queries and keys change nothing"):
        run(model, [Path((0, 1), (2, 0), "k")], frozen=True)


REFUSED = [
    ({}, Path((1, 0), (1, 1), "q"), "the sender must be in an earlier layer"),
    ({}, Path((2, 0), (1, 1), "q"), "the sender must be in an earlier layer"),
    ({}, Path((0, 2), (1, 1), "q"), "L0H2 does not exist"),
    ({}, Path((0, 1), (3, 1), "q"), "L3H1 does not exist"),
    ({"residual": False}, Path((0, 1), (1, 1), "q"), "no direct path to cut: residual=False"),
    ({"norm_position": "post"}, Path((0, 1), (1, 1), "v"), "norm_position=post"),
]


@pytest.mark.parametrize(("fields", "path", "message"), REFUSED)
def test_refused(fields: dict, path: Path, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        effect(build(**fields), TOKENS, [path])
