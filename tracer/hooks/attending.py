"""What is done with an attention once it is found: it gets a place, is shown to visitors, edited and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from tracer.heads.call import AttentionCall, values
from tracer.heads.definitions import scores
from tracer.heads.masks import NO_KEY
from tracer.hooks.checks import check
from tracer.hooks.discovered import DiscoveredAttention, edits_of, held_of
from tracer.hooks.kernels import MultiHead
from tracer.hooks.look_ahead import is_causal
from tracer.hooks.query_blocks import OpenParts, QueryBlocks, first_part, joined
from tracer.hooks.refusals import CannotWatch
from tracer.hooks.sites import CROSS, Key, Layer, Sites
from tracer.hooks.taps import Taps
from tracer.interventions.edits import Active, active
from tracer.interventions.own_clamps import OwnClamp


def _own_pattern(call: AttentionCall) -> Tensor:
    """That of one head, [batch query_pos key_pos], through which gradients flow."""
    if call.weights is not None:
        return call.weights[:, 0]
    assert call.q is not None and call.k is not None
    found = scores(call.q, call.k, scale=call.scale, causal=False, mask=call.full_mask())[:, 0]
    return found.softmax(-1).masked_fill(found.amax(-1, keepdim=True) < NO_KEY, 0)


class Attending:
    """The attentions of one model, in the order in which they come."""

    def __init__(self, sites: Sites, found: DiscoveredAttention) -> None:
        super().__init__()
        self.sites, self.map = sites, found
        self.tokens: Tensor | None = None
        """Token ids of the current forward pass: the first matrix of integers that was looked up in an embedding, but
        for positions, or what was looked up in that one since."""
        self.cached = False
        """Does this forward pass go on from keys and values kept of earlier ones? Only causal attention can."""
        self.showing = False
        """Are visitors being shown an attention of this model now, and not of another?"""
        self.wants_z = False
        """Is a visitor's z of use: to check the call, or as what an edited call gives?"""
        self.in_mha: MultiHead | None = None
        """The nn.MultiheadAttention that runs now."""
        self._open = OpenParts()
        sites.end = self._close

    def here(self) -> Active | None:
        """What is in force here for this model."""
        here, mine = active(), edits_of(self.map)
        if not mine:
            return here
        here = here or Active()
        return replace(here, edits=(*here.edits, *mine))

    def attend(self, call: AttentionCall, own: Callable[[], Tensor], dropout: float) -> Tensor | None:
        """Show the call, edit it, and return z; None: what `own` returned stands, untouched."""
        parts = self._open.parts
        if parts is None or parts.key[0] != self.sites.name() or not parts.goes_on(call):
            self._close(call)
            key, parts = self.sites.next_key(), None
            total = None if key in self.map.single or self._crosses(key) else first_part(call, self._positions())
            if total is not None:
                self._open.parts = parts = QueryBlocks(key, total)
            if key not in self.map.kinds:
                self.map.add(key, self._layer(key, call, total is not None), self.sites.input())
        else:
            key = parts.key
        here, held = self.here(), self._held(key, call)
        if held and (parts is not None or call.n_heads != self.map.kinds[key].n_heads):
            raise CannotWatch(f"{key[0]} computes its attention in blocks of queries: no clamp can be held there")
        if held:
            return self._attend_held(key, here or Active(), call, own, dropout, held)
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
        known = key in self.map.checked and call.weights is None
        unchecked = bool(here.visitors) and not known and not changed
        self.wants_z = (changed or unchecked) and not torch.is_grad_enabled()
        z = self._show(here, edited)
        if unchecked:
            check(self.map, key, call, z if self.wants_z else None, own, dropout)
        if taps.wants("pattern"):
            weights = edited.pattern()
            pattern = taps.at("pattern", weights)
            if changed or pattern is not weights:
                z, changed = values(pattern, edited.v), True
        if changed and z is None:
            z = values(edited.pattern(), edited.v)
        elif not changed:
            z = own()
        assert z is not None
        after = taps.at("z", z)
        return None if after is z and not changed else after

    def _held(self, key: Key, call: AttentionCall) -> list[OwnClamp]:
        """The clamps of the layer of this attention, of the heads that it has."""
        if not (held := held_of(self.map)):
            return []
        place = self.map.places[key]
        here = {*range(place.offset, place.offset + call.n_heads)}
        return [one for one in held if one.clamp.layer == place.layer and {*(one.heads or here)} & here]

    def _attend_held(
        self, key: Key, here: Active, call: AttentionCall, own: Callable[[], Tensor], dropout: float,
        held: list[OwnClamp],
    ) -> Tensor:  # fmt: skip
        """z with clamps in force: the other heads' is that of the model's own kernel, and so are their gradients."""
        taps, call = self._taps(here, key), self._placed(key, here, call)
        if call.extra or self.map.kinds[key].kind == "cross" or (tokens := self.tokens) is None:
            raise CannotWatch(f"{key[0]}: no clamp can be held where keys are no tokens, or none were looked up")
        if here.visitors and (key not in self.map.checked or call.weights is not None):
            check(self.map, key, call, None, own, dropout)
        z = own() if (edited := taps.inputs(call)) is call else values(edited.pattern(), edited.v)
        patterns: dict[int, Tensor] = {}
        for clamp in sorted(held, key=lambda one: one.clamp.what):  # a pattern comes before the z that it gives
            for head in clamp.heads or range(call.first_head, call.first_head + call.n_heads):
                one = edited.head(head - call.first_head)
                pattern = patterns[head] if head in patterns else _own_pattern(one)
                v = one.v[:, :, 0]
                found = clamp.ask(head, tokens, pattern, v, self.map.kinds[key].causal)
                if clamp.clamp.what == "pattern":
                    patterns[head] = pattern = found.to(pattern).expand_as(pattern)
                    found = pattern.to(v.dtype) @ v
                z = torch.select_scatter(z, found.to(z), 2, head - call.first_head)
        if here.visitors:
            self.wants_z = False
            for head in range(call.n_heads):
                one, pattern = edited.head(head), patterns.get(call.first_head + head)
                if pattern is not None:
                    one = replace(one, q=None, k=None, mask=None, weights=pattern[:, None], largest=None, seen=None)
                self._show(here, one)
        if taps.wants("pattern"):
            weights = edited.pattern()
            for head, pattern in patterns.items():
                weights = torch.select_scatter(weights, pattern.detach().to(weights), 1, head - call.first_head)
            if (after := taps.at("pattern", weights)) is not weights:
                z = values(after, edited.v)
        return taps.at("z", z)

    def _attend_part(self, parts: QueryBlocks, taps: Taps, own: Callable[[], Tensor]) -> Tensor | None:
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
            if call.weights is not None or key not in self.map.checked:
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
        if self.in_mha is not None:
            return not self.in_mha.some
        return self.cached or any(word in key[0].lower() for word in CROSS)

    def _positions(self) -> int | None:
        """Positions of the sequence that the running module works on, as far as anything says so."""
        x = self.sites.input()
        if self.in_mha is not None:
            return None
        if not isinstance(x, Tensor) or x.ndim not in (2, 3):
            x = self.tokens
        return None if x is None else x.shape[1]

    def _layer(self, key: Key, call: AttentionCall, part: bool = False) -> Layer:
        """part: a block of its queries, so that it is not known yet whether it looks ahead."""
        query_pos, key_pos = call.shape[1], call.positions
        named = any(word in key[0].lower() for word in CROSS)
        cross = self.in_mha.crosses if self.in_mha else named or query_pos != key_pos and not self.cached
        causal = not cross and (query_pos != key_pos or is_causal(call, but_for_padding=True))
        kind, by_hand = "cross" if cross and not part else "self", call.weights is not None
        return Layer(key[0], kind, causal and not part, call.n_heads, call.extra, by_hand=by_hand)
