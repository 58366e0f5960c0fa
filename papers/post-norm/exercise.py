"""Four heads of size 2 read five words; the block adds, then normalises each row."""

import math
from dataclasses import replace

import torch

import tracer

SENTENCE = ("the", "cat", "sat", "on", "mat")
ROUNDING = 1e-6
"""How far float32 sums of a few numbers near 1 may be from exact."""


def post_norm():
    n, most = len(SENTENCE), math.log(len(SENTENCE))
    config = replace(tracer.preset("post-norm").config.model, d_vocab=n)
    model = tracer.Transformer(config).eval()
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.arange(n)[None])
    pattern, z, out = (cache[f"blocks.0.{of}"][0] for of in ("attn.hook_pattern", "attn.hook_z", "hook_attn_out"))
    joined = z.flatten(1)  # [pos, head x d_head]
    apart = float((joined @ model.W_O[0].detach().flatten(0, 1) - out).abs().max())
    entropies = torch.special.entr(pattern).sum(-1).mean(-1).tolist()
    rows = torch.cat([cache["blocks.0.hook_resid_mid"][0], cache["blocks.0.hook_resid_post"][0]])
    mean, spread = rows.mean(-1).abs().max(), rows.std(-1, correction=0)
    scale = torch.cat([cache["blocks.0.ln1.hook_scale"][0], cache["blocks.0.ln2.hook_scale"][0]])[:, 0]
    left = (1 - config.norm_eps / scale**2).sqrt()  # of a deviation of 1, by the eps inside the root
    learned = sum(p.numel() for name, p in model.named_parameters() if ".ln" in name)
    causal = math.log(math.factorial(n)) / n
    checks = (
        tracer.Check("four heads of 2 side by side, then projected: (5, 8) both times",
                     f"{tuple(joined.shape)}, {tuple(out.shape)}; the heads' own writes add up to within {apart:g}",
                     joined.shape == out.shape == (n, 8) and apart < ROUNDING),
        tracer.Check(f"mean row entropy per head, beside log({n}) = {most:.2f}",
                     f"{', '.join(f'{value:.2f}' for value in entropies)}; causal rows allow {causal:.2f} at most",
                     max(entropies) <= causal + ROUNDING),
        tracer.Check("after each sum every row has mean 0 and standard deviation 1, up to eps; nothing is learned",
                     f"|mean| at most {mean:.0e}, deviation {spread.min():.5f} to {spread.max():.5f}, "
                     f"{learned} parameters",
                     bool(mean < ROUNDING and (spread - left).abs().max() < ROUNDING and learned == 0)),
    )  # fmt: skip
    return tracer.Exercise(checks, pattern.numpy(), SENTENCE)
