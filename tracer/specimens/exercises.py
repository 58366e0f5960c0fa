"""The exercises of the three shorter tutorials, run on real input: what each asks, and what came out.

Each builds the module that it is about, at the size that its author gives, and checks an exact result. Nothing is
trained here: what needs a run (with and without W_O, do trained heads differ) is read from it by
`tracer.specimens.claims`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from tracer.data import python_passages
from tracer.heads.definitions import entropy
from tracer.interventions.edits import recording
from tracer.model import CausalAttention, Transformer
from tracer.presets import preset
from tracer.specimens.systems import Check

SENTENCE = ("the", "cat", "sat", "on", "mat")
ROUNDING = 1e-6
"""How far float32 sums of a few numbers near 1 may be from exact."""
BYTES = 256
"""Tokens of a text that is read as it is."""


@dataclass(frozen=True)
class ExerciseResult:
    """An exercise that was run."""

    checks: tuple[Check, ...]
    pattern: np.ndarray
    """[head query_pos key_pos] on the input, before any training."""
    strings: tuple[str, ...]
    """The input, a token each."""


def many_eyes() -> ExerciseResult:
    """Shapes, parameters and divisibility of heads that are modules of their own, on Python's source."""
    config = replace(preset("many-eyes").config.model, d_vocab=BYTES)
    width, tokens = config.d_model, _passages(2, config.n_ctx)
    checks = []
    for n_heads in (4, 8):
        model = Transformer(replace(config, n_heads=n_heads))
        x = _read(model, tokens)
        out = _attention(model)(x)
        checks.append(Check(f"(B, T, C) in and out with {n_heads} heads", f"{_shape(x)} in, {_shape(out)} out",
                            out.shape == x.shape == (2, config.n_ctx, width)))  # fmt: skip
    many, one = (_size(_attention(Transformer(replace(config, n_heads=n)))) for n in (config.n_heads, 1))
    checks.append(
        Check(
            f"as many parameters as one head of full width: 4 C² + C at C = {width}",
            f"{config.n_heads} heads {many:,}, one head {one:,}",
            many == one == 4 * width**2 + width,
        )  # fmt: skip
    )
    said = _refusal(lambda: replace(config, d_model=256, n_heads=3))
    checks.append(Check("256 wide with 3 heads is refused, and the nearest that divide are named", f"“{said}”",
                        _names(said, 256, 3, 2, 4)))  # fmt: skip
    return ExerciseResult(tuple(checks), *_seen(Transformer(config), tokens[:1, :24]))


def one_matmul() -> ExerciseResult:
    """The batched module against a single head written out, its parameters and its errors, on Python's source."""
    config = replace(preset("one-matmul").config.model, d_vocab=BYTES)
    width, n_heads, tokens = config.d_model, config.n_heads, _passages(1, config.n_ctx)
    alone = Transformer(replace(config, n_heads=1)).eval()
    x, attention = _read(alone, tokens), _attention(alone)
    with torch.no_grad():
        with recording("hook_pattern"):  # the explicit matrices: the fused kernel sums in another order
            explicit = attention(x)
        expected, fused = _single_head(x, attention), attention(x)
    apart = float((explicit - expected).abs().max())
    counts = (1, 2, 4, 8, n_heads)
    sizes = [_size(_attention(Transformer(replace(config, n_heads=n)))) for n in counts]
    indivisible = _refusal(lambda: replace(config, n_heads=7))
    too_long = _refusal(lambda: alone(_passages(1, config.n_ctx + 1)))
    model = Transformer(config)
    head, layer = _attention(model).W_Q.shape[-1], _size(_attention(model))
    checks = (
        Check("one head is the single-head module to the bit, given its weights",
              f"largest difference {apart:g}; {float((fused - expected).abs().max()):.1e} through the fused kernel",
              torch.equal(explicit, expected)),
        Check(f"4 C² = {4 * width**2:,} parameters whatever the heads",
              f"{', '.join(f'{size:,}' for size in sorted(set(sizes)))} with {', '.join(map(str, counts))} heads",
              set(sizes) == {4 * width**2}),
        Check(f"{width} wide with 7 heads is an error that names both", f"“{indivisible}”",
              _names(indivisible, width, 7)),
        Check("an input longer than the context is an error that names both lengths", f"“{too_long}”",
              _names(too_long, config.n_ctx, config.n_ctx + 1)),
        Check("C = 768 with 12 heads: heads of 64, 2,359,296 parameters a layer",
              f"heads of {head}, {layer:,} parameters", (width, n_heads, head, layer) == (768, 12, 64, 2_359_296)),
    )  # fmt: skip
    return ExerciseResult(checks, *_seen(model, tokens[:, :24]))


