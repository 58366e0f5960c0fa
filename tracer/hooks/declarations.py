"""Attention that nobody recognises: a person names the module that it is, and a function that says its pattern.

    @tracer.attends(MyAttention)  # every instance; or one module, model.blocks[0].attn
    def pattern(module, inputs, output):  # as a forward hook of torch is called
        q, k = module.q(inputs[0]), module.k(inputs[0])
        return ...  # [batch head query_pos key_pos]

1. The function is asked once the module has run, while somebody looks: in no step of a recorded training but the first
   that a clamp is held in.
2. Weights are 0 or more. A row that sums to more than 1 is divided by its sum; what one has less than 1 looks at
   nothing: a key without a value, as a sink is.
3. What the module computes stays its own. What is put in place of z has to be read by a part of it, which `out` names;
   nothing else of such an attention can be changed.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tracer.heads import masks
from tracer.heads.call import AttentionCall, values
from tracer.hooks.kernels import heads_last
from tracer.hooks.sites import bare
from tracer.interventions.edits import untouched
from tracer.named_code import kind_of, name_of, named
from tracer.torch_internals import tree_leaves

WORDS = ("pattern", "v", "q", "k", "scale", "causal", "mask")
"""What a function may say, by name."""
MISSES = 0.01
"""By how much the weights of a row may miss a sum of 1: bfloat16 has 8 bits."""
NEGATIVE = 1e-6
"""What rounding leaves below 0."""


class NoPattern(ValueError):
    """What a function returned cannot be the attention of a module; the message goes on from the function's name."""


@dataclass(frozen=True)
class SaidAttention:
    """What a function said of one attention."""

    call: AttentionCall
    weights: Tensor | None
    """As they were given, before rows were divided by their sums; None: q and k were given."""

    @property
    def z(self) -> Tensor | None:
        """[batch query_pos head d_value]; None without values."""
        if not self.call.has_values:
            return None
        keys = self.call.positions
        weights = self.call.pattern() if self.weights is None else self.weights
        return values(weights[..., :keys], self.call.v[:, :keys])


