"""See and edit every attention of a model that nobody prepared.

1. A `TorchFunctionMode` is handed every torch function that runs inside it, in its thread only.
2. Fused attention is a call of F.scaled_dot_product_attention: q, k, v, mask and scale are its arguments.
   nn.MultiheadAttention hides it behind F.multi_head_attention_forward, which is torch's own code run again with the
   mode on. Flex attention is a call of torch's operator (`flex`).
3. Attention by hand is a softmax over the last axis whose result, perhaps after a cast or a dropout, is multiplied with
   v by matmul, bmm or einsum: that result is the pattern, whatever scores, biases or caps it came from.
4. `tracer.interventions.edits` then speaks as it does to our own models: taps
   `blocks.<layer>.attn.hook_q|k|v|z|pattern`, visitors.
   Modules that a person declared to be attention are asked by their function (`declarations`).
   When nobody asks for anything, the model's own call runs with its own arguments, to the bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tracer.heads.call import AttentionCall
from tracer.hooks.axis_order import AxisOrder
from tracer.hooks.declared_calls import DeclaredCalls
from tracer.hooks.discovered import DiscoveredAttention
from tracer.hooks.flex import Normalisers, blocks_fit, call_of, is_flex
from tracer.hooks.inputs import has_values
from tracer.hooks.kernels import MHA, MultiHead, four_axes, heads_last, sdpa_arguments
from tracer.hooks.sites import Sites
from tracer.hooks.softmaxes import Softmaxes
from tracer.interventions.edits import active

PRODUCTS = {"matmul", "__matmul__", "bmm", "einsum"}


class AttentionInterceptor(DeclaredCalls, TorchFunctionMode):
    """Inside `with AttentionInterceptor(sites, map):` every attention of the watched model passes through `attend`, or
    through `declared`."""

    def __init__(
        self, sites: Sites, found: DiscoveredAttention, say: Callable[[str], None] | None = None, asks: bool = True
    ) -> None:  # fmt: skip
        super().__init__(sites, found, say, asks)
        self.d_vocab: int | None = None
        self._table: Tensor | None = None
        self._soft = Softmaxes()
        self._lse = Normalisers()

    def __enter__(self) -> AttentionInterceptor:
        self.sites.listeners.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:  # pyrefly: ignore[bad-override]
        self.sites.listeners.pop()
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.sites.running:
            self.map.blind |= self.sites.blind
            return func(*args, **kwargs)
        if self.passes_by:
            if func is F.embedding and not self._asking:
                self._look_up(args, kwargs)
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._fused(func, args, kwargs)
        if func is F.multi_head_attention_forward:
            return self._multi_head(args, kwargs)
        if is_flex(func):
            return self._flex(func, args, kwargs)
        if func is F.embedding:
            self._look_up(args, kwargs)
        name = getattr(func, "__name__", "")
        result = self._by_hand(func, name, args, kwargs)
        if len(self._lse) and self._lse.used(name, args, result):
            self.map.problem(
                f"{self.sites.name()}: what flex_attention returned is changed with its lse (a sink, or parts that are "
                f"merged), so that its weights are not the pattern; write it as one softmax, or load a Hugging Face "
                f"model with attn_implementation='eager'"
            )
        return result

    def _by_hand(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "softmax":
            return self._softmax(func, args, kwargs)
        if not len(self._soft):
            return func(*args, **kwargs)
        if name in PRODUCTS:
            return self._product(func, name, args, kwargs)
        result = func(*args, **kwargs)
        self._soft.follow(name, args[0] if args else kwargs.get("input"), result)
        return result

    def _look_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = args[0] if args else kwargs["input"]
        table = args[1] if len(args) > 1 else kwargs["weight"]
        again = table is self._table  # a decoder looks up in its encoder's table
        if ids.ndim != 2 or not has_values(ids):
            return
        if self.tokens is None or again or self._were_positions(self.tokens, ids):
            self.tokens, self._table, self.d_vocab = ids, table, table.shape[0]

    def _were_positions(self, before: Tensor, ids: Tensor) -> bool:
        """Were positions looked up before the tokens, which are what the model was called with?"""
        given = self.sites.given
        return before.shape[1] > 1 and not given(before) and given(ids) and bool((before.diff() == 1).all())

    def _multi_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer, self.in_mha = self.in_mha, MultiHead.of(args, kwargs)
        try:
            with self:
                return MHA(*args, **kwargs)
        finally:
            self.in_mha = outer

    # Attention through the fused kernel.

    def _fused(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        q, k, v, mask, dropout, causal, scale = sdpa_arguments(*args, **kwargs)
        if q.ndim not in (3, 4) or k.ndim != q.ndim:
            self.map.problem(f"{self.sites.name()}: F.scaled_dot_product_attention takes 3 or 4 axes, not {q.ndim}")
            return func(*args, **kwargs)
        if not (has_values(q) and has_values(k)):
            self.sites.next_key()
            return func(*args, **kwargs)
        heads_out = q.ndim == 3  # no axis of heads: one head
        if heads_out and self._folded(len(q)):
            return func(*args, **kwargs)
        q, k, v = (heads_last(t) for t in (q, k, v))
        mask = four_axes(mask, heads_out)
        packed = self._packed(q, k)
        if packed:  # what Hugging Face does to one query: the heads that share a key head stand in for positions
            q = rearrange(q, "batch group kv d -> batch 1 (kv group) d")
            if mask is not None and mask.shape[1] > 1:
                mask = rearrange(mask, "batch kv group key -> batch (kv group) 1 key")
        call = AttentionCall(0, v, q, k, q.shape[-1] ** -0.5 if scale is None else scale, causal, mask)
        if self.in_mha and self.in_mha.extra:  # the flag counts them as later positions: a mask says it as it is
            call = replace(call, mask=call.full_mask(), causal=False, extra=self.in_mha.extra)
        if self._over_positions(call):
            return func(*args, **kwargs)
        result = functools.cache(lambda: func(*args, **kwargs))

        def own() -> Tensor:
            z = heads_last(result())
            return rearrange(z, "batch group kv d -> batch 1 (kv group) d") if packed else z

        z = self.attend(call, own, dropout)
        if z is None:
            return result()
        z = z.to(v.dtype)
        if packed:
            return rearrange(z, "batch 1 (kv group) d -> batch kv group d", kv=k.shape[2])
        return z.squeeze(2) if heads_out else rearrange(z, "batch pos head d -> batch head pos d")

    def _packed(self, q: Tensor, k: Tensor) -> bool:
        """Are several queries of a head really several heads of the one position that was given?"""
        return (
            self.cached and self.tokens is not None and self.tokens.shape[1] == 1 < q.shape[1]
            and len(self.tokens) == len(q) and q.shape[2] == k.shape[2]
        )  # fmt: skip

    def _flex(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        q, k, v, score_mod, blocks, *others = args
        if kwargs or self.here() is None or not (has_values(q) and has_values(k)):
            self.sites.next_key()
            return func(*args, **kwargs)
        if not blocks_fit(func, q, k, v, score_mod, blocks, *others):
            self.map.problem(
                f"{self.sites.name()}: the blocks of its BlockMask hide other keys than its mask_mod, and only a "
                f"compiled kernel obeys them: make it by create_block_mask"
            )
        result = functools.cache(lambda: func(*args))
        z = self.attend(call_of(func, *args), lambda: heads_last(result()[0]), 0.0)
        self._lse.begin(result()[1])
        return result() if z is None else (rearrange(z, "batch pos head d -> batch head pos d"), *result()[1:])

    # Attention by hand.

    def _softmax(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.ndim in (3, 4) and result.is_floating_point() and has_values(result):
            axis = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else None))
            self.map.softmaxes.add(self.sites.name())
            axis = None if axis is None else axis % result.ndim
            here = active()
            looked_at = here is not None and bool(here.visitors)
            self._soft.begin(result, axis, (args[0] if args else kwargs["input"]) if looked_at else None)
        return result

    def _product(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        equation = args[0] if name == "einsum" else None
        operands = list(args[1:] if equation is not None else args)
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
        at = next((i for i, x in enumerate(operands) if x in self._soft), None)
        if at is None or len(operands) != 2 or (equation is None and at != 0) or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        soft = self._soft.at_values(operands[at])
        weights = operands[at] if soft.weights is None else soft.weights
        layout = AxisOrder.of(equation, operands, at, self._fold(operands[at], weights), self._batch())
        if layout is None:
            return func(*args, **kwargs)
        if soft.axis != layout.w_axes.index("k"):
            self.map.problem(
                f"{self.sites.name()}: softmax runs over an axis that is not the keys, so the attention of a query "
                f"does not sum to 1; softmax(dim=-1) is meant for scores [..., query, key]"
            )
            return func(*args, **kwargs)
        if not layout.has_heads and layout.fold is None and self._folded(len(operands[at])):
            return func(*args, **kwargs)
        largest, seen = (None if x is None else layout.weights(x) for x in (soft.largest, soft.seen))
        weights, v = layout.weights(weights), layout.v(operands[1 - at])
        extra = self.in_mha.extra if self.in_mha else ()
        if soft.cut is not None:  # a key without a value: the same as one whose value is 0, behind the others
            n = weights.shape[3] - v.shape[1]
            weights, extra = weights if soft.cut == "last" else weights.roll(-n, 3), ("sink",) * n
            v = F.pad(v, (0, 0, 0, 0, 0, n))
        call = AttentionCall(0, v, weights=weights, causal=False, largest=largest, seen=seen, extra=extra)
        if self._over_positions(call):
            return func(*args, **kwargs)
        result = functools.cache(lambda: func(*args, **kwargs))
        z = self.attend(call, lambda: layout.z(result()), 0.0)
        return result() if z is None else layout.back(z.to(operands[1 - at].dtype))

    def _fold(self, operand: Tensor, weights: Tensor) -> int | None:
        """Heads that are folded into the batch axis of [batch * head, query, key]; None: there is one head."""
        if operand.ndim == 4:
            return None
        if weights.ndim == 4:
            return weights.shape[1]
        return self.in_mha.n_heads if self.in_mha else None

    def _batch(self) -> int | None:
        """Sequences of this forward pass, as far as anything says so."""
        if self.tokens is not None:
            return len(self.tokens)
        x = self.sites.input()
        return len(x) if isinstance(x, Tensor) and x.ndim == 3 else None

    def _folded(self, n: int) -> bool:
        """Are n scores [query key] more than there are sequences? Whose heads they are, nobody can know."""
        x = self.tokens if self.tokens is not None else self.sites.input()
        if not isinstance(x, Tensor) or x.ndim < 2 or n in x.shape[:2]:
            return False
        self.map.problem(
            f"{self.sites.name()}: {n} patterns [query, key] for an input {list(x.shape)}: heads are folded into the "
            f"batch axis, in an order that cannot be known; write the softmax over scores [batch, head, query, key]"
        )
        return True

    def _over_positions(self, call: AttentionCall) -> bool:
        """Is this a softmax at every position by itself (a mixture of streams, of experts, of heads), so that what
        looks like heads are the positions?"""
        x = self.tokens if self.tokens is not None else self.sites.input()
        if not isinstance(x, Tensor) or x.ndim not in (2, 3):
            return False
        return tuple(x.shape[:2]) == (call.shape[0], call.n_heads) and x.shape[1] not in call.shape[1:]
