"""What takes long of tests/analysis/test_prompt_attention.py."""

import subprocess
import sys

LONG = """
import resource, sys, torch
import tracer
from tracer.analysis.prompt_attention import look as look_at
from transformers import LlamaConfig, LlamaForCausalLM
n = int(sys.argv[1])
model = tracer.load_hf(LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=4, num_attention_heads=16,
    num_key_value_heads=4, max_position_embeddings=4096, attn_implementation="sdpa")))
ids = torch.randint(64, (1, n))
look_at(model, ids[:, :64])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
look = look_at(model, ids)
look.window(3, 15, slice(0, 256), slice(0, 256)); look.overview(3, 15, 512)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_long_prompt_is_looked_at_in_linear_memory() -> None:
    """4 layers x 16 heads x 2048 x 2048 floats would be 1 GB; one layer of them 268 MB."""
    done = subprocess.run([sys.executable, "-c", LONG, "2048"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) / 1024 < 120
