"""Attacks on what a watch says of attention that is written in other ways, and what our induction score counts."""

from __future__ import annotations

import contextlib
import io
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import tracer
from benchmarks.truth.attack import Attack
from tracer.analysis.conventions import CONVENTIONS, conventions_of, induction_conventions
from tracer.hooks.refusals import CannotWatch
from tracer.presets import preset

BATCH, T, HEADS, D = 3, 24, 4, 32
SEEN = torch.ones(T, T, dtype=torch.bool).tril()
X = torch.randn(BATCH, T, D, generator=torch.Generator().manual_seed(1))
hf: Any = transformers
FLEX: Any = flex_attention


class Layer(nn.Module):
    """q, k, v [batch head pos d_head], whose attention is written by `how`."""

    def __init__(self, how: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.how = nn.Linear(D, 3 * D), how

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(4 * x).chunk(3, -1))

    def forward(self, x: Tensor) -> Tensor:
        return self.how(*self.parts(x)).transpose(1, 2).flatten(2)


def exact(how: Layer, change: Callable[[Tensor], Tensor]) -> Tensor:
    """The pattern in float64."""
    q, k, _ = (t.detach().double() for t in how.parts(X))
    return change(q @ k.mT / (D // HEADS) ** 0.5).softmax(-1)


def hide(scores: Tensor) -> Tensor:
    return scores.masked_fill(~SEEN, -math.inf)


def seen_of(model: nn.Module, *inputs: Any, **named: Any) -> Any:
    """A watcher after one forward pass, and the largest difference that it made to the output."""
    with torch.no_grad(), tracer.watch(model, keep=BATCH) as watcher:
        model(*inputs, **named)
    return watcher


def largest(watcher: Any, pattern: Tensor, layer: int = 0) -> float:
    """Largest difference of any weight."""
    return max(
        float((watcher.pattern(layer, head, sequence=i) - pattern[i, head]).abs().max())
        for head in range(pattern.shape[1])
        for i in range(len(pattern))
    )


def blocks() -> Iterator[Attack]:
    def how(q: Tensor, k: Tensor, v: Tensor, size: int = 7) -> Tensor:
        parts = []
        for start in range(0, T, size):
            end = min(start + size, T)
            scores = (q[:, :, start:end] @ k.mT / 8**0.5).masked_fill(~SEEN[start:end], -math.inf)
            parts.append(scores.softmax(-1) @ v)
        return torch.cat(parts, 2)

    watcher = seen_of(model := Layer(how), X)
    kinds = [(one.kind, one.causal) for one in watcher.layers]
    off = largest(watcher, exact(model, hide))
    yield Attack(
        "a layer of the picture is an attention of the model", "tracer.watch",
        "attention computed in blocks of 7 of 24 queries (four softmaxes, the last short), against one softmax over "
        "all queries in float64",
        f"{len(kinds)} layer, {kinds[0][0]}, causal: {kinds[0][1]}; weights differ by at most {off:.1e}",
        kinds == [("self", True)] and off < 5e-6,
    )  # fmt: skip

    def windows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cut = [slice(start, start + 8) for start in range(0, T, 8)]
        return torch.cat([F.scaled_dot_product_attention(q[:, :, c], k[:, :, c], v[:, :, c]) for c in cut], 2)

    yield refused("the same with keys of its own for every block", windows, "in blocks of queries")


def refused(attack: str, how: Callable[[Tensor, Tensor, Tensor], Tensor], why: str) -> Attack:
    watcher = seen_of(Layer(how), X)
    try:
        said = f"shown, entropy {float(watcher.read()['entropy'].mean()):.3f}"
    except CannotWatch as error:
        said = f"refused: {error}"
    return Attack("what cannot be measured truthfully is refused", "tracer.watch", attack, said, why in said)


def after_the_softmax() -> Iterator[Attack]:
    last = torch.arange(BATCH) == BATCH - 1
    hidden = last[:, None, None, None] & (torch.arange(T) < 3)

    def how(q: Tensor, k: Tensor, v: Tensor, again: bool = True) -> Tensor:
        weights = (q @ k.mT / 8**0.5).softmax(-1, dtype=torch.float64).to(q.dtype).masked_fill_(hidden, 0)
        return (weights / weights.sum(-1, keepdim=True) if again else weights) @ v

    pattern = exact(model := Layer(how), lambda s: s.masked_fill(hidden, -math.inf))
    before = exact(model, lambda s: s)
    found = seen_of(model, X).read()
    entropy, old = (torch.special.entr(p).sum(-1)[..., 1:].mean((0, 2)).numpy() for p in (pattern, before))
    off = float(np.abs(found["entropy"].values[0] - entropy).max())
    yield Attack(
        "entropies are those of the weights that multiply the values", "tracer.watch",
        "three keys of one sequence of three masked in place, in a copy of the softmax, the rest scaled to sum to 1",
        f"entropies differ by at most {off:.1e} nats from those in float64; before the mask they are up to "
        f"{float(np.abs(old - entropy).max()):.2f} nats away", off < 1e-5,
    )  # fmt: skip
    yield refused(
        "the same mask without scaling, in the last sequence only", lambda q, k, v: how(q, k, v, False),
        "masked or scaled after the softmax",
    )  # fmt: skip


def extra_keys() -> Iterator[Attack]:
    worst, said = 0.0, set()
    for bias, zero, fused in [(True, False, True), (False, True, False), (True, True, True), (True, True, False)]:
        torch.manual_seed(0)
        model = nn.MultiheadAttention(D, HEADS, add_bias_kv=bias, add_zero_attn=zero, batch_first=True)
        for causal in (True, False):
            mask, x = ~SEEN if causal else None, 4 * X
            watcher = seen_of(model.float(), x, x, x, attn_mask=mask, need_weights=not fused)
            wide = x.double()
            with torch.no_grad():
                weights = model.double()(wide, wide, wide, attn_mask=mask, average_attn_weights=False)[1]
            worst = max(worst, largest(watcher, weights))
            names = ("bias_k",) * bias + ("zero",) * zero
            said.add(watcher.layers[0].causal == causal and watcher.layers[0].extra == names)
    yield Attack(
        "a layer is called causal when no query sees a later token, and its extra keys have names",
        "tracer.watch, layers", "nn.MultiheadAttention with add_bias_kv, add_zero_attn and both, fused and not, with a "
        "causal mask and without: eight cases against torch's own weights in float64",
        f"labels right in {'all' if said == {True} else 'not all'} cases; weights differ by at most {worst:.1e}",
        said == {True} and worst < 5e-6,
    )  # fmt: skip
    config = hf.GptOssConfig(
        vocab_size=50, hidden_size=32, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1, sliding_window=4,
        max_position_embeddings=64, attn_implementation="eager", experts_implementation="eager", pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(1)
    model = hf.GptOssForCausalLM(config).eval()
    for name, weight in model.named_parameters():
        nn.init.normal_(weight, std=2.0 if "sinks" in name else 0.3 if weight.ndim > 1 else 0.02)
    ids = torch.randint(2, 50, (BATCH, T), generator=torch.Generator().manual_seed(0))
    watcher = seen_of(model, ids)
    with torch.no_grad():
        own = model.double()(ids, output_attentions=True).attentions
    whole = [torch.cat([weights, 1 - weights.sum(-1, keepdim=True)], -1) for weights in own]
    worst = max(largest(watcher, pattern, layer) for layer, pattern in enumerate(whole))
    rests = max(float(pattern[..., -1].max()) for pattern in whole)
    yield Attack(
        "learned sinks are one more key, with no value", "tracer.watch, Hugging Face gpt-oss",
        "a random gpt-oss (two layers, grouped heads, a window of 4) against the weights that it returns in float64, "
        "and what these lack to 1",
        f"weights differ by at most {worst:.1e}; the sink takes up to {rests:.2f} of a row", worst < 5e-6,
    )  # fmt: skip


def flex() -> Iterator[Attack]:
    def alibi(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return 0.7 * torch.tanh(score / 0.7) - (i - j).abs() * 0.1 * (h + 1)

    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 9 + b), BATCH, None, T, T, device="cpu")
    rows, keys = torch.arange(T)[:, None], torch.arange(T)
    near = torch.stack([SEEN & (rows - keys < 9 + b) for b in range(BATCH)])[:, None]
    slopes = 0.1 * (torch.arange(HEADS) + 1.0)[:, None, None]

    def change(scores: Tensor) -> Tensor:
        return (0.7 * torch.tanh(scores / 0.7) - (rows - keys).abs() * slopes).masked_fill(~near, -math.inf)

    model = Layer(lambda q, k, v: FLEX(q, k, v, score_mod=alibi, block_mask=mask))
    watcher = seen_of(model, X)
    off = largest(watcher, exact(model, change))
    yield Attack(
        "flex_attention is seen as it is", "tracer.watch",
        "soft-capped scores with ALiBi in score_mod, a window that grows with the sequence's number as block mask, "
        "against the pattern in float64",
        f"weights differ by at most {off:.1e}; causal: {watcher.layers[0].causal}",
        off < 5e-6 and watcher.layers[0].causal,
    )  # fmt: skip


def falcon() -> Iterator[Attack]:
    config = hf.FalconConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True, multi_query=False,
        parallel_attn=False, bos_token_id=0, eos_token_id=0, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(1)
    model = hf.FalconForCausalLM(config).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=1.5 / weight.shape[-1] ** 0.5)
    lengths = (9, 6, 4)
    ids = torch.randint(2, 50, (3, 9), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(9) >= 9 - torch.tensor(lengths)[:, None]).long()
    together = seen_of(model, ids, attention_mask=mask).read()["entropy"].values
    alone = [seen_of(model, row[None, -n:]).read()["entropy"].values for row, n in zip(ids, lengths, strict=True)]
    want = np.average(np.stack(alone), axis=0, weights=[n - 1 for n in lengths])
    off = float(np.abs(together - want).max())
    yield Attack(
        "padding changes no measure", "tracer.watch, Hugging Face Falcon with ALiBi",
        "three sequences padded on the left, where rows of padding attend evenly to everything, against each alone",
        f"entropies differ by at most {off:.1e} nats", off < 1e-5,
    )  # fmt: skip


def conventions() -> Iterator[Attack]:
    """The table of what each convention counts, on the best head that there is and on one that was trained."""
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        config = replace(preset("induction").config, run=str(Path(directory) / "run"), steps=600, device="cpu")
        run = tracer.train(config, quiet=True)
        model = run.model(run.steps[-1])
    rng, length = np.random.default_rng(0), 25
    block = torch.from_numpy(np.stack([1 + rng.choice(model.d_vocab - 1, length, replace=False) for _ in range(32)]))
    tokens = torch.cat([torch.zeros(32, 1, dtype=torch.long), block, block], 1)
    found = induction_conventions(model, tokens)
    layer, head = np.unravel_index(int(found["ours"].values.argmax()), found["ours"].shape)
    n = 2 * length + 1
    ideal = torch.zeros(32, 1, n, n)
    ideal[:, :, : length + 1, 0] = 1
    ideal[:, :, range(length + 1, n), range(2, length + 2)] = 1
    best = conventions_of(ideal, tokens)
    want = {
        "ours": 1, "detect_head_mul": length / n, "detect_head_abs": length / n,
        "arena_diagonal": (length + 1) / (length + 2),
    }  # fmt: skip
    for name, one in CONVENTIONS.items():
        value, top = float(found[name].values[layer, head]), float(best[name].mean())
        yield Attack(
            f"an induction score, `{name}`: {one.counts}", f"tracer.analysis.conventions; {one.source}",
            "blocks of 25 tokens, twice, on a head that does nothing else (and rests on the start token), and on the "
            "best head of the induction toy after 600 steps; transformer-lens's own function is asked in a test",
            f"{top:.3f} for the best head there is; {value:.2f} for L{layer}H{head}", abs(top - want[name]) < 1e-4,
        )  # fmt: skip


def attacks() -> Iterator[Attack]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers.logging.set_verbosity_error()
        for area in (blocks, after_the_softmax, extra_keys, flex, falcon, conventions):
            yield from area()
