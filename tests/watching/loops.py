"""The batches that somebody's training loop goes through, the same every time."""

from collections.abc import Iterator

import torch
from torch import Tensor

STEPS = 60


def batches(n: int = STEPS, size: int = 4, d_vocab: int = 20) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(3)
    for _ in range(n):
        yield torch.randint(0, d_vocab, (size, 17), generator=generator)
