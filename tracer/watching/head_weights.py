"""Which part of which weight is a head's W_Q, W_K, W_V or W_O, read off one forward pass and not off names.

1. At the first position rotary embeddings turn nothing, so a head's q, k and v there are a stretch of the output of a
   linear map, up to a factor (a scale, a norm); what multiplies those outputs' features is the head's own slice.
2. A head's z is a stretch of the input of a linear map, whose columns there are its W_O. Read at the last position.
3. nn.MultiheadAttention says by itself how its weights are laid out.
4. Where a model makes its pattern by hand, v and z are seen, but neither q nor k: they are the pair of stretches, laid
   out as v is, whose products differ from key to key as the logarithms of the pattern do. Behind rotary embeddings and
   norms of q and k no pair does, and the layer stays unknown.

A head that gives nothing at all (W_V = 0) is like no stretch: it stands in line with the others of its layer, where the
output is 0 as well. A layer of which q, k or v is not found so is nan in all: half a head would be read as a head that
learns nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tracer.heads.call import AttentionCall, values
from tracer.hooks.discovered import DiscoveredAttention
from tracer.hooks.inputs import Inputs
from tracer.hooks.sites import Key, Sites, plain
from tracer.interventions.edits import visiting
from tracer.measures.gradients import MATRICES
from tracer.watching.training_passes import Seen

SAME = 0.999
"""Cosine from which two vectors are one: what is left is the rounding of half precision."""
WINDOW, LEAST = 32, 1e-20
"""First positions that are compared with a pattern, and the smallest weight in it that has a logarithm worth having."""


@dataclass(frozen=True)
class HeadMatrix:
    """One matrix of all heads of an attention: features [head d] along an axis of a weight."""

    layer: int
    first_head: int
    matrix: int
    param: str
    axis: int
    features: Tensor


@dataclass(frozen=True)
class CallInputs:
    """What an attention was called with, as far as it is looked for."""

    first: dict[int, Tensor]
    """By matrix, q, k and v [batch head d] of the first position,"""
    z: Float[Tensor, "batch head d"]
    """the heads' outputs at the last,"""
    pattern: Float[Tensor, "batch head key_pos"] | None = None
    """and where q and k were not seen, the pattern of the last query in the window."""


@dataclass(frozen=True)
class HeadMatrices:
    """The parts that were found, of a model with so many layers and heads."""

    shape: tuple[int, int]
    parts: list[HeadMatrix] = field(default_factory=list)

    @torch.no_grad()
    def norms(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, "layer head matrix"]:
        """The l2 norm of each head's own slice; heads that share keys and values share those numbers."""
        device = next(iter(tensors.values())).device
        found = torch.full((*self.shape, len(MATRICES)), float("nan"), device=device)
        squares: dict[tuple[str, int], Tensor] = {}
        for part in self.parts:
            if (at := (part.param, part.axis)) not in squares:
                x = tensors[part.param].detach()
                squares[at] = x.to(torch.promote_types(x.dtype, torch.float32)).square().sum(1 - part.axis)
            norms = squares[at][part.features].sum(1).sqrt()
            found[part.layer, part.first_head : part.first_head + len(norms), part.matrix] = norms.to(found)
        return found


