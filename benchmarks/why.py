"""Every source of one cell, beside the forward pass: random weights, for only shapes decide what it costs.

`pass` runs the model once and keeps who wrote what; `cell` then answers for any cell of any head of that prompt, with
the mean over all other keys and where every earlier head read its part; no pattern is made but one row a head.
"""

from __future__ import annotations

import torch

from benchmarks.measure import in_turn
from tracer.analysis.cell_moves import moves
from tracer.analysis.why import cell, read_pass
from tracer.config import ModelConfig
from tracer.model import Transformer

DEMO = ModelConfig(n_layers=2, n_heads=4, d_model=128, n_ctx=64, d_vocab=1024)
GPT2 = ModelConfig(
    n_layers=12, n_heads=12, d_model=768, n_ctx=512, d_vocab=50257, mlp_hidden=(3072,), activation="gelu", norm="layer",
    attn_out_bias=True,
)  # fmt: skip


def main() -> None:
    print(f"\nwhy a head looks there, {torch.get_num_threads()} CPU threads: ms, the best of some rounds")
    print(f"{'layers heads width tokens':>28}{'forward':>10}{'pass':>10}{'cell':>10}{'moves':>10}   sources")
    for config, rounds in ((DEMO, 20), (GPT2, 4)):
        model, n, last = Transformer(config).eval(), config.n_ctx, config.n_layers - 1
        tokens = torch.randint(0, model.d_vocab, (1, n), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            found = read_pass(model, tokens)
            seconds = in_turn(
                {
                    "forward": lambda model=model, tokens=tokens: model(tokens),
                    "pass": lambda model=model, tokens=tokens: read_pass(model, tokens),
                    "cell": lambda found=found, last=last, n=n: cell(found, last, 1, n - 1, n // 2),
                    "moves": lambda found=found, n=n: moves(found, 0, 1, n - 1, n // 2),
                },
                rounds,
            )
        shape = f"{config.n_layers} {config.n_heads} {config.d_model} {n}"
        row = "".join(f"{1000 * min(times):10.1f}" for times in seconds.values())
        print(f"{shape:>28}{row}   {len(cell(found, last, 1, n - 1, n // 2))}")
