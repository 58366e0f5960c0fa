"""Shapes, parameters and divisibility of heads that are modules of their own, on Python's source."""

import re
from dataclasses import replace
from itertools import islice

import torch

import tracer

BYTES = 256
"""Tokens of a text that is read as it is."""


def many_eyes():
    config = replace(tracer.preset("many-eyes").config.model, d_vocab=BYTES)
    width = config.d_model
    texts = islice(tracer.data.python_passages(config.n_ctx), 2)
    tokens = torch.tensor([list(text.encode()[: config.n_ctx]) for text in texts])
    checks = []
    for n_heads in (4, 8):
        _, cache = tracer.Transformer(replace(config, n_heads=n_heads)).run_with_cache(tokens)
        read, out = (tuple(cache[f"blocks.0.{of}"].shape) for of in ("ln1.hook_normalized", "hook_attn_out"))
        checks.append(tracer.Check(f"(B, T, C) in and out with {n_heads} heads", f"{read} in, {out} out",
                                   out == read == (2, config.n_ctx, width)))  # fmt: skip
    many, one = (size(tracer.Transformer(replace(config, n_heads=n))) for n in (config.n_heads, 1))
    checks.append(tracer.Check(f"as many parameters as one head of full width: 4 C² + C at C = {width}",
                               f"{config.n_heads} heads {many:,}, one head {one:,}",
                               many == one == 4 * width**2 + width))  # fmt: skip
    said = ""
    try:
        replace(config, d_model=256, n_heads=3)
    except ValueError as error:
        said = str(error)
    checks.append(tracer.Check("256 wide with 3 heads is refused, and the nearest that divide are named", f"“{said}”",
                               {"256", "3", "2", "4"} <= set(re.findall(r"\d+", said))))  # fmt: skip
    seen = tokens[:1, :24]
    _, cache = tracer.Transformer(config).eval().run_with_cache(seen)
    pattern = cache["blocks.0.attn.hook_pattern"][0].detach().numpy()
    return tracer.Exercise(tuple(checks), pattern, tuple(map(chr, seen[0].tolist())))


def size(model):
    """Parameters of the first block's attention."""
    return sum(weight.numel() for weight in model.blocks[0].attn.parameters())
