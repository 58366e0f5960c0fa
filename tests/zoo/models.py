"""Small transformers as tutorials, lectures and libraries write them; nothing in them knows of manyeyes."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

hf: Any = transformers


class SelfAttention(nn.Module):
    """Causal self-attention by hand, with a projection each for queries, keys, values and output."""

    causal = True

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.o_proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.size)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        if self.causal:
            future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        weights = self.dropout(F.softmax(scores, dim=-1))
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


class FlashAttention(nn.Module):
    """nanoGPT's: one map for q, k and v, and the fused kernel."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class LectureHead(nn.Module):
    """One head as in a well-known lecture, which gives each head a module of its own."""

    def __init__(self, width: int, size: int, context: int) -> None:
        super().__init__()
        self.key = nn.Linear(width, size, bias=False)
        self.query = nn.Linear(width, size, bias=False)
        self.value = nn.Linear(width, size, bias=False)
        self.tril: Tensor
        self.register_buffer("tril", torch.tril(torch.ones(context, context)))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        wei = self.query(x) @ self.key(x).transpose(-2, -1) * self.key.out_features**-0.5
        wei = wei.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ self.value(x)


class LectureAttention(nn.Module):
    """The heads of the lecture side by side."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = nn.ModuleList(LectureHead(width, width // heads, 64) for _ in range(heads))
        self.proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.proj(torch.cat([head(x) for head in self.heads], dim=-1)))


class Block(nn.Module):
    """Attention and MLP, with a LayerNorm before each."""

    def __init__(self, width: int, heads: int, dropout: float, attention: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = attention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class MiniGPT(nn.Module):
    """A decoder as in nanoGPT: called with ids and targets, it returns logits and their loss."""

    def __init__(
        self, vocab: int, width: int = 32, heads: int = 4, layers: int = 2, context: int = 64, dropout: float = 0.0,
        attention: Callable[..., nn.Module] = SelfAttention,
    ) -> None:  # fmt: skip
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, attention) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class TorchLM(nn.Module):
    """A language model of nn.TransformerEncoderLayer, as in PyTorch's tutorial: ids in, logits out."""

    def __init__(
        self, vocab: int, width: int = 32, heads: int = 4, layers: int = 2, context: int = 64, dropout: float = 0.0,
        causal: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.position = nn.Parameter(torch.randn(context, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.decoder = nn.Linear(width, vocab)
        self.causal = causal

    def forward(self, src: Tensor) -> Tensor:
        length = src.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self.causal else None
        return self.decoder(self.encoder(self.embed(src) + self.position[:length], mask, is_causal=self.causal))


class MultiheadBlock(nn.Module):
    """nn.MultiheadAttention and an MLP, norms after them, as in the first transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        x = self.norm_1(x + self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0])
        return self.norm_2(x + self.feed_forward(x))


class Classifier(nn.Module):
    """A bidirectional encoder whose mean over positions says the class of the whole sequence."""

    def __init__(self, vocab: int, classes: int, width: int = 32, heads: int = 4, context: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(MultiheadBlock(width, heads) for _ in range(2))
        self.out = nn.Linear(width, classes)

    def forward(self, ids: Tensor, padding: Tensor | None = None) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x, padding)
        return self.out(x.mean(1))


def gpt2(vocab: int, width: int = 32, heads: int = 4, layers: int = 2, context: int = 64, **more: Any) -> Any:
    """A GPT-2 of transformers with random weights, without dropout unless told."""
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    sizes = {"vocab_size": vocab, "n_embd": width, "n_head": heads, "n_layer": layers, "n_positions": context}
    return hf.GPT2LMHeadModel(hf.GPT2Config(**quiet | sizes | more))


def llama(vocab: int, width: int = 32, heads: int = 4, layers: int = 2, **more: Any) -> Any:
    """A Llama of transformers with random weights and grouped heads."""
    sizes = {
        "vocab_size": vocab, "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": heads // 2, "max_position_embeddings": 64,
        "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    return hf.LlamaForCausalLM(hf.LlamaConfig(**sizes | more))
