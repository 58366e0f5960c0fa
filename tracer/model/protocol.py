"""What the analyses ask of a model, ours or another's: its size, logits under the edits in force, weights of heads."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tracer.interventions.named_hooks import FwdHooks
from tracer.model.residual_stream import Into, ResidualStream

Reuse = Literal["shared", "begins", ""]
"""What passes have in common that differ from some layer on: their batch, of many sets of heads; the blocks before it,
as a pass may begin at a later one (`beginning`); nothing."""


class HeadWeights(NamedTuple):
    """As in `tracer.measures.composition`: rows multiply from the left. Biases are left out."""

    W_Q: Float[Tensor, "layer head d_model d_head"]
    W_K: Float[Tensor, "layer head d_model d_head"]
    W_V: Float[Tensor, "layer head d_model d_head"]
    W_O: Float[Tensor, "layer head d_head d_model"]
    W_E: Float[Tensor, "d_vocab d_model"]
    W_U: Float[Tensor, "d_model d_vocab"] | None
    """None where an MLP makes the logits."""


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
    def heads_of_layers(self) -> list[int]:
        """How many there are, layer by layer."""
        ...

    @property
    def n_ctx(self) -> int: ...

    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]: ...

    @property
    def taps(self) -> list[str]:
        """The names that `run_with_hooks` takes."""
        ...

    def run_with_hooks(
        self, tokens: Int[Tensor, "batch pos"], fwd_hooks: FwdHooks = ()
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """The logits with function(activation, hook) called at each named tap, as in transformer-lens."""
        ...

    def head_weights(self) -> HeadWeights:
        """ValueError, saying what is missing, where heads cannot be told apart in them."""
        ...

    @property
    def why_no_stream(self) -> str:
        """Why `residual_stream` cannot be said; empty where it can."""
        ...

    def residual_stream(self, tokens: Int[Tensor, "batch pos"]) -> ResidualStream:
        """A forward pass under the edits in force, as sums; ValueError, with the reason, where it cannot be said."""
        ...

    @property
    def why_no_mlps(self) -> str:
        """Why MLPs cannot be switched off; empty where they can."""
        ...

    @property
    def why_not_now(self) -> str:
        """Why two passes on the same tokens may differ, and what to do; empty where none do."""
        ...

    @property
    def reuse(self) -> Reuse: ...

    def input_taps(self, layer: int) -> dict[Into, str] | None:
        """The taps of the queries, keys and values of each head; None where heads share them, or may."""
        ...

    def logits(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_vocab"]:
        """From what leaves the last block to the next token's logits: the final norm and the unembedding."""
        ...


def check_tokens(tokens: object, n_ctx: int) -> None:
    """ValueError for what is no batch of ids, is empty, or is longer than the context."""
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        what = f"of shape {list(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens are a tensor of ids [batch pos] (model.to_tokens or model.tokenizer), not {what}")
    if not tokens.numel():
        raise ValueError(f"tokens are empty, {list(tokens.shape)}: give at least one prompt of at least one token")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype is torch.bool:
        raise ValueError(f"tokens are ids, whole numbers, not {tokens.dtype}: tokens.long()")
    if tokens.shape[1] > n_ctx:
        raise ValueError(f"the input has {tokens.shape[1]} tokens, the context holds n_ctx={n_ctx}")


def check_vocabulary(tokens: Tensor, d_vocab: int) -> None:
    """ValueError that names a token outside the vocabulary. Waits for a GPU."""
    low, high = (int(tokens.min()), int(tokens.max())) if tokens.numel() else (0, 0)
    if low < 0 or high >= d_vocab:
        raise ValueError(f"token {low if low < 0 else high} is outside the vocabulary: 0 to {d_vocab - 1}")


def device_of(model: nn.Module) -> torch.device:
    """Where tokens go: to the first weights that are there, as those which a `device_map` offloads are nowhere."""
    return next((weight.device for weight in model.parameters() if not weight.is_meta), torch.device("cpu"))