@dataclass(eq=False)
class DeclaredAttention:
    """A person's word that a module, or each of a class, is attention."""

    function: Callable[[nn.Module, tuple[Any, ...], Any], Any]
    code: str
    """`module:name` of the function."""
    out: str = ""
    """The part of the module that reads z, all heads side by side; empty where nobody said which."""
    lost: weakref.WeakKeyDictionary[nn.Module, str] = field(default_factory=weakref.WeakKeyDictionary)
    """Models that it is not asked of any more, and why."""

    @torch.no_grad()
    def ask(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, sink: bool | None
    ) -> SaidAttention:  # fmt: skip
        """What the function says of a module that has run. NoPattern for what cannot be; whatever the function raises.

        sink: may its rows sum to less than 1? None: read it off them.
        """
        inputs = _in_order(module, args, kwargs)
        device = next((x.device for x in tree_leaves((inputs, output)) if isinstance(x, Tensor)), torch.device("cpu"))
        with untouched(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            said = _by_name(self.function(module, inputs, output))

        def broken() -> bool:  # then the model has diverged, which is no fault of the function's
            return not all(_finite(x) for x in tree_leaves((inputs, output)) if isinstance(x, Tensor))

        return _of_pattern(said, sink, broken) if "pattern" in said else _of_scores(said, broken)

    def part(self, module: nn.Module) -> nn.Module | None:
        """The part that reads z. NoPattern where there is none of that name."""
        if not self.out:
            return None
        with contextlib.suppress(AttributeError):
            return module.get_submodule(self.out)
        parts = ", ".join(name for name, _ in module.named_children()) or "none"
        raise NoPattern(f"goes with out={self.out!r}, and {type(module).__name__} has no part of that name: {parts}")


_OF: weakref.WeakKeyDictionary[Any, DeclaredAttention] = weakref.WeakKeyDictionary()


def attends(module: Any, function: Any = None, *, out: str = "") -> Any:
    """Say that a module, or every module of a class, is attention, and which function tells its pattern.

    `function(module, inputs, output)` is called as a forward hook of torch is, where somebody looks at the model:
    `inputs` are all arguments in the order of `forward`'s parameters. It returns the pattern
    [batch head query_pos key_pos] ([batch query_pos key_pos]: one head), what the values are multiplied with; or
    (pattern, v) with v [batch head key_pos d_value]; or a mapping with `pattern` and `v`, or with `q`, `k`, `v`,
    `scale`, `causal` and `mask`, as F.scaled_dot_product_attention takes them, of a softmax in a kernel of one's own.
    Both may be said by `module:name`; without a function it is a decorator of one. `out`: the name of the part of the
    module that reads z, all heads side by side, which says that heads can be switched off. What was said of a module
    goes before what was said of its class, and both before what else is recognised inside it.

    Returns the function. ValueError for what is no module, no class of modules, or no function.
    """
    if function is None:
        return partial(attends, module, out=out)
    module = named(module, "attends") if isinstance(module, str) else module
    told = named(function, "attends") if isinstance(function, str) else function
    where = bare(module) if isinstance(module, nn.Module) else module
    is_class = isinstance(module, type) and issubclass(module, nn.Module) and module is not nn.Module
    if not (is_class or isinstance(where, nn.Module)):
        raise ValueError(
            f"attends: {module!r:.80} is neither a module, such as model.blocks[0].attn, nor a class of modules"
        )
    if not callable(told) or isinstance(told, type | nn.Module):
        raise ValueError(
            f"attends: {told!r:.80} is no function of (module, inputs, output) that returns a pattern "
            f"[batch head query_pos key_pos]"
        )
    code = name_of(told.func if isinstance(told, partial) else told)
    found = DeclaredAttention(told, code, out)
    if isinstance(where, nn.Module):
        try:
            found.part(where)
        except NoPattern as error:
            raise ValueError(f"attends: {code} {error}") from error
    _OF[where] = found
    return function


def declaration(module: nn.Module) -> DeclaredAttention | None:
    """What was said of this module, or of its class; None where nothing was."""
    if not _OF:
        return None
    return next((found for one in (module, *type(module).__mro__) if (found := _OF.get(one)) is not None), None)


def _in_order(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments in the order of forward's parameters; at the end a mapping of those that go by name alone."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return (*args, kwargs) if kwargs else args
    bound.apply_defaults()
    return (*bound.args, bound.kwargs) if bound.kwargs else bound.args


def _by_name(given: Any) -> dict[str, Any]:
    if isinstance(given, Tensor):
        given = {"pattern": given}
    elif isinstance(given, tuple | list) and len(given) == 2:
        given = {"pattern": given[0], "v": given[1]}
    if not isinstance(given, Mapping):
        what = f"{len(given)} things" if isinstance(given, tuple | list) else kind_of(given)
        raise NoPattern(
            f"returns {what}, and not a pattern [batch head query_pos key_pos], (pattern, v), or a mapping of "
            f"{', '.join(WORDS)}"
        )
    found = {name: x for name, x in given.items() if x is not None}
    if unknown := [name for name in found if name not in WORDS]:
        raise NoPattern(f"says {unknown[0]!r:.40}, which is none of {', '.join(WORDS)}")
    if ("pattern" in found) == ("q" in found and "k" in found) or "pattern" in found and not {*found} <= {*WORDS[:2]}:
        raise NoPattern(
            f"says {', '.join(found) or 'nothing'}: give pattern (and v), or q and k (and v, scale, causal, mask)"
        )
    for name in {"pattern", "q", "k", "v", "mask"} & found.keys():
        if not isinstance(x := found[name], Tensor):
            raise NoPattern(f"gives {kind_of(x)} as {name}, and no tensor")
        found[name] = x.detach() if x.is_floating_point() or name == "mask" else x.detach().float()
    return found


def _of_pattern(said: dict[str, Any], sink: bool | None, broken: Callable[[], bool]) -> SaidAttention:
    given: Tensor = said["pattern"]
    if given.ndim not in (3, 4) or not given.numel():
        raise NoPattern(f"gives {list(given.shape)}, and not a pattern [batch head query_pos key_pos]")
    weights = given.unsqueeze(1) if given.ndim == 3 else given
    batch, heads, _, keys = weights.shape
    v = _values(said.get("v"), given.ndim == 3, batch, heads, keys)
    v = weights.new_empty(batch, keys, heads, 0) if v is None else v
    total = weights.sum(-1, dtype=torch.promote_types(weights.dtype, torch.float32))
    least, low, most, finite = torch.stack([
        weights.amin().to(total), total.amin(), total.amax(), total.isfinite().all().to(total)
    ]).tolist()  # at once: a GPU is waited for  # fmt: skip
    if not finite:
        _must_be(broken)
        return SaidAttention(AttentionCall(0, v, weights=weights, causal=False), weights)
    if least < -NEGATIVE:
        raise NoPattern(
            f"gives negative weights, such as {least:.3g}: a pattern is the part of its attention that a query gives "
            f"to each key, 0 or more"
        )
    shares = weights.clamp_min(0) if least < 0 else weights
    if most > 1 + MISSES:
        shares = shares / total.clamp_min(1).unsqueeze(-1).to(shares)
    call = AttentionCall(0, v, weights=shares, causal=False)
    if sink or sink is None and low < 1 - MISSES and bool(((total > 0) & (total < 1 - MISSES)).any()):
        rest = (1 - total).clamp_min(0).unsqueeze(-1).to(shares)
        shares, v = torch.cat([shares, rest], -1), F.pad(v, (0, 0, 0, 0, 0, 1))
        call = replace(call, weights=shares, v=v, extra=("sink",))
    return SaidAttention(call, weights)


def _of_scores(said: dict[str, Any], broken: Callable[[], bool]) -> SaidAttention:
    q, k = said["q"], said["k"]
    one = q.ndim == 3
    if q.ndim not in (3, 4) or k.ndim != q.ndim or q.shape[-1] != k.shape[-1] or len(q) != len(k) or not q.numel():
        raise NoPattern(f"gives q {list(q.shape)} and k {list(k.shape)}, and not both [batch head pos d_head]")
    heads, kv = (1, 1) if one else (q.shape[1], k.shape[1])
    if heads % kv:
        raise NoPattern(f"gives {heads} heads of q and {kv} of k, which must divide them")
    v = _values(said.get("v"), one, len(k), heads, k.shape[-2])
    if v is not None and v.shape[2] != kv:
        raise NoPattern(f"gives {kv} heads of k and {v.shape[2]} of v")
    q, k = heads_last(q), heads_last(k)
    v = k.new_empty(*k.shape[:3], 0) if v is None else v
    scale, mask = said.get("scale", q.shape[-1] ** -0.5), said.get("mask")
    if mask is not None:
        try:
            given = mask.unsqueeze(1) if one and mask.ndim == 3 else mask
            mask = masks.four_axes(given, (len(q), heads, q.shape[1], k.shape[1]))
        except (ValueError, RuntimeError) as error:
            raise NoPattern(f"gives {error}") from error
    if not _finite(q) or not _finite(k):
        _must_be(broken)
    call = AttentionCall(0, v, q, k, float(scale), bool(said.get("causal", False)), mask)
    return SaidAttention(call, None)


def _values(v: Tensor | None, one: bool, batch: int, heads: int, keys: int) -> Tensor | None:
    """v as [batch key_pos kv_head d_value]."""
    if v is None:
        return None
    given = list(v.shape)
    v = v.unsqueeze(1) if one and v.ndim == 3 else v
    wrong = f"gives v {given}, and not [batch head key_pos d_value] = [{batch}, {heads}, {keys}, d_value]"
    if v.ndim != 4 or len(v) != batch or v.shape[2] != keys or heads % v.shape[1] or not v.numel():
        turned = v.ndim == 4 and v.shape[1] == keys
        raise NoPattern(wrong + (": v.transpose(1, 2) may be it" if turned else ""))
    return heads_last(v)


def _must_be(broken: Callable[[], bool]) -> None:
    if not broken():
        raise NoPattern("gives numbers that are not finite, where the module's own are (a row of no weights, divided "
                        "by its sum?)")  # fmt: skip


def _finite(x: Tensor) -> bool:
    return not x.is_floating_point() or bool(x.isfinite().all())
