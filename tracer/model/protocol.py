"""What the analyses ask of a model, ours or another's: a size, and logits under the edits in force."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class HeadModel(Protocol):
    """A causal language model whose heads can be seen and switched off from any thread.

    Its forward passes obey `tracer.interventions.edits` at the taps `blocks.<layer>.attn.hook_q|k|v|z|pattern`,
    and show every attention to `tracer.interventions.edits.visiting`.
    """

    d_vocab: int

    @property
    def n_layers(self) -> int: ...

    @property
    def n_heads(self) -> int:
        """Of the widest layer."""
        ...

    @property
    def n_ctx(self) -> int: ...

    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]: ...