def _single_head(x: Float[Tensor, "batch pos d_model"], batched: CausalAttention) -> Float[Tensor, "batch pos d_model"]:
    """One head as the tutorial writes it, with the weights of a module that has only one."""
    assert batched.W_O is not None
    query, key, value, out = (weight[0] for weight in (batched.W_Q, batched.W_K, batched.W_V, batched.W_O))
    q, k, v = x @ query, x @ key, x @ value
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    future = torch.tril(torch.ones(x.shape[1], x.shape[1])) == 0
    return scores.masked_fill(future, -torch.inf).softmax(-1) @ v @ out


def post_norm() -> ExerciseResult:
    """Four heads of size 2 read five words; the block adds, then normalises each row."""
    config = replace(preset("post-norm").config.model, d_vocab=len(SENTENCE))
    tokens, model = torch.arange(len(SENTENCE))[None], Transformer(config).eval()
    taps = ("hook_pattern", "hook_z", "hook_attn_out", "hook_resid_mid", "hook_resid_post", "hook_scale")
    with torch.no_grad(), recording(*taps) as seen:
        model(tokens)
    by_name = {
        name.removeprefix("blocks.0.").replace("attn.", "").replace("hook_", ""): v[0] for name, v in seen.items()
    }
    joined = rearrange(by_name["z"], "pos head d_head -> pos (head d_head)")
    weight = _attention(model).W_O
    assert weight is not None
    apart = float((joined @ weight.detach().flatten(0, 1) - by_name["attn_out"]).abs().max())
    entropies = entropy(by_name["pattern"]).mean(-1).tolist()
    rows = torch.cat([by_name["resid_mid"], by_name["resid_post"]])
    mean, spread = rows.mean(-1).abs().max(), rows.std(-1, correction=0)
    scale = torch.cat([by_name["ln1.scale"], by_name["ln2.scale"]])[:, 0]
    left = (1 - config.norm_eps / scale**2).sqrt()  # of a deviation of 1, by the eps inside the root
    learned = sum(p.numel() for name, p in model.named_parameters() if ".ln" in name)
    n, most = len(SENTENCE), math.log(len(SENTENCE))
    causal = math.log(math.factorial(n)) / n
    checks = (
        Check("four heads of 2 side by side, then projected: (5, 8) both times",
              f"{_shape(joined)}, {_shape(by_name['attn_out'])}; the heads' own writes add up to within {apart:g}",
              joined.shape == by_name["attn_out"].shape == (n, 8) and apart < ROUNDING),
        Check(f"mean row entropy per head, beside log({n}) = {most:.2f}",
              f"{', '.join(f'{value:.2f}' for value in entropies)}; causal rows allow {causal:.2f} at most",
              max(entropies) <= causal + ROUNDING),
        Check("after each sum every row has mean 0 and standard deviation 1, up to eps; nothing is learned",
              f"|mean| at most {mean:.0e}, deviation {spread.min():.5f} to {spread.max():.5f}, {learned} parameters",
              bool(mean < ROUNDING and (spread - left).abs().max() < ROUNDING and learned == 0)),
    )  # fmt: skip
    return ExerciseResult(checks, by_name["pattern"].numpy(), SENTENCE)


EXERCISES: Mapping[str, Callable[[], ExerciseResult]] = {
    "many-eyes": many_eyes, "one-matmul": one_matmul, "post-norm": post_norm,
}  # fmt: skip


def _passages(n: int, length: int) -> Int[Tensor, "n pos"]:
    """The first bytes of n files of Python's standard library, each of at least as many characters."""
    found = [list(text.encode()[:length]) for text in islice(python_passages(length), n)]
    return torch.tensor(found)


def _seen(model: Transformer, tokens: Int[Tensor, "1 pos"]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The first block's patterns on a text of bytes, and its characters."""
    with torch.no_grad(), recording("blocks.0.attn.hook_pattern") as seen:
        model.eval()(tokens)
    (pattern,) = seen.values()
    return pattern[0].numpy(), tuple(chr(byte) for byte in tokens[0].tolist())


def _read(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
    """What the first block's heads read."""
    return model.blocks[0].attn_in(model.start(tokens)[0]).detach()


def _attention(model: Transformer) -> CausalAttention:
    return model.blocks[0].attn


def _size(attention: CausalAttention) -> int:
    return sum(weight.numel() for weight in attention.parameters())


def _shape(x: Tensor) -> str:
    return str(tuple(x.shape))


def _refusal(act: Callable[[], object]) -> str:
    """What the error says; empty where there is none."""
    try:
        act()
    except ValueError as error:
        return str(error)
    return ""


def _names(text: str, *numbers: int) -> bool:
    return set(map(str, numbers)) <= set(re.findall(r"\d+", text))