@torch.no_grad()
def find(model: nn.Module, found: DiscoveredAttention, inputs: Inputs, params: Mapping[str, Tensor]) -> HeadMatrices:
    """Run the model once more on these inputs and look whose output q, k and v are, and whose input z is."""
    modules = {plain(name): module for name, module in model.named_modules()}
    linears = {
        name: module for name, module in modules.items()
        if f"{name}.weight" in params and _axis(module) is not None
        and any(name.startswith(_around(site, modules)) for site, _ in found.keys)
    }  # fmt: skip
    into: dict[str, Tensor] = {}
    out: dict[str, Tensor] = {}
    calls: dict[Key, CallInputs] = {}

    def passed(name: str) -> Any:
        def hook(_module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if args and args[0].ndim == 3 and isinstance(output, Tensor):
                into[name], out[name] = args[0][:, -1].float(), output[:, :WINDOW].float()

        return hook

    def seen(key: Key, call: AttentionCall | None, _rows: Any) -> None:
        if call is None or key in calls or not call.has_values:
            return
        first = {i: x[:, 0].float().clone() for i, x in enumerate((call.q, call.k, call.v)) if x is not None}
        if call.weights is None:
            z = call.stats(z=True).z
            assert z is not None
            calls[key] = CallInputs(first, z[:, -1].clone())
        elif not call.extra:
            last = min(call.weights.shape[2], WINDOW) - 1
            z = values(call.weights[:, :, -1:], call.v)[:, 0].float()
            calls[key] = CallInputs(first, z, call.weights[:, :, last, : last + 1].float())

    sites = Sites(model)
    with contextlib.ExitStack() as hooks:
        for name, module in linears.items():
            hooks.callback(module.register_forward_hook(passed(name)).remove)
        sites.attach()
        hooks.callback(sites.detach)
        with torch.compiler.set_stance("force_eager"), visiting(lambda call: None), Seen(sites, seen):
            inputs.run(model)
    shape = (len(found.layers), max(layer.n_heads for layer in found.layers))
    parts: list[HeadMatrix] = []
    for key, place in found.places.items():
        module, n = modules.get(key[0]), found.kinds[key].n_heads
        if isinstance(module, nn.MultiheadAttention):
            mine = _of_torch(key[0], module)
        elif key in calls:
            own = [one for one in linears if one in out and one.startswith(_around(key[0], modules))]
            mine = _matched(calls[key], own, into, out)
        else:
            continue
        mine = {matrix: where for matrix, where in mine.items() if where[0] in params}
        if not {0, 1, 2} <= mine.keys():
            continue
        for matrix, (param, features) in mine.items():
            axis = _feature_axis(param, modules, matrix)
            features = features.repeat_interleave(n // len(features), 0)
            parts.append(HeadMatrix(place.layer, place.offset, matrix, param, axis, features))
    return HeadMatrices(shape, parts)


def _around(site: str, modules: Mapping[str, nn.Module]) -> str:
    """How names begin of what stands in one module with an attention, or with the list that holds it."""
    above = site.rpartition(".")[0]
    while isinstance(modules.get(above), nn.ModuleList):
        above = above.rpartition(".")[0]
    return f"{above}." if above else ""


def _matched(
    told: CallInputs, names: list[str], into: Mapping[str, Tensor], out: Mapping[str, Tensor]
) -> dict[int, tuple[str, Tensor]]:
    """Parameter and features [head d] by matrix, as far as they are found."""
    first = {name: out[name][:, 0] for name in names}
    found: dict[int, tuple[str, Tensor]] = {}
    for matrix, heads, among in (*((i, x, first) for i, x in told.first.items()), (3, told.z, into)):
        for name in names:
            if (features := stretches(heads, among[name])) is not None:
                found[matrix] = f"{name}.weight", features
                break
    if told.pattern is not None and 2 in found:
        found |= _pair(told.pattern, found[2][1], {name: out[name] for name in names})
    return found


def _pair(
    pattern: Float[Tensor, "batch head key_pos"], v: Int[Tensor, "head d"], out: Mapping[str, Tensor]
) -> dict[int, tuple[str, Tensor]]:
    """Where q and k come from: the features of v (packed by head: the places beside it) in any two outputs."""
    (n, d), apart = v.shape, int(v[1, 0] - v[0, 0]) if len(v) > 1 else 0
    step = d if apart > d else n * d
    first = v - v.min() if apart <= d else v - v.min() // d * d
    ends = pattern.shape[2]
    places = [
        (name, first + shift)
        for name, x in out.items() if len(x) == len(pattern) and x.shape[1] >= ends
        for shift in range(0, x.shape[2] - int(first.max()), step)
    ]  # fmt: skip
    known = pattern > LEAST
    wanted = _centred(pattern.clamp_min(LEAST).log(), known)
    for name_q, q in places:
        query = out[name_q][:, ends - 1, q]
        for name_k, k in places:
            scores = torch.einsum("bhd,bkhd->bhk", query, out[name_k][:, :ends, k])
            cosine = nn.functional.cosine_similarity(_centred(scores, known), wanted, dim=0)
            if q is not k and bool((cosine > SAME).all()):
                return {0: (f"{name_q}.weight", q), 1: (f"{name_k}.weight", k)}
    return {}


def _centred(x: Float[Tensor, "batch head key_pos"], known: Tensor) -> Float[Tensor, "at head"]:
    """The differences from the mean over the known keys; 0 at others."""
    n = known.sum(-1, keepdim=True).clamp_min(1)
    return ((x - (x * known).sum(-1, keepdim=True) / n) * known).transpose(1, 2).flatten(0, 1)


def stretches(heads: Float[Tensor, "batch head d"], x: Float[Tensor, "batch feature"]) -> Tensor | None:
    """The features of x that every head is, up to a factor above 0; None when some head is not there."""
    (batch, n, d), size = heads.shape, x.shape[1]
    live = heads.abs().amax((0, 2)) > 0
    if len(x) != batch or not bool(live.any()):
        return None
    wanted = nn.functional.normalize(heads.permute(1, 0, 2).flatten(1), dim=1)
    for stride in dict.fromkeys((1, 2, 3, n)):
        reach = (d - 1) * stride + 1
        if reach > size:
            continue
        windows = x.unfold(1, reach, 1)[..., ::stride].permute(1, 0, 2).flatten(1)
        cosine = wanted @ nn.functional.normalize(windows, dim=1).T
        best, start = cosine.max(1)
        if not bool((best[live] > SAME).all()):
            continue
        found = start.tolist() if bool(live.all()) else _in_line(start.tolist(), live.tolist(), windows, d)
        if found is not None and n % len(set(found)) == 0:  # keys may have been repeated for a group
            return torch.tensor(found, device=x.device)[:, None] + stride * torch.arange(d, device=x.device)
    return None


def _in_line(starts: list[int], live: list[bool], windows: Float[Tensor, "start feature"], d: int) -> list[int] | None:
    """Where all heads begin, of which some give nothing: as far apart as the others are, and 0 there."""
    n, silent = len(starts), (~windows.any(1)).tolist()
    for group in (size for size in range(1, n + 1) if n % size == 0):
        known = {(head // group, starts[head]) for head in range(n) if live[head]}
        (first, low), (last, high) = min(known), max(known)
        steps = [(high - low) / (last - first)] if last > first else [d, 3 * d]  # one alone: packed, or q, k, v by head
        for step in steps:
            line = [round(low + step * (head // group - first)) for head in range(n)]
            inside = step == int(step) != 0 and all(0 <= at < len(silent) for at in line)
            if inside and all(at == s if on else silent[at] for at, s, on in zip(line, starts, live, strict=True)):
                return line
    return None


def _of_torch(name: str, module: nn.MultiheadAttention) -> dict[int, tuple[str, Tensor]]:
    n, d = module.num_heads, module.head_dim
    features = torch.arange(n * d, device=module.out_proj.weight.device).view(n, d)
    found = {3: (f"{name}.out_proj.weight", features)}
    if module.in_proj_weight is not None:
        return found | {i: (f"{name}.in_proj_weight", features + i * n * d) for i in range(3)}
    return found | {i: (f"{name}.{letter}_proj_weight", features) for i, letter in enumerate("qkv")}


def _axis(module: nn.Module | None) -> int | None:
    """The axis of its weight that counts what comes out; None of what is no linear map."""
    if isinstance(module, nn.Linear):
        return 0
    return 1 if type(module).__name__ == "Conv1D" else None


def _feature_axis(param: str, modules: Mapping[str, nn.Module], matrix: int) -> int:
    axis = _axis(modules.get(param.rpartition(".")[0])) or 0
    return axis if matrix < 3 else 1 - axis
