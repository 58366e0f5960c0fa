"""Clamps of a user's: a function of one head that returns its pattern, or its z, in every forward pass.

    def previous(head):  # "L0H1 = mymodule:previous"
        n = head.tokens.shape[1]
        return torch.eye(n)[[0, *range(n - 1)]]

1. "L1H2 = module:function" holds the pattern: z = pattern v, so that gradients flow through v and W_O, and through
   `head.pattern` where the function made its own of it; a pattern that is made of tokens leaves W_Q and W_K none.
2. "L1H2 z = module:function" holds z: a z that is made of tokens leaves none of the head's weights but W_O a gradient.

What is returned is checked at every call. The function runs as if no block of edits were around it, so that it may run
other models, which nobody then mistakes for this one.

Source: Singh et al. 2024 (2404.07129), whose clamps are patterns made of tokens, or kept from another pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.config import Clamp
from tracer.config.field_docs import fields_in_help
from tracer.interventions.edits import Edit, untouched
from tracer.named_code import NAMED, name_of, note_clamp, why_no_clamp

Given = str | Mapping[str, Any] | Iterable[str]
"""What may be given as `clamp=`: a clamp in words, several, or {"L1H2": function}, also "L1H2 z", "L1H2 200:600"."""
NOT_ONE = 0.01
"""By how much the weights of a row may miss a sum of 1: bfloat16 has 8 bits."""


@dataclass(frozen=True)
class Beside:
    """What a layer's attention reads besides what is clamped."""

    tokens: Int[Tensor, "batch pos"]
    v: Float[Tensor, "batch key_pos head d_head"]
    pattern: Float[Tensor, "batch head query_pos key_pos"]


@fields_in_help
@dataclass
class ClampedHead:
    """One head in one forward pass, as a clamp's function is told of it: copies, through which gradients flow."""

    layer: int
    """From 0 on."""
    head: int
    """From 0 on."""
    tokens: Int[Tensor, "batch pos"]
    """What the model reads."""
    pattern: Float[Tensor, "batch query_pos key_pos"]
    """The head's own, which its q and k make: causal, each row sums to 1."""
    v: Float[Tensor, "batch key_pos d_head"]
    """Its values of all keys."""

    @property
    def z(self) -> Float[Tensor, "batch query_pos d_head"]:
        """The head's own, before W_O: pattern v."""
        return self.pattern.to(self.v.dtype) @ self.v


