"""Every source of one cell, and heads over a corpus, beside the forward pass: random weights, as only shapes count.

`pass` runs the model once and keeps who wrote what; `cell` then answers for any cell of any head of that prompt, with
the mean over all other keys and where every earlier head read its part; no pattern is made but one row a head, which
`memory` shows in processes of their own. `logits` is who raised each token's logit, its forward pass included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import torch
from torch import Tensor

from benchmarks.measure import in_turn, peak_megabytes, ratio
from tracer.analysis.cell_moves import moves
from tracer.analysis.logit_attribution import logit_attribution, logit_lens
from tracer.analysis.survey import AT_ONCE, survey
from tracer.analysis.why import cell, read_pass, why
from tracer.config import ModelConfig
from tracer.model import Transformer

DEMO = ModelConfig(n_layers=2, n_heads=4, d_model=128, n_ctx=64, d_vocab=1024)
GPT2 = ModelConfig(
    n_layers=12, n_heads=12, d_model=768, n_ctx=512, d_vocab=50257, mlp_hidden=(3072,), activation="gelu", norm="layer",
    attn_out_bias=True,
)  # fmt: skip


MIDDLE = ModelConfig(
    n_layers=4, n_heads=8, d_model=256, n_ctx=256, d_vocab=4096, mlp_hidden=(1024,), activation="gelu", norm="layer"
)
WEIGHED: dict[str, Callable[[Transformer, Tensor], object]] = {
    "forward": lambda model, tokens: model(tokens),
    "why": lambda model, tokens: why(model, tokens, model.n_layers - 1, 1, tokens.shape[1] - 1, tokens.shape[1] // 2),
    "attribution": logit_attribution, "lens": logit_lens,
    "survey": lambda model, tokens: survey(model, tokens, tokens=tokens.numel()),
}  # fmt: skip


def corpus() -> None:
    print("\na survey beside the plain forward pass over the same rows: the median of the ratios of CPU time")
    for config, rows in ((DEMO, 512), (MIDDLE, 32)):
        model, ratios = Transformer(config).eval(), []
        tokens = torch.randint(0, model.d_vocab, (rows, config.n_ctx), generator=torch.Generator().manual_seed(0))
        for _ in range(3):
            began = time.process_time()
            with torch.no_grad():
                for part in tokens.split(AT_ONCE // config.n_ctx):
                    model(part)
            plain = time.process_time() - began
            survey(model, tokens, tokens=tokens.numel())
            ratios.append((time.process_time() - began - plain) / plain)
        print(f"{f'{config.n_layers} {config.n_heads} {config.d_model} {config.n_ctx}':>28}{median(ratios):10.2f}")


def memory() -> None:
    heads = GPT2.n_layers * GPT2.n_heads
    print(f"\nMB at the peak over the model and its {heads} heads, beside their patterns by arithmetic")
    print(f"{'tokens':>28}" + "".join(f"{name:>12}" for name in ("patterns", *WEIGHED)))
    for n in (1024, 2048):
        found = [4e-6 * heads * n**2, *(_in_new_process(name, n) for name in WEIGHED)]
        print(f"{n:>28}" + "".join(f"{megabytes:12.0f}" for megabytes in found))


def _in_new_process(name: str, n: int) -> float:
    command = [sys.executable, "-m", "benchmarks.why", name, str(n)]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # else glibc's holes of freed tensors count
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return float(done.stdout.split()[-1])


@torch.no_grad()
def weigh(name: str, n: int) -> float:
    model = Transformer(replace(GPT2, n_ctx=n, d_vocab=1024)).eval()  # 2048 x 50257 logits would hide the rest
    tokens = torch.randint(0, model.d_vocab, (1, n), generator=torch.Generator().manual_seed(0))
    return peak_megabytes(lambda few: WEIGHED[name](model, tokens[:, :few]), n)


def main() -> None:
    corpus()
    print(f"\nwhy a head looks there, {torch.get_num_threads()} CPU threads: ms, the best of some rounds")
    columns = ("forward", "pass", "cell", "moves", "logits", "pass/f.", "logits/f.")
    print(f"{'layers heads width tokens':>28}" + "".join(f"{name:>10}" for name in columns) + "   sources")
    for config, rounds in ((DEMO, 20), (MIDDLE, 10), (GPT2, 4)):
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
                    "logits": lambda model=model, tokens=tokens: logit_attribution(model, tokens),
                },
                rounds,
            )
        shape = f"{config.n_layers} {config.n_heads} {config.d_model} {n}"
        row = "".join(f"{1000 * min(times):10.1f}" for times in seconds.values())
        ratios = [ratio(seconds[name], seconds["forward"]) for name in ("pass", "logits")]
        print(f"{shape:>28}{row}{ratios[0]:10.2f}{ratios[1]:10.2f}   {len(cell(found, last, 1, n - 1, n // 2))}")
    memory()


if __name__ == "__main__":
    print(weigh(sys.argv[1], int(sys.argv[2])))
