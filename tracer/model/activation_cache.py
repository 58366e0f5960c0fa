"""What transformer-lens keeps of a forward pass, for this model."""

from __future__ import annotations

from typing import Any

from einops import einsum
from torch import Tensor

from tracer.config import ModelConfig
from tracer.model.layers import Norm
from tracer.model.lens import ActivationCache


class Cache(ActivationCache):
    """transformer-lens's cache, which refuses to decompose a stream that is no sum: its own answer is wrong."""

    model: Any
    """The Transformer whose pass it was."""

    def _refuse_unless_sum(self, what: str) -> None:
        config: ModelConfig = self.model.config
        if not config.residual or (config.norm != "none" and config.norm_position == "post"):
            raise ValueError(
                f"{what} needs a residual stream that is the sum of its parts; here residual={config.residual} and "
                f"norm_position={config.norm_position}, so the parts do not add up to it"
            )

    def __init__(self, seen: dict[str, Tensor], model: Any, has_batch_dim: bool = True) -> None:
        super().__init__(seen, model, has_batch_dim)
        self.has_pos_embed &= model.config.positions != "shortformer"  # it feeds q and k, never the stream

    def apply_ln_to_stack(self, residual_stack: Tensor, layer: int | None = None, *args: Any, **kwargs: Any) -> Any:
        if layer in (None, -1, self.model.cfg.n_layers) and not isinstance(self.model.ln_final, Norm):
            kwargs["recompute_ln"] = True  # through ln_final, the identity: there is no scale to look up
        return super().apply_ln_to_stack(residual_stack, layer, *args, **kwargs)

    def stack_head_results(self, *args: Any, **kwargs: Any) -> Any:
        if not self.model.config.attn_out:
            raise ValueError("stack_head_results needs W_O; without it a head writes hook_z to its own columns")
        self._gate_results()
        return super().stack_head_results(*args, **kwargs)

    def compute_head_results(self) -> None:
        self._gate_results()
        super().compute_head_results()

    def _gate_results(self) -> None:
        """Results behind the output gate, which transformer-lens's own, z W_O, would leave out."""
        for layer, block in enumerate(self.model.blocks if self.model.config.attn_gate else ()):
            z = self["z", layer] * self["gate", layer, "attn"]
            self.cache_dict[f"blocks.{layer}.attn.hook_result"] = einsum(z, block.attn.W_O, "... h d, h d m -> ... h m")

    def accumulated_resid(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unless_sum("accumulated_resid")
        return super().accumulated_resid(*args, **kwargs)

    def decompose_resid(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unless_sum("decompose_resid")
        return super().decompose_resid(*args, **kwargs)

    def get_full_resid_decomposition(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unless_sum("get_full_resid_decomposition")
        return super().get_full_resid_decomposition(*args, **kwargs)

    def logit_attrs(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unless_sum("logit_attrs")
        return super().logit_attrs(*args, **kwargs)
