"""Which part of which weight is a head's W_Q, W_K, W_V or W_O, read off one forward pass and not off names.

1. At the first position rotary embeddings turn nothing, so a head's q, k and v there are a stretch of the output of a
   linear map, up to a factor (a scale, a norm); what multiplies those outputs' features is the head's own slice.
2. A head's z is a stretch of the input of a linear map, whose columns there are its W_O. Read at the last position.
3. nn.MultiheadAttention says by itself how its weights are laid out.

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
from jaxtyping import Float
from torch import Tensor, nn

from tracer.heads.call import AttentionCall
from tracer.hooks.discovered import DiscoveredAttention
from tracer.hooks.inputs import Inputs
from tracer.hooks.sites import Key, Sites, plain
from tracer.interventions.edits import visiting
from tracer.measures.gradients import MATRICES
from tracer.watching.training_passes import Seen

SAME = 0.999
"""Cosine from which two vectors are one: what is left is the rounding of half precision."""


@dataclass(frozen=True)
class Part:
    """One matrix of all heads of an attention: features [head d] along an axis of a weight."""

    layer: int
    first_head: int
    matrix: int
    param: str
    axis: int
    features: Tensor


@dataclass(frozen=True)
class HeadWeights:
    """The parts that were found, of a model with so many layers and heads."""

    shape: tuple[int, int]
    parts: list[Part] = field(default_factory=list)

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
def find(model: nn.Module, found: DiscoveredAttention, inputs: Inputs, params: Mapping[str, Tensor]) -> HeadWeights:
    """Run the model once more on these inputs and look whose output q, k and v are, and whose input z is."""
    modules = {plain(name): module for name, module in model.named_modules()}
    linears = {
        name: module for name, module in modules.items()
        if f"{name}.weight" in params and _axis(module) is not None
        and any(name.startswith(f"{site.rpartition('.')[0]}.") for site, _ in found.keys)
    }  # fmt: skip
    into: dict[str, Tensor] = {}
    out: dict[str, Tensor] = {}
    calls: dict[Key, tuple[AttentionCall, Tensor]] = {}

    def passed(name: str) -> Any:
        def hook(_module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if args and args[0].ndim == 3 and isinstance(output, Tensor):
                into[name], out[name] = args[0][:, -1].float(), output[:, 0].float()

        return hook

    def seen(key: Key, call: AttentionCall | None, _rows: Any) -> None:
        if call is not None and call.q is not None and call.k is not None and key not in calls:
            z = call.stats(z=True).z
            assert z is not None
            q, k, v = (x[:, :1].float().clone() for x in (call.q, call.k, call.v))
            calls[key] = AttentionCall(0, v, q, k), z[:, -1].clone()

    sites = Sites(model)
    with contextlib.ExitStack() as hooks:
        for name, module in linears.items():
            hooks.callback(module.register_forward_hook(passed(name)).remove)
        sites.attach()
        hooks.callback(sites.detach)
        with torch.compiler.set_stance("force_eager"), visiting(lambda call: None), Seen(sites, seen):
            inputs.run(model)
    shape = (len(found.layers), max(layer.n_heads for layer in found.layers))
    parts: list[Part] = []
    for key, place in found.places.items():
        module, n = modules.get(key[0]), found.kinds[key].n_heads
        if isinstance(module, nn.MultiheadAttention):
            mine = _of_torch(key[0], module)
        elif key in calls:
            own = [name for name in linears if name in out and name.startswith(f"{key[0].rpartition('.')[0]}.")]
            mine = _matched(*calls[key], own, into, out)
        else:
            continue
        mine = {matrix: where for matrix, where in mine.items() if where[0] in params}
        if not {0, 1, 2} <= mine.keys():
            continue
        for matrix, (param, features) in mine.items():
            axis = _feature_axis(param, modules, matrix)
            features = features.repeat_interleave(n // len(features), 0)
            parts.append(Part(place.layer, place.offset, matrix, param, axis, features))
    return HeadWeights(shape, parts)


def _matched(
    call: AttentionCall, z: Tensor, names: list[str], into: Mapping[str, Tensor], out: Mapping[str, Tensor]
) -> dict[int, tuple[str, Tensor]]:
    """Parameter and features [head d] by matrix, as far as they are found."""
    assert call.q is not None and call.k is not None
    found = {}
    for matrix, (heads, among) in enumerate(((call.q[:, 0], out), (call.k[:, 0], out), (call.v[:, 0], out), (z, into))):
        for name in names:
            if (features := stretches(heads, among[name])) is not None:
                found[matrix] = f"{name}.weight", features
                break
    return found


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
