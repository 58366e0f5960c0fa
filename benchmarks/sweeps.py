"""Every head switched off by itself: the engine, transformer-lens hooks, and a loop of our own forward passes.

All have the same weights and read per-token losses, or one logit difference at the last position. FLOPs of a token for
a head of layer l of L: 16 d_model^2 for each MLP from l on, 8 d_model^2 + 2 T d_model for the attention of each later
layer, 2 d_vocab d_model for the unembedding. A plain pass makes all L layers, so that at equal speed the engine cannot
be faster than 1.5 times with a large vocabulary, and 1.8 with a small one; only metrics that read less gain more.
"GEMM" is the engine's rate beside that of a bare product of the shape of an MLP, measured in the same turn; "|dloss|"
is the largest difference of the mean loss of a sequence between the engine and the hooks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge.sources import boot_native
from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

from benchmarks.measure import in_turn, ratio
from tracer.ablate import MODES, LogitDifference, losses, metric_under_ablation, sweep
from tracer.config import ModelConfig
from tracer.data.probes import per_token_loss, repeated
from tracer.interventions.edits import Edit, applied
from tracer.model import Transformer
from tracer.store import Run, open_run
from tracer.training.malloc import keep_freed_memory

# n_layers, n_heads, d_model, d_vocab, batch, T, rounds, every how many heads the slow sides are timed on
CASES = (
    (12, 12, 768, 50257, 1, 128, 2, 12),
    (4, 4, 256, 1024, 64, 32, 5, 1),
    (4, 4, 256, 64, 4, 32, 25, 1),
    (2, 4, 128, 1024, 1, 32, 50, 1),
)


def build(n_layers: int, n_heads: int, d_model: int, d_vocab: int, n_ctx: int) -> Transformer:
    config = ModelConfig(
        n_layers=n_layers, n_heads=n_heads, d_model=d_model, d_vocab=d_vocab, n_ctx=n_ctx, norm="layer",
        mlp_hidden=(4 * d_model,), activation="gelu", norm_eps=1e-5,
    )  # fmt: skip
    return Transformer(config, seed=0).eval().requires_grad_(False)


def bridge_of(model: Transformer):
    """The same weights in transformer-lens."""
    c = model.config
    config = TransformerBridgeConfig(
        n_layers=c.n_layers, n_heads=c.n_heads, d_model=c.d_model, d_head=c.head_width, n_ctx=c.n_ctx,
        d_vocab=c.d_vocab or 0, d_mlp=c.mlp_hidden[0], act_fn="gelu", normalization_type="LN", eps=c.norm_eps,
    )  # fmt: skip
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for layer in range(c.n_layers):
        attn = f"blocks.{layer}.attn."
        weights |= {attn + f"b_{letter}": torch.zeros(c.n_heads, c.head_width) for letter in "QKV"}
        weights[attn + "b_O"] = torch.zeros(c.d_model)
    bridge = boot_native(config).eval().requires_grad_(False)
    bridge.load_state_dict(
        convert_tl_checkpoint(weights, config) | {"unembed.bias": torch.zeros(c.d_vocab or 0)}, strict=True
    )
    return bridge


def hook_loop(bridge, tokens: Tensor, heads: list[tuple[int, int]], read: Callable[[Tensor], Tensor]) -> Tensor:
    """What transformer-lens's users write."""
    found, width = [], bridge.cfg.d_head
    for layer, head in heads:

        def zero(z: Tensor, hook: object, head: int = head) -> Tensor:
            columns = z if z.ndim == 3 else z.flatten(2)
            columns[..., head * width : (head + 1) * width] = 0
            return z

        found.append(read(bridge.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", zero)])))
    return torch.stack(found)


def plain_loop(model: Transformer, tokens: Tensor, heads: list[tuple[int, int]], read) -> Tensor:
    found = []
    for layer, head in heads:
        with applied([Edit(f"blocks.{layer}.attn.hook_z", (head,))]):
            found.append(read(model(tokens)))
    return torch.stack(found)


def flops(model: Transformer, batch: int, pos: int) -> float:
    """Of the engine's sweep over all heads."""
    c = model.config
    T, d, total = batch * pos, c.d_model, 0.0
    for layer in range(c.n_layers):
        later = c.n_layers - 1 - layer
        total += c.n_heads * T * (16 * d * d * (later + 1) + (8 * d * d + 2 * pos * d) * later + 2 * d * model.d_vocab)
    return total


def measure(
    n_layers: int, n_heads: int, d_model: int, d_vocab: int, batch: int, pos: int, rounds: int, every: int
) -> None:
    model = build(n_layers, n_heads, d_model, d_vocab, pos)
    bridge = bridge_of(model)
    tokens = torch.randint(d_vocab, (batch, pos), generator=torch.Generator().manual_seed(1))
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    timed = heads[every // 2 :: every]
    scale = len(heads) / len(timed)
    last = LogitDifference(1, 2)

    def loss(logits: Tensor) -> Tensor:
        return per_token_loss(logits, tokens)

    def difference(logits: Tensor) -> Tensor:
        return logits[:, -1:, 1] - logits[:, -1:, 2]

    # as many multiplications as one MLP layer of the largest batch that the engine makes of this
    left, right = torch.randn(max(128, batch * pos), d_model), torch.randn(d_model, 4 * d_model)
    found: dict[str, Tensor] = {}

    def keep(name: str, run: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: found.__setitem__(name, run())

    seconds = in_turn(
        {
            "engine": keep("engine", lambda: losses(model, tokens, [[head] for head in heads])),
            "hooks": keep("hooks", lambda: hook_loop(bridge, tokens, timed, loss)),
            "plain": keep("plain", lambda: plain_loop(model, tokens, timed, loss)),
            "engine, last": keep(
                "few", lambda: metric_under_ablation(model, tokens, [[head] for head in heads], metric=last)
            ),
            "hooks, last": keep("few hooks", lambda: hook_loop(bridge, tokens, timed, difference)),
            "product": lambda: [left @ right for _ in range(10)],
        },
        rounds,
    )
    best = {name: min(times) for name, times in seconds.items()}
    place = [heads.index(head) for head in timed]
    far = float((found["engine"][place] - found["hooks"]).mean(-1).abs().max())
    far_few = float((found["few"][place] - found["few hooks"]).abs().max())
    peak = 20 * left.numel() * 4 * d_model / best["product"]
    rate = flops(model, batch, pos) / best["engine"]
    print(
        f"{f'{n_layers} {n_heads} {d_model} {d_vocab}':>18}{f'{batch} x {pos}':>10}{best['engine']:11.3f}"
        f"{scale * ratio(seconds['hooks'], seconds['engine']):11.2f}"
        f"{scale * ratio(seconds['plain'], seconds['engine']):11.2f}"
        f"{far:11.1e}{1e-9 * rate:8.0f} ({rate / peak:.0%})"
        f"{scale * ratio(seconds['hooks, last'], seconds['engine, last']):14.2f}{far_few:11.1e}"
        f"   {len(timed)} of {len(heads)}"
    )


def snapshots(run: Run) -> None:
    began = time.perf_counter()
    for step in run.steps:
        model = run.model(step)
        probe = repeated(model.d_vocab, model.n_ctx)
        for mode in MODES:
            sweep(model, probe.tokens, mode, positions=probe.predictable, interval=True)
    took = time.perf_counter() - began
    print(f"\n{run.name}: {len(run.steps)} snapshots, every head, {len(MODES)} modes with intervals: {took:.1f} s")


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    print(
        "\nevery head switched off by itself (zero), one CPU thread; times of the loops are scaled up from some heads"
    )
    print(
        f"{'layers heads d V':>18}{'batch':>10}{'engine s':>11}{'hooks/it':>11}{'plain/it':>11}{'|dloss|':>11}"
        f"{'GFLOP/s (GEMM)':>16}{'last: hooks/it':>16}{'|d|':>9}   heads timed"
    )
    with torch.no_grad():
        for case in CASES:
            measure(*case)
    if (directory := Path("checkpoints/demo-0")).exists():
        snapshots(open_run(directory))
