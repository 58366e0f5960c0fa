"""See and edit every attention of a model that nobody prepared.

1. A `TorchFunctionMode` is handed every torch function that runs inside it, in its thread only.
2. Fused attention is a call of F.scaled_dot_product_attention: q, k, v, mask and scale are its arguments.
   nn.MultiheadAttention hides it behind F.multi_head_attention_forward, which is torch's own code run again with the
   mode on.
3. Attention by hand is a softmax over the last axis whose result, perhaps after a cast or a dropout, is multiplied with
   v by matmul, bmm or einsum: that result is the pattern, whatever scores, biases or caps it came from.
4. `tracer.interventions.edits` then speaks as it does to our own models: taps
   `blocks.<layer>.attn.hook_q|k|v|z|pattern`, visitors.
   When nobody asks for anything, the model's own call runs with its own arguments, to the bit.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tracer.heads.call import AttentionCall
from tracer.interventions.edits import Active, active
from tracer.watching.causality import is_causal
from tracer.watching.checks import check
from tracer.watching.discovered import DiscoveredAttention, edits_of
from tracer.watching.layout import Layout
from tracer.watching.query_blocks import OpenParts, Parts, first_part, joined
from tracer.watching.refusals import CannotWatch
from tracer.watching.sites import CROSS, Key, Layer, Sites
from tracer.watching.softmaxes import Softmaxes
from tracer.watching.taps import Taps

# torch's own function, in which nothing asks for a mode again: else it would come back here before its first line
_mha = F.multi_head_attention_forward
_MHA = types.FunctionType(
    _mha.__code__, {**vars(F), "has_torch_function": lambda _: False}, _mha.__name__, _mha.__defaults__
)
_MHA.__kwdefaults__ = _mha.__kwdefaults__
_MHA_ARGUMENTS = inspect.signature(_mha)

PRODUCTS = {"matmul", "__matmul__", "bmm", "einsum"}


class AttentionInterceptor(TorchFunctionMode):
    """Inside `with AttentionInterceptor(sites, map):` every attention of the watched model passes through `attend`."""

    def __init__(self, sites: Sites, found: DiscoveredAttention) -> None:
        super().__init__()
        self.sites, self.map = sites, found
        self.tokens: Tensor | None = None
        """Token ids of the current forward pass: the first matrix of integers that was looked up in an embedding, or
        what was looked up in that one since."""
        self.d_vocab: int | None = None
        self.cached = False
        """Does this forward pass go on from keys and values kept of earlier ones? Only causal attention can."""
        self.showing = False
        """Are visitors being shown an attention of this model now, and not of another?"""
        self.wants_z = False
        """Is a visitor's z of use: to check the call, or as what an edited call gives?"""
        self._table: Tensor | None = None
        self._soft = Softmaxes()
        self._in_mha: tuple[int, bool, bool] | None = None
        """Inside nn.MultiheadAttention: its heads; are keys of other tokens than queries? are queries some of them?"""
        self._open = OpenParts()
        sites.end = self._close

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.sites.running:
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._fused(func, args, kwargs)
        if func is F.multi_head_attention_forward:
            return self._multi_head(args, kwargs)
        if func is F.embedding:
            self._look_up(args, kwargs)
        name = getattr(func, "__name__", "")
        if name == "softmax":
            return self._softmax(func, args, kwargs)
        if len(self._soft):
            if name in PRODUCTS:
                return self._product(func, name, args, kwargs)
            result = func(*args, **kwargs)
            self._soft.follow(name, args[0] if args else kwargs.get("input"), result)
            return result
        return func(*args, **kwargs)

    def _look_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = args[0] if args else kwargs["input"]
        table = args[1] if len(args) > 1 else kwargs["weight"]
        if ids.ndim == 2 and (self.tokens is None or table is self._table):  # a decoder looks up in its encoder's table
            self.tokens, self._table, self.d_vocab = ids, table, table.shape[0]

    def _multi_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _MHA_ARGUMENTS.bind(*args, **kwargs).arguments
        query, key = given["query"], given["key"]
        some = query is not key and query.untyped_storage().data_ptr() == key.untyped_storage().data_ptr()
        outer, self._in_mha = self._in_mha, (given["num_heads"], query is not key and not some, some)
        try:
            with self:
                return _MHA(*args, **kwargs)
        finally:
            self._in_mha = outer

    # Attention through the fused kernel.

    def _fused(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        q, k, v, mask, dropout, causal, scale = _sdpa_arguments(*args, **kwargs)
        if q.ndim not in (3, 4) or k.ndim != q.ndim:
            self.map.problem(f"{self.sites.name()}: F.scaled_dot_product_attention takes 3 or 4 axes, not {q.ndim}")
            return func(*args, **kwargs)
        heads_out = q.ndim == 3  # no axis of heads: one head
        if heads_out and self._folded(len(q)):
            return func(*args, **kwargs)
        q, k, v = (_heads_last(t) for t in (q, k, v))
        mask = _four_axes(mask, heads_out)
        packed = self._packed(q, k)
        if packed:  # what Hugging Face does to one query: the heads that share a key head stand in for positions
            q = rearrange(q, "batch group kv d -> batch 1 (kv group) d")
            if mask is not None and mask.shape[1] > 1:
                mask = rearrange(mask, "batch kv group key -> batch (kv group) 1 key")
        call = AttentionCall(0, v, q, k, q.shape[-1] ** -0.5 if scale is None else scale, causal, mask)
        if self._over_positions(call):
            return func(*args, **kwargs)
        kept: list[Tensor] = []

        def own() -> Tensor:
            if not kept:
                kept.append(func(*args, **kwargs))
            z = _heads_last(kept[0])
            return rearrange(z, "batch group kv d -> batch 1 (kv group) d") if packed else z

        z = self._attend(call, own, dropout)
        if z is None:
            return kept[0]
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

    # Attention by hand.

    def _softmax(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.ndim in (3, 4) and result.is_floating_point():
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
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
        soft = self._soft[operands[at]]
        weights = operands[at] if soft.weights is None else soft.weights
        layout = Layout.of(equation, operands, at, self._fold(operands[at], weights), self._batch())
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
        call = AttentionCall(
            0, layout.v(operands[1 - at]), weights=layout.weights(weights), causal=False, largest=largest, seen=seen
        )
        if self._over_positions(call):
            return func(*args, **kwargs)
        kept: list[Tensor] = []

        def own() -> Tensor:
            if not kept:
                kept.append(func(*args, **kwargs))
            return layout.z(kept[0])

        z = self._attend(call, own, 0.0)
        if z is None:
            return kept[0]
        return layout.back(z.to(operands[1 - at].dtype))

    def _fold(self, operand: Tensor, weights: Tensor) -> int | None:
        """Heads that are folded into the batch axis of [batch * head, query, key]; None: there is one head."""
        if operand.ndim == 4:
            return None
        if weights.ndim == 4:
            return weights.shape[1]
        return self._in_mha[0] if self._in_mha else None

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

    # Both ways.

    def here(self) -> Active | None:
        """What is in force here for this model."""
        here, mine = active(), edits_of(self.map)
        if not mine:
            return here
        here = here or Active()
        return replace(here, edits=(*here.edits, *mine))

    def _attend(self, call: AttentionCall, own: Callable[[], Tensor], dropout: float) -> Tensor | None:
        """Show the call, edit it, and return z; None: what `own` returned stands, untouched."""
        parts = self._open.parts
        if parts is None or parts.key[0] != self.sites.name() or not parts.goes_on(call):
            self._close(call)
            key, parts = self.sites.next_key(), None
            total = None if key in self.map.single or self._crosses(key) else first_part(call, self._positions())
            if total is not None:
                self._open.parts = parts = Parts(key, total)
            if key not in self.map.kinds:
                self.map.add(key, self._layer(key, call, total is not None), self.sites.input())
        else:
            key = parts.key
        here = self.here()
        if here is None:
            own()
            z = None
        elif call.n_heads != (n := self.map.kinds[key].n_heads):
            text = f"{key[0]}: {call.n_heads} heads now and {n} before, so that it cannot be known which is which"
            if here.edits:
                raise CannotWatch(text)
            self.map.problem(text)
            own()
            z = None
        elif parts is not None:
            z = self._attend_part(parts, self._taps(here, key), own)
        else:
            z = self._attend_whole(key, here, call, own, dropout)
        if parts is not None:
            parts.calls.append(call)
            if parts.complete:
                self._close()
        return z

    def _attend_whole(
        self, key: Key, here: Active, call: AttentionCall, own: Callable[[], Tensor], dropout: float
    ) -> Tensor | None:
        taps, call = self._taps(here, key), self._placed(key, here, call)
        edited = taps.inputs(call)
        changed = edited is not call
        unchecked = bool(here.visitors) and key not in self.map.checked and not changed
        self.wants_z = (changed or unchecked) and not torch.is_grad_enabled()
        z = self._show(here, edited)
        if unchecked:
            check(self.map, key, call, z if self.wants_z else None, own, dropout)
        if taps.wants("pattern"):
            weights = edited.pattern()
            pattern = taps.at("pattern", weights)
            if changed or pattern is not weights:
                z, changed = _values(pattern, edited.v), True
        if changed and z is None:
            z = _values(edited.pattern(), edited.v)
        elif not changed:
            z = own()
        assert z is not None
        after = taps.at("z", z)
        return None if after is z and not changed else after

    def _attend_part(self, parts: Parts, taps: Taps, own: Callable[[], Tensor]) -> Tensor | None:
        """Edit z of one block of queries; what is shown is the whole, when its last block has come."""
        if any(taps.edits(what) for what in ("q", "k", "v", "pattern")):
            raise CannotWatch(
                f"{parts.key[0]} computes its attention in blocks of queries: z of its heads can be changed (ablate), "
                f"their q, k, v and patterns cannot"
            )
        z = own()
        after = replace(taps, rows=(parts.queries, parts.total)).at("z", z)
        return None if after is z else after

    def _close(self, then: AttentionCall | None = None) -> None:
        """No further block comes: show the whole, or say why its blocks are none; `then` is what came instead."""
        parts, self._open.parts = self._open.parts, None
        if parts is None or not parts.calls:
            return
        key, call = parts.key, parts.calls[0]
        if parts.complete:
            call = joined(parts.calls)
        elif len(parts.calls) > 1 or then is not None and key[0] == self.sites.name() and parts.shares(then):
            self.map.problem(
                f"{key[0]} computes its attention in blocks of queries, and it cannot be known how these make up one "
                f"attention: give each block all keys and a mask, or all keys up to its last query"
            )
            return
        else:
            self.map.single.add(key)
        self.map.revise(key, self._layer(key, call))
        here = self.here()
        if here is None or call.n_heads != self.map.kinds[key].n_heads:
            return
        taps, call = self._taps(here, key), self._placed(key, here, call)
        taps.inputs(call)
        if taps.wants("pattern"):
            taps.at("pattern", call.pattern())
        if here.visitors:
            self.wants_z = False
            self._show(here, call)
            if key not in self.map.checked:
                check(self.map, key, call, None, None, 0.0)

    def _taps(self, here: Active, key: Key) -> Taps:
        place, n = self.map.places[key], self.map.kinds[key].n_heads
        total = self.map.layers[place.layer].n_heads
        return Taps(here, place.layer, place.offset, total, n == total)

    def _placed(self, key: Key, here: Active, call: AttentionCall) -> AttentionCall:
        """The call as one of a layer: where its heads stand, and whether it looks ahead, if somebody asks."""
        place = self.map.places[key]
        causal = call.causal or bool(here.visitors) and self.map.kinds[key].kind == "self" and is_causal(call)
        return replace(call, layer=place.layer, first_head=place.offset, causal=causal)

    def _show(self, here: Active, call: AttentionCall) -> Tensor | None:
        self.showing = True
        try:
            return here.visit(call)
        finally:
            self.showing = False

    def _crosses(self, key: Key) -> bool:
        """Can its keys be no more than those of its own queries, as far as names and arguments say?"""
        if self._in_mha is not None:
            return not self._in_mha[2]
        return self.cached or any(word in key[0].lower() for word in CROSS)

    def _positions(self) -> int | None:
        """Positions of the sequence that the running module works on, as far as anything says so."""
        x = self.sites.input()
        if self._in_mha is not None:
            return None
        if not isinstance(x, Tensor) or x.ndim not in (2, 3):
            x = self.tokens
        return None if x is None else x.shape[1]

    def _layer(self, key: Key, call: AttentionCall, part: bool = False) -> Layer:
        """part: a block of its queries, so that it is not known yet whether it looks ahead."""
        _, query_pos, key_pos = call.shape
        named = any(word in key[0].lower() for word in CROSS)
        cross = self._in_mha[1] if self._in_mha else named or query_pos != key_pos and not self.cached
        causal = not cross and (query_pos != key_pos or is_causal(call, but_for_padding=True))
        return Layer(key[0], "cross" if cross and not part else "self", causal and not part, call.n_heads)


def _values(pattern: Tensor, v: Tensor) -> Tensor:
    """z from a pattern [batch head query_pos key_pos] and v, whose heads may be shared by groups."""
    groups = pattern.shape[1] // v.shape[2]
    v = repeat(v, "batch key_pos kv_head d -> batch (kv_head groups) key_pos d", groups=groups)
    return rearrange(pattern.to(v.dtype) @ v, "batch head query_pos d -> batch query_pos head d")


def _sdpa_arguments(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, float, bool, float | None]:  # fmt: skip
    return query, key, value, attn_mask, dropout_p, is_causal, scale


def _heads_last(x: Tensor) -> Tensor:
    """[batch head pos d] or [batch pos d] to [batch pos head d]."""
    return x.unsqueeze(2) if x.ndim == 3 else rearrange(x, "batch head pos d -> batch pos head d")


def _four_axes(mask: Tensor | None, no_heads: bool) -> Tensor | None:
    """A mask as [batch head query_pos key_pos]; where q has no axis of heads, one of three axes has none either."""
    if mask is None or mask.ndim == 4:
        return mask
    return mask.unsqueeze(1) if mask.ndim == 3 and no_heads else mask.view((1,) * (4 - mask.ndim) + tuple(mask.shape))
