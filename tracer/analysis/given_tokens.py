"""The tokens that a person names to measure a run on: an array, or a file of ids (.npy) or of text."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tracer.analysis.eval_sequences import Sequences
from tracer.data.token_files import rows
from tracer.interventions.replacements import MODES
from tracer.model.protocol import check_vocabulary

if TYPE_CHECKING:
    from tracer.store import Run

Given = Tensor | np.ndarray | str | Path
"""Ids [sequence pos], or a file: .npy of such, or a text, which the run's tokenizer cuts into rows of its context."""


@dataclass(frozen=True)
class GivenTokens:
    """One batch to measure on, as `tracer.analysis.eval_sequences.Batches`: mean and resample take from its others."""

    tokens: Tensor
    name: str
    """The file's, or "tokens"."""

    @property
    def told(self) -> str:
        n, pos = self.tokens.shape
        return f"{self.name}: {n} sequences of {pos} tokens, sha256 {self.hash[:16]}"

    @property
    def hash(self) -> str:
        """Of the ids and their shape, wherever they came from."""
        return sha256(repr(tuple(self.tokens.shape)).encode() + self.tokens.numpy().tobytes()).hexdigest()

    @property
    def modes(self) -> list[str]:
        """Those that anything can be measured with."""
        return [mode for mode in MODES if mode == "zero" or len(self.tokens) > 1]

    def sequences(self, mode: str = "zero") -> list[Sequences]:
        """ValueError where a mode takes from other sequences, and there are none."""
        if mode not in self.modes:
            raise ValueError(f"{self.name} holds 1 sequence, and {mode} takes what stands in from others")
        return [Sequences("tokens", self.tokens, slice(None))]

    def reference(self, name: str, mode: str) -> Tensor | None:
        """The sequences themselves."""
        return None


def given_tokens(tokens: Given, run: Run) -> GivenTokens:
    """Tokens that the run's model can read; ValueError, naming file and values, for others."""
    name = Path(tokens).name if isinstance(tokens, str | Path) else "tokens"
    about = run.about
    if isinstance(tokens, str | Path):
        tokens = rows(Path(tokens), lambda: run.tokenizer, about.n_ctx, about.bos)
    found = torch.as_tensor(tokens)
    if found.ndim != 2 or not found.numel() or found.is_floating_point() or found.dtype is torch.bool:
        raise ValueError(f"{name} must hold whole numbers [sequence pos], not {found.dtype} {list(found.shape)}")
    found = found.cpu().long().contiguous()
    if about.n_ctx is not None and found.shape[1] > about.n_ctx + 1:
        raise ValueError(f"{name} has sequences of {found.shape[1]} tokens, the context holds n_ctx={about.n_ctx}")
    if about.d_vocab is not None:
        check_vocabulary(found, about.d_vocab)
    return GivenTokens(found, name)
