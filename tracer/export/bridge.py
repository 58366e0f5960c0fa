"""Our models as transformer-lens's native TransformerBridge, for its tools: the same logits, patterns and z."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from einops import rearrange
from torch import Tensor

from tracer.config import ModelConfig
from tracer.data.tokenizer import is_words
from tracer.export.folding import identity_W_O, is_post_norm, lacks_final_norm
from tracer.export.to_huggingface import clamped, huggingface_tokenizer, new_directory, obstacles, refuse
from tracer.model import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedTokenizerFast


def to_bridge(model: Transformer, tokenizer: Tokenizer | None = None) -> TransformerBridge:
    """A bridge that gives the same logits, in eval mode; ours is untouched. tokenizer: None takes the model's own.

    Its scores are always divided by sqrt(d_head), so another scale of ours is in its W_Q; rotary pairs are neighbours
    there; a missing W_O is the identity, and missing positions and biases are zeros. ValueError for what has no like.
    """
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge.sources import boot_native
    from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

    c, dtype = model.config, model.embed.W_E.dtype
    refuse("transformer-lens", [*clamped(model), *_bridge_obstacles(c)])
    cfg = TransformerBridgeConfig(**_sizes(model), dtype=dtype)
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    theirs = None if tokenizer is None else huggingface_tokenizer(tokenizer, c.n_ctx)
    cfg.default_prepend_bos = theirs is None or theirs.bos_token is not None  # else a token that the model has not
    with torch.random.fork_rng(devices=[]), _any_word(theirs):
        bridge = boot_native(cfg, tokenizer=theirs, dtype=dtype, model_name="manyeyes")
    weights = {name: weight.to(dtype) for name, weight in _weights(model).items()}
    bridge.load_state_dict(convert_tl_checkpoint(weights, cfg) | {"unembed.bias": torch.zeros(model.d_vocab)})
    return bridge.eval()


def save_bridge(model: Transformer, directory: str | Path) -> None:
    """Write a bridge as safetensors, the fields of its config as JSON, the tokenizer, and in README.md the lines of
    Python that open it with transformer-lens alone. ValueError where the directory holds something."""
    from safetensors.torch import save_file

    directory, bridge = new_directory(directory), to_bridge(model)
    directory.mkdir(parents=True, exist_ok=True)
    fields = {**_sizes(model), "dtype": str(model.embed.W_E.dtype).removeprefix("torch.")}
    (directory / "config.json").write_text(json.dumps(fields, indent=1), encoding="utf-8")
    save_file({name: x.contiguous() for name, x in bridge.state_dict().items()}, directory / "model.safetensors")  # pyrefly: ignore[missing-attribute]
    if model.tokenizer is not None:
        huggingface_tokenizer(model.tokenizer, model.config.n_ctx).save_pretrained(directory)
    (directory / "README.md").write_text(OPENING, encoding="utf-8")


OPENING = """# A model of manyeyes, for transformer-lens

```python
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge.sources import boot_native

fields = json.loads(Path("config.json").read_text())
fields["dtype"] = getattr(torch, fields["dtype"])
bridge = boot_native(TransformerBridgeConfig(**fields), dtype=fields["dtype"])
bridge.load_state_dict(load_file("model.safetensors"))
bridge.eval()
```

Where tokenizer_config.json lies here, `transformers.AutoTokenizer.from_pretrained(".")` is its tokenizer.
"""
"""What stands beside an exported bridge."""


def _sizes(model: Transformer) -> dict[str, Any]:
    """Fields of the bridge's config, as JSON has them."""
    c = model.config
    return {
        "n_layers": c.n_layers, "n_heads": c.n_heads, "d_model": c.d_model, "d_head": c.head_width, "n_ctx": c.n_ctx,
        "d_vocab": model.d_vocab, "d_mlp": c.mlp_hidden[0] if c.mlp_hidden else None, "attn_only": c.attn_only,
        "act_fn": c.activation, "normalization_type": model.cfg.normalization_type, "eps": c.norm_eps,
        "positional_embedding_type": "rotary" if c.positions == "rotary" else "standard", "init_weights": False,
    }  # fmt: skip


@contextmanager
def _any_word(tokenizer: PreTrainedTokenizerFast | None) -> Iterator[None]:
    """Booting tries the tokenizer on the letter a, which may be none of its words; later that is an error again."""
    if tokenizer is None or not is_words(tokenizer.backend_tokenizer):
        yield
        return
    model: Any = tokenizer.backend_tokenizer.model
    strict = model.unk_token
    if model.token_to_id(strict) is None:
        model.unk_token = model.id_to_token(0)
    try:
        yield
    finally:
        model.unk_token = strict


def _bridge_obstacles(c: ModelConfig) -> list[str]:
    found = obstacles(c)
    if is_post_norm(c):
        found.append("norm_position='post' (pre could go)")
    if lacks_final_norm(c):
        found.append("final_norm=False (a final norm could go, or norm='none')")
    return found


def _weights(model: Transformer) -> dict[str, Tensor]:
    """A state dict by transformer-lens's names, in float64."""
    c = model.config
    weights = {name: weight.detach().cpu().double() for name, weight in model.named_parameters()}
    if c.positions == "sinusoidal":
        weights["pos_embed.W_pos"] = model.sinusoid.cpu().double()
    elif c.positions == "none":
        weights["pos_embed.W_pos"] = torch.zeros(c.n_ctx, c.d_model)
    weights["unembed.W_U"] = model.W_U.detach().cpu().double()
    for i in range(c.n_layers):
        attn = f"blocks.{i}.attn."
        weights[f"{attn}W_Q"] = weights[f"{attn}W_Q"] * c.scale * c.head_width**0.5
        if c.positions == "rotary":
            for name in (f"{attn}W_Q", f"{attn}W_K"):
                weights[name] = rearrange(weights[name], "head d (two half) -> head d (half two)", two=2)
        for letter in "QKV":
            weights[f"{attn}b_{letter}"] = torch.zeros(c.n_heads, c.head_width)
        weights.setdefault(f"{attn}b_O", torch.zeros(c.d_model))
        if not c.attn_out:
            weights[f"{attn}W_O"] = identity_W_O(c)
    return weights