@dataclass(frozen=True)
class OwnClamp(Edit):
    """What a function returns stands at these heads' pattern, or z."""

    clamp: Clamp = field(kw_only=True)
    function: Any = field(default=None, kw_only=True)
    """What was called so when the clamp was made: another may have the name by now."""

    def within(self, activation: Tensor, beside: Beside) -> Tensor:
        axis = 1 if self.clamp.what == "pattern" else 2
        for head in self.heads or ():
            found = self.ask(head, beside.tokens, beside.pattern[:, head], beside.v[:, :, head])
            found = found.to(activation).expand_as(activation.select(axis, head))
            activation = torch.select_scatter(activation, found, axis, head)
        return activation

    def __call__(self, activation: Tensor) -> Tensor:
        raise AssertionError("a clamp of one's own asks what is beside it: call `within`")

    def ask(self, head: int, tokens: Tensor, pattern: Tensor, v: Tensor, causal: bool = True) -> Tensor:
        """What the function gives for this head, checked: a pattern, or z."""
        if self.function is None and (why := why_no_clamp(str(self.clamp), self.clamp.code)):
            raise ValueError(why)
        one = ClampedHead(self.clamp.layer, head, tokens.clone(), pattern.clone(), v.clone())
        try:
            with untouched():
                found = (self.function or NAMED[self.clamp.code])(one)
        except Exception as error:  # somebody's code, which raises whatever it runs into
            raise self._wrong(f"raised {type(error).__name__}: {error}") from error
        if not isinstance(found, Tensor):
            raise self._wrong(f"returned {type(found).__name__}, and no tensor")
        found = found.to(v.device) if found.is_floating_point() else found.to(v)
        if self.clamp.what == "z":
            return self._checked_z(found, pattern, v)
        return self._checked_pattern(found, pattern, causal)

    def _checked_z(self, z: Tensor, pattern: Tensor, v: Tensor) -> Tensor:
        if z.shape != v.shape:
            raise self._wrong(f"returned {list(z.shape)}, and not z [batch pos d_head], here {list(v.shape)}")
        if not _finite(z) and _finite(pattern) and _finite(v):  # else the model has diverged, which training says
            raise self._wrong("returned numbers that are not finite")
        return z

    def _checked_pattern(self, p: Tensor, pattern: Tensor, causal: bool) -> Tensor:
        if p.shape not in (pattern.shape, pattern.shape[1:]):
            raise self._wrong(
                f"returned {list(p.shape)}, and not a pattern [batch query_pos key_pos], here {list(pattern.shape)}, "
                f"or one for all sequences, {list(pattern.shape[1:])}"
            )
        sums = p.detach().float().sum(-1)
        ahead = p.detach().triu(1).abs().sum()
        worst = (sums - 1).abs().amax()
        broken, negative = (~p.detach().isfinite()).any(), (p.detach() < 0).any()
        found = [x.to(worst) for x in (broken, negative, ahead, worst)]
        broken, negative, ahead, worst = torch.stack(found).tolist()  # at once: a GPU is waited for
        if broken and not _finite(pattern):  # the model has diverged, which training says
            return p
        if broken:
            raise self._wrong("returned weights that are not finite (a row of no weights, divided by its sum?)")
        if negative:
            raise self._wrong("returned negative weights")
        if ahead and causal:
            raise self._wrong("returned weights on tokens that come after the query, which would tell it the answer")
        if worst > NOT_ONE:
            at = int(((sums - 1).abs() > NOT_ONE).flatten().int().argmax())
            raise self._wrong(
                f"returned rows that do not sum to 1, such as {sums.flatten()[at]:.3g} in row {at % p.shape[-1]}: "
                f'divide by the sum; to write less, hold z ("L1H2 z = module:function")'
            )
        return p

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"clamp {str(self.clamp)!r}: {self.clamp.code} {what}")


def _finite(x: Tensor) -> bool:
    return bool(x.isfinite().all())


def texts(given: Any) -> tuple[str, ...]:
    """Clamps that a person gives (`Given`), in words; their functions may run in this process from here on.

    ValueError for what is no clamp, no function, or two functions of one name.
    """
    if isinstance(given, Mapping):
        if wrong := [where for where in given if not isinstance(where, str) or not where.isprintable()]:
            raise ValueError(f'clamp: {wrong[0]!r:.60} says no head: write {{"L1H2": function}}')
        functions = {where: what for where, what in given.items() if not isinstance(what, str)}
        names = {where: name_of(what) for where, what in functions.items()}
        for where, what in functions.items():
            if twin := [w for w in functions if names[w] == names[where] and functions[w] is not what]:
                raise ValueError(f"clamp: the functions of {where!r} and {twin[0]!r} are both called {names[where]}: "
                                 f"give each a name of its own (def)")  # fmt: skip
            note_clamp(what, where)
        given = [_in_words(where, str(names.get(where, what))) for where, what in given.items()]
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if wrong := [one for one in found if not isinstance(one, str)]:
        raise ValueError(
            f'clamp={wrong[0]!r:.60} is no clamp: write "L0H1 off", "L1H2 = module:function" or {{"L1H2": function}}'
        )
    for text in found:
        if (code := Clamp.parse(text).code) and code not in NAMED:
            note_clamp(code, text)
    return found


def _in_words(where: str, what: str) -> str:
    """ "L1H2 200:600" and "m:f" as "L1H2 = m:f 200:600"."""
    head, window = re.fullmatch(r"(.*?)(\s+\d*:\d*)?\s*", where).groups()  # pyrefly: ignore[missing-attribute]
    return f"{head}{' =' if ':' in what else ''} {what}{window or ''}"
