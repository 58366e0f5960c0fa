"""Every family of causal models whose residual stream is known, tiny, with random weights, in float64."""

from collections.abc import Callable
from typing import Any

import torch
import transformers

from tests import nano

hf: Any = transformers
WORDS = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}
TEXT: dict[str, Any] = WORDS | {
    "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
SHARED = TEXT | {"num_key_value_heads": 2}
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2}
GEMMA = SHARED | {"head_dim": 6, "sliding_window": 4, "query_pre_attn_scalar": 6}
LATENT = TEXT | {
    "kv_lora_rank": 10, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "n_group": 1, "topk_group": 1, "num_key_value_heads": 4,
}  # fmt: skip
CAUSAL: dict[str, Callable[[], tuple[Any, Any]]] = {
    "GPT-2": lambda: (hf.GPT2LMHeadModel, hf.GPT2Config(**WORDS, n_embd=32, n_layer=3, n_head=4, n_positions=64)),
    "GPT-Neo": lambda: (hf.GPTNeoForCausalLM, hf.GPTNeoConfig(
        **WORDS, hidden_size=32, intermediate_size=40, num_layers=3, num_heads=4, max_position_embeddings=64,
        window_size=4, attention_types=[[["global", "local", "global"], 1]])),
    "GPT-NeoX (Pythia)": lambda: (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**TEXT)),
    "GPT-NeoX, serial": lambda: (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**TEXT, use_parallel_residual=False)),
    "Llama": lambda: (hf.LlamaForCausalLM, hf.LlamaConfig(**SHARED)),
    "Mistral": lambda: (hf.MistralForCausalLM, hf.MistralConfig(**SHARED, sliding_window=4)),
    "Qwen2": lambda: (hf.Qwen2ForCausalLM, hf.Qwen2Config(**SHARED)),
    "Qwen3": lambda: (hf.Qwen3ForCausalLM, hf.Qwen3Config(**SHARED, head_dim=6)),
    "Gemma": lambda: (hf.GemmaForCausalLM, hf.GemmaConfig(**SHARED, head_dim=6)),
    "Gemma 2": lambda: (hf.Gemma2ForCausalLM, hf.Gemma2Config(
        **GEMMA, attn_logit_softcapping=0.5, final_logit_softcapping=2.0)),
    "Gemma 3": lambda: (hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**GEMMA)),
    "OLMo 2": lambda: (hf.Olmo2ForCausalLM, hf.Olmo2Config(**SHARED)),
    "Phi-3": lambda: (hf.Phi3ForCausalLM, hf.Phi3Config(**SHARED)),
    "OPT": lambda: (hf.OPTForCausalLM, hf.OPTConfig(
        **WORDS, hidden_size=32, ffn_dim=40, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64,
        word_embed_proj_dim=32, pad_token_id=1)),
    "BLOOM": lambda: (hf.BloomForCausalLM, hf.BloomConfig(**WORDS, hidden_size=32, n_layer=3, n_head=4)),
    "StableLM": lambda: (hf.StableLmForCausalLM, hf.StableLmConfig(**SHARED)),
    "StableLM 2 12B": lambda: (hf.StableLmForCausalLM, hf.StableLmConfig(
        **SHARED, qk_layernorm=True, use_parallel_residual=True, use_qkv_bias=True)),
    "Granite": lambda: (hf.GraniteForCausalLM, hf.GraniteConfig(
        **SHARED, embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=4.0, attention_multiplier=0.3)),
    "DeepSeek-V2": lambda: (hf.DeepseekV2ForCausalLM, hf.DeepseekV2Config(**LATENT, q_lora_rank=None)),
    "DeepSeek-V3": lambda: (hf.DeepseekV3ForCausalLM, hf.DeepseekV3Config(
        **LATENT, q_lora_rank=12, attention_bias=True)),
    "Mixtral": lambda: (hf.MixtralForCausalLM, hf.MixtralConfig(**SHARED, num_local_experts=4)),
    "Qwen2-MoE": lambda: (hf.Qwen2MoeForCausalLM, hf.Qwen2MoeConfig(
        **SHARED, **EXPERTS, shared_expert_intermediate_size=16)),
    "nanoGPT": lambda: (nano.GPT, nano.Config(block_size=64, vocab_size=50, n_layer=3)),
    "Qwen3-MoE": lambda: (hf.Qwen3MoeForCausalLM, hf.Qwen3MoeConfig(**SHARED, **EXPERTS, head_dim=6)),
}  # fmt: skip
QUICK = ("GPT-2", "GPT-NeoX (Pythia)", "Llama", "Gemma 2", "nanoGPT")
"""Those of the first tier."""
NO_SDPA = ("Gemma 2", "BLOOM", "GPT-Neo")
"""Those that make their patterns by hand only."""


def causal(name: str, kernel: str | None = None) -> Any:
    """As if trained: gains and biases away from 1 and 0, heads far from uniform."""
    cls, config = CAUSAL[name]()
    if name != "nanoGPT":
        config._attn_implementation = kernel or ("eager" if name in NO_SDPA else "sdpa")
        config._experts_implementation = "eager"  # the grouped kernel knows no float64
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        model = cls(config).double().eval().requires_grad_(False)
        for weight in model.parameters():
            weight.normal_(std=1.5 / weight.shape[-1] ** 0.5) if weight.ndim > 1 else weight.add_(
                0.3 * torch.randn_like(weight)
            )
    return model


def gpt_oss(**changes: Any) -> Any:
    """Tiny, in eval mode, with random sinks."""
    config = hf.GptOssConfig(
        vocab_size=50, hidden_size=32, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1, max_position_embeddings=64,
        pad_token_id=0, bos_token_id=0, eos_token_id=0, sliding_window=4, attn_implementation="eager",
        experts_implementation="eager", **changes,
    )  # fmt: skip
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        model = hf.GptOssForCausalLM(config).eval()
        for name, weight in model.named_parameters():
            if "sinks" in name:
                torch.nn.init.normal_(weight, std=2.0)
            elif weight.ndim > 1 and "embed" not in name:
                torch.nn.init.normal_(weight, std=1.5 / weight.shape[-1] ** 0.5)
    return model
