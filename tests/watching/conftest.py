"""Small models as others write them: Hugging Face families with random weights, and a GPT in nanoGPT's words."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from torch._dynamo import eval_frame

from tracer.torch_internals import compiles
from tracer.watching import calls

hf: Any = transformers
TEXT: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "gpt2": lambda: (hf.GPT2LMHeadModel, hf.GPT2Config(
        vocab_size=50, n_embd=24, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0)),
    "llama": lambda: (hf.LlamaForCausalLM, hf.LlamaConfig(**TEXT | {"hidden_size": 48, "num_attention_heads": 6},
                                                         num_key_value_heads=2)),
    "neox": lambda: (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**TEXT)),
    "mistral": lambda: (hf.MistralForCausalLM, hf.MistralConfig(**TEXT, num_key_value_heads=2, sliding_window=4)),
    "qwen2": lambda: (hf.Qwen2ForCausalLM, hf.Qwen2Config(**TEXT, num_key_value_heads=2)),
    "gemma2": lambda: (hf.Gemma2ForCausalLM, hf.Gemma2Config(
        **TEXT, num_key_value_heads=2, head_dim=6, sliding_window=4, attn_logit_softcapping=0.5,
        query_pre_attn_scalar=6)),
    "bloom": lambda: (hf.BloomForCausalLM, hf.BloomConfig(vocab_size=50, hidden_size=24, n_layer=2, n_head=4)),
    "falcon": lambda: (hf.FalconForCausalLM, hf.FalconConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, alibi=True, multi_query=False,
        parallel_attn=False, bos_token_id=0, eos_token_id=0)),
    "bert": lambda: (hf.BertModel, hf.BertConfig(**TEXT)),
    "t5": lambda: (hf.T5ForConditionalGeneration, hf.T5Config(
        vocab_size=50, d_model=24, d_kv=6, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0)),
    "bart": lambda: (hf.BartForConditionalGeneration, hf.BartConfig(
        vocab_size=50, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64, pad_token_id=1,
        bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None)),
    "vit": lambda: (hf.ViTModel, hf.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, image_size=16, patch_size=4)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def nobody_listens() -> Iterator[None]:
    """A recorder that a test leaves open would be seen by the tests after it; a program that has compiled anything is
    not looked into; and what keeps torch.compile from its work ends with its pass."""
    before = list(calls._LISTENING)
    if any(backend is not None for backend in compiles().values()):
        torch._dynamo.reset()
    yield
    left, calls._LISTENING[:] = [one for one in calls._LISTENING if one not in before], before
    assert not left and eval_frame._stance.stance == "default"


def family(name: str, kernel: str = "sdpa", **changes: Any) -> Any:
    """The same random weights whatever the kernel; heads far from uniform."""
    cls, config = FAMILIES[name]()
    for key, value in changes.items():
        assert hasattr(config, key)
        setattr(config, key, value)
    config._attn_implementation = kernel
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        model = cls(config)
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "embed" not in name and "wte" not in name and "shared" not in name:
                nn.init.normal_(weight, std=1.5 / weight.shape[-1] ** 0.5)
    return model.eval()


class Attention(nn.Module):
    def __init__(self, d: int, heads: int, dropout: float, flash: bool) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.heads, self.dropout, self.flash = heads, dropout, flash

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        if self.flash:
            p = self.dropout if self.training else 0
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=p, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
            att = att.masked_fill(torch.ones(T, T, dtype=torch.bool).tril() == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class Block(nn.Module):
    def __init__(self, d: int, heads: int, dropout: float, flash: bool) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(d), Attention(d, heads, dropout, flash)
        self.ln_2, self.mlp = nn.LayerNorm(d), nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """In nanoGPT's words: model(idx, targets) is (logits, loss)."""

    def __init__(self, flash: bool = True, dropout: float = 0.1, d: int = 24, heads: int = 4, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.wte, self.wpe, self.drop = nn.Embedding(20, d), nn.Embedding(32, d), nn.Dropout(dropout)
            self.h = nn.ModuleList([Block(d, heads, dropout, flash) for _ in range(2)])
            self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, 20, bias=False)
            self.wte.weight = self.lm_head.weight

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None if targets is None else F.cross_entropy(logits.view(-1, 20), targets.reshape(-1))
        return logits, loss


@pytest.fixture(scope="session")
def build() -> Callable[..., Any]:
    """A Hugging Face model by the name of its family."""
    return family


@pytest.fixture(scope="session")
def gpt() -> type[GPT]:
    return GPT


@pytest.fixture(scope="session")
def tokenizer_of() -> Callable[[int], Any]:
    """A tokenizer of so many words; the first one starts a text."""

    def make(size: int) -> Any:
        words = {"<s>": 0, "<unk>": 1, "the": 2, "a": 3} | {f"w{i}": i for i in range(4, size)}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")

    return make


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs are made below an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
