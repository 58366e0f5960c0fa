"""All statistics of all heads of a whole model, random weights, one CPU thread: ours against what peers' users run.

FLOPs of a forward pass of T tokens: n_layers (24 T d_model^2 + 2 T^2 d_model), the second term twice that where masked
scores are computed too (`eager` and `bridge` do). Statistics add to the pass that the model makes anyway about ten
operations a visible score, where a score and its value cost 4 d_head = 256. Patterns of all heads are
4 n_layers n_heads T^2 bytes, which peers hold until they are reduced; ours holds one tile of scores (2 MB with its
scratch), 4 bytes a row and statistic and, with keep=1, q, k and v of one sequence: 12 n_layers T d_model bytes.
The vocabulary is small, so that unembedding, which only `bridge` does, is below 1 % of the FLOPs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import tracer
from benchmarks.measure import in_turn, peak_megabytes, ratio
from tracer.watching.watcher import Watcher

D_VOCAB = 1024
SMALL, LARGE = (4, 4, 256), (12, 12, 768)
"""n_layers, n_heads, d_model; the second is GPT-2 small."""
TIMED = ((SMALL, 256, 25), (SMALL, 1024, 9), (LARGE, 1024, 3), (LARGE, 2048, 2))
"""Shape, tokens, rounds."""
WEIGHED = ((LARGE, 1024, ("none", "eager", "bridge", "keep=0", "keep=1")), (LARGE, 8192, ("none", "keep=0")))
TOLERANCE = 1e-5

Shape = tuple[int, int, int]
Measures = dict[str, np.ndarray]
"""By the names of a trace: arrays [layer, head], means over the rows q >= 1."""
COMPARED = (
    "entropy", "current_token", "previous_token", "first_token", "attended_distance", "duplicate_token", "induction"
)  # fmt: skip


class Sides:
    """The same weights four times over, each built when it is first asked for."""

    def __init__(self, shape: Shape, tokens: int) -> None:
        self.shape = shape
        self.ids = torch.randint(D_VOCAB, (1, tokens), generator=torch.Generator().manual_seed(1))
        self.model = self._build("sdpa")

    def _build(self, attention: str) -> GPT2LMHeadModel:
        n_layers, n_heads, d_model = self.shape
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=D_VOCAB, n_positions=self.ids.shape[1], n_layer=n_layers, n_head=n_heads, n_embd=d_model,
            bos_token_id=0, eos_token_id=0, use_cache=False,
        )  # fmt: skip
        config._attn_implementation = attention
        return GPT2LMHeadModel(config).eval()

    def side(self, name: str) -> Callable[[torch.Tensor], Measures | None]:
        """A function that runs one side on token ids."""
        if name == "eager":
            eager = self._build("eager").transformer
            return lambda ids: reduced(eager(ids, output_attentions=True).attentions, ids)
        if name == "bridge":
            bridge = self._bridge()
            return lambda ids: reduced(_patterns(bridge, ids), ids)
        model = self.model.transformer
        if name == "none":
            return lambda ids: model(ids) and None
        if name == "again":
            kept = tracer.watch(model)
            return lambda ids: watched(kept, ids)
        keep = int(name.removeprefix("keep="))
        return lambda ids: watched(tracer.watch(model, keep=keep), ids)

    def _bridge(self) -> Any:
        from transformer_lens.model_bridge import TransformerBridge

        one_letter = Tokenizer(WordLevel({"a": 0}, unk_token="a"))  # booting asks for a tokenizer, and tries it on "a"
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=one_letter, bos_token="a", eos_token="a", add_bos_token=True, name_or_path="one letter"
        )
        bridge = TransformerBridge.boot_transformers("gpt2", hf_model=self._build("eager"), tokenizer=tokenizer)
        return bridge.eval()


def watched(watcher: Watcher, ids: torch.Tensor) -> Measures:
    with watcher:
        watcher.model(ids)
    found = watcher.read()
    return {name: found[name].values for name in COMPARED}


def _patterns(bridge: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    _, cache = bridge.run_with_cache(ids, names_filter=lambda name: name.endswith("attn.hook_pattern"))
    return [cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(bridge.cfg.n_layers)]


def reduced(patterns: Any, ids: torch.Tensor) -> Measures:
    """What a careful user of patterns writes: each statistic in its fastest form, the masks made once."""
    copies = (ids[:, :, None] == ids[:, None, :]).tril(-1).float()
    after = torch.nn.functional.pad(copies, (1, 0))[..., :-1].contiguous()

    places = torch.arange(ids.shape[1], dtype=copies.dtype)

    def mass(pattern: torch.Tensor, on: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bhqk,bqk->bhq", pattern, on)

    layers = []
    for pattern in patterns:
        rows = {
            "entropy": torch.special.entr(pattern).sum(-1),
            "max": pattern.amax(-1),
            "current_token": pattern.diagonal(0, -2, -1),
            "first_token": pattern[..., 0],
            "attended_distance": places - pattern @ places,
            "duplicate_token": mass(pattern, copies),
            "induction": mass(pattern, after),
        }
        means = {name: values[..., 1:].mean((0, -1)) for name, values in rows.items()}
        layers.append(means | {"previous_token": pattern.diagonal(-1, -2, -1).mean((0, -1))})
    return {name: torch.stack([layer[name] for layer in layers]).numpy() for name in COMPARED}


def flops(shape: Shape, tokens: int) -> float:
    n_layers, _, d_model = shape
    return n_layers * (24 * tokens * d_model**2 + 2 * tokens**2 * d_model)


def pattern_bytes(shape: Shape, tokens: int) -> float:
    return 4 * shape[0] * shape[1] * tokens**2


def spread(numerator: list[float], denominator: list[float]) -> str:
    """The median of the ratios round by round, and the least and largest."""
    each = [a / b for a, b in zip(numerator, denominator, strict=True)]
    return f"{ratio(numerator, denominator):.2f} ({min(each):.2f}-{max(each):.2f})"


@torch.no_grad()
def time_all(shape: Shape, tokens: int, rounds: int) -> str:
    sides = Sides(shape, tokens)
    names = {"ours": "again", "first": "keep=1", "none": "none", "eager": "eager", "bridge": "bridge"}
    runs = {name: sides.side(side) for name, side in names.items()}
    found: dict[str, Measures | None] = {}

    def keeping(name: str) -> Callable[[], object]:
        return lambda: found.update({name: runs[name](sides.ids)})

    x, weight = torch.randn(tokens, shape[2]), torch.randn(shape[2], 4 * shape[2])
    contenders: dict[str, Callable[[], object]] = {"product": lambda: x @ weight}
    times = in_turn(contenders | {name: keeping(name) for name in runs}, rounds)
    check(found)
    peak = 2 * x.numel() * weight.shape[1] / min(times["product"])
    share = flops(shape, tokens) / min(times["none"]) / peak
    ratios = [("eager", "ours"), ("bridge", "ours"), ("ours", "none"), ("first", "none")]
    columns = "  ".join(f"{spread(times[a], times[b]):>17}" for a, b in ratios)
    machine = f"{flops(shape, tokens) / 1e9:7.0f}  {min(times['none']):6.3f}  {share:5.0%}"
    return f"{name_of(shape, tokens):>18}  {machine}  {columns}"


def check(found: dict[str, Measures | None]) -> None:
    """All sides tell the same of every head; the watcher says the same at first and again."""
    for name in ("first", "eager", "bridge"):
        ours, theirs = found["ours"], found[name]
        assert ours is not None and theirs is not None
        for measure in COMPARED:
            error = float((np.abs(ours[measure] - theirs[measure]) / np.maximum(1, np.abs(theirs[measure]))).max())
            assert error < TOLERANCE, f"{measure}: ours and {name} differ by {error:.2g}"


def name_of(shape: Shape, tokens: int) -> str:
    return f"{' x '.join(map(str, shape))}, {tokens}"


@torch.no_grad()
def weigh(shape: Shape, tokens: int, side: str) -> float:
    sides = Sides(shape, tokens)
    run = sides.side(side)
    return peak_megabytes(lambda few: run(sides.ids[:, :few]), tokens)


def in_new_process(shape: Shape, tokens: int, side: str) -> float:
    command = [sys.executable, "-m", "benchmarks.models", *map(str, shape), str(tokens), side]
    blocks_given_back = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # else glibc's holes of freed tensors count: up to 80 MB
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | blocks_given_back)
    return float(done.stdout.split()[-1])


def main() -> None:
    torch.set_num_threads(1)
    print(
        "\nall statistics of all heads of a GPT-2, random weights, one CPU thread: wall time as a ratio, median (range)"
    )
    print("ours: every pass of one watcher but its first, which also checks that what it computes is the model's own")
    columns = ("eager / ours", "bridge / ours", "ours / none", "first pass / none")
    print(f"{'model, tokens':>18}  {'GFLOP':>7}  {'none s':>6}  {'peak':>5}  " + "  ".join(f"{c:>17}" for c in columns))
    for shape, tokens, rounds in TIMED:
        print(time_all(shape, tokens, rounds))
    print("none: the model without statistics; peak: its share of the speed of one matrix product of its MLP")
    print("\nthe same, each side in a new process: MB at the peak, over the model")
    for shape, tokens, sides in WEIGHED:
        found = {side: in_new_process(shape, tokens, side) for side in sides}
        patterns = pattern_bytes(shape, tokens) / 1e6
        print(f"{name_of(shape, tokens):>18}  " + ", ".join(f"{side} {mb:.0f}" for side, mb in found.items()))
        print(
            f"{'':>18}  statistics alone {found['keep=0'] - found['none']:.0f}, patterns by arithmetic {patterns:.0f}"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    n_layers, n_heads, d_model, tokens = map(int, sys.argv[1:5])
    print(weigh((n_layers, n_heads, d_model), tokens, sys.argv[5]))
