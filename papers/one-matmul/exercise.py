"""The batched module against a single head written out, its parameters and its errors, on Python's source."""

import re
from dataclasses import replace

import torch

import tracer

BYTES = 256
"""Tokens of a text that is read as it is."""
READ, OUT = "blocks.0.ln1.hook_normalized", "blocks.0.hook_attn_out"


def one_matmul():
    config = replace(tracer.preset("one-matmul").config.model, d_vocab=BYTES)
    width, n_heads = config.d_model, config.n_heads
    text = next(iter(tracer.data.python_passages(config.n_ctx + 1)))
    tokens = torch.tensor([list(text.encode()[: config.n_ctx + 1])])
    alone = tracer.Transformer(replace(config, n_heads=1)).eval()
    with torch.no_grad():
        _, explicit = alone.run_with_cache(tokens[:, :-1])  # its patterns, too, so not by the fused kernel
        _, fused = alone.run_with_cache(tokens[:, :-1], names_filter=OUT)  # which sums in another order
        expected = single_head(explicit[READ], *(getattr(alone, name)[0, 0] for name in ("W_Q", "W_K", "W_V", "W_O")))
    apart, rounding = (float((of[OUT] - expected).abs().max()) for of in (explicit, fused))
    counts = (1, 2, 4, 8, n_heads)
    sizes = {size(tracer.Transformer(replace(config, n_heads=n))) for n in counts}
    indivisible = refusal(lambda: replace(config, n_heads=7))
    too_long = refusal(lambda: alone(tokens))
    model = tracer.Transformer(config).eval()
    head, layer = model.W_Q.shape[-1], size(model)
    checks = (
        tracer.Check("one head is the single-head module to the bit, given its weights",
                     f"largest difference {apart:g}; {rounding:.1e} through the fused kernel",
                     torch.equal(explicit[OUT], expected)),
        tracer.Check(f"4 C² = {4 * width**2:,} parameters whatever the heads",
                     f"{', '.join(f'{one:,}' for one in sorted(sizes))} with {', '.join(map(str, counts))} heads",
                     sizes == {4 * width**2}),
        tracer.Check(f"{width} wide with 7 heads is an error that names both", f"“{indivisible}”",
                     names(indivisible, width, 7)),
        tracer.Check("an input longer than the context is an error that names both lengths", f"“{too_long}”",
                     names(too_long, config.n_ctx, config.n_ctx + 1)),
        tracer.Check("C = 768 with 12 heads: heads of 64, 2,359,296 parameters a layer",
                     f"heads of {head}, {layer:,} parameters",
                     (width, n_heads, head, layer) == (768, 12, 64, 2_359_296)),
    )  # fmt: skip
    seen = tokens[:, :24]
    _, cache = model.run_with_cache(seen)
    pattern = cache["blocks.0.attn.hook_pattern"][0].detach().numpy()
    return tracer.Exercise(checks, pattern, tuple(map(chr, seen[0].tolist())))


def single_head(x, query, key, value, out):
    """One head as the tutorial writes it, [batch pos d_model], with the weights of a module that has only one."""
    q, k, v = x @ query, x @ key, x @ value
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    future = torch.tril(torch.ones(x.shape[1], x.shape[1])) == 0
    return scores.masked_fill(future, -torch.inf).softmax(-1) @ v @ out


def size(model):
    """Parameters of the first block's attention."""
    return sum(weight.numel() for weight in model.blocks[0].attn.parameters())


def refusal(act):
    """What the error says; empty where there is none."""
    try:
        act()
    except ValueError as error:
        return str(error)
    return ""


def names(text, *numbers):
    return set(map(str, numbers)) <= set(re.findall(r"\d+", text))
