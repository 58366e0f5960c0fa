"""What may be said by `tracer.attends`, what it means for each measure, and what is refused in words."""

from __future__ import annotations

import re
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from tests.hooks.quotients import HEADS, Quotient, Stack, kind, linear, quotient, sigmoid, tokens, told
from tests.own_gpt import LAYOUT, Mine
from tracer import ablate
from tracer.analysis.by_distance import by_distance
from tracer.heads.row_block import RowBlock
from tracer.hooks import declarations
from tracer.hooks.refusals import CannotWatch, NoHeads
from tracer.huggingface.wrapped import WrappedModel

IDS = tokens()


def read(model: nn.Module, ids: Tensor = IDS, **options: Any) -> Any:
    with torch.no_grad(), tracer.watch(model, keep=3, **options) as watcher:
        model(ids)
    return watcher.read()


def patterns(model: Stack, ids: Tensor = IDS) -> np.ndarray:
    """By its own layers, one after the other, in float64: [layer batch head query_pos key_pos]."""
    made: list[Tensor] = []

    def keep(module: Any, args: tuple[Tensor], output: Any) -> None:
        q, k, _ = module.parts(args[0])
        made.append(module.weights(q.double(), k.double()))

    with torch.no_grad():
        for block in model.blocks:
            block.register_forward_hook(keep)
        model(ids)
    return torch.stack(made).numpy()


def by_hand(p: np.ndarray, ids: Tensor, rest: bool) -> dict[str, np.ndarray]:
    """[layer head], means over rows from the second on: from patterns, row by row."""
    names = ("entropy", "entropy_normalised", "confidence", "previous_token", "current_token", "first_token",
             "attended_distance", "duplicate_token", "induction")  # fmt: skip
    layers, batch, heads, n, _ = p.shape
    found = {name: np.zeros((layers, heads)) for name in names}
    for at in np.ndindex(layers, batch, heads):
        layer, sequence, head = at
        ids_of = ids[sequence].tolist()
        for q in range(1, n):
            row = p[at][q]
            every = [*row[: q + 1], *([1 - row.sum()] if rest else [])]
            same = [k for k in range(q) if ids_of[k] == ids_of[q]]
            entropy = -sum(x * np.log(x) for x in every if x > 0)
            values = {
                "entropy": entropy, "entropy_normalised": entropy / np.log(len(every)), "confidence": max(every),
                "previous_token": row[q - 1], "current_token": row[q], "first_token": row[0],
                "attended_distance": sum(row[k] * (q - k) for k in range(q + 1)),
                "duplicate_token": sum(row[k] for k in same), "induction": sum(row[k + 1] for k in same),
            }  # fmt: skip
            for name, value in values.items():
                found[name][layer, head] += value / batch / (n - 1)
    return found


@pytest.mark.parametrize("weights", [linear, quotient])
def test_rows_that_sum_to_one_are_measured_as_they_are(weights: Any) -> None:
    model = Stack(weights, layer=kind())
    found, ids = read(model), IDS
    for name, expected in by_hand(patterns(model), ids, rest=False).items():
        np.testing.assert_allclose(found[name], expected, atol=1e-6, err_msg=name)
    assert found.extra_keys.values.tolist() == ["", ""]


def test_what_a_row_has_less_than_one_looks_at_nothing() -> None:
    def some(q: Tensor, k: Tensor) -> Tensor:
        return sigmoid(q, k) / 8

    model = Stack(some, layer=kind())
    assert 0 < patterns(model).sum(-1).max() < 1
    found = read(model)
    for name, expected in by_hand(patterns(model), IDS, rest=True).items():
        np.testing.assert_allclose(found[name], expected, atol=1e-6, err_msg=name)
    assert found.extra_keys.values.tolist() == ["sink", "sink"]


def test_a_row_that_sums_to_more_than_one_is_divided_by_its_sum() -> None:
    def more(q: Tensor, k: Tensor) -> Tensor:
        return 9 * linear(q, k)

    model = Stack(more, layer=kind())
    found = read(model)
    for name, expected in by_hand(patterns(model) / 9, IDS, rest=False).items():
        np.testing.assert_allclose(found[name], expected, atol=1e-6, err_msg=name)
    mixed = Stack(lambda q, k: 6 * sigmoid(q, k), layer=kind())
    p = patterns(mixed)
    assert p.sum(-1).min() < 1 < p.sum(-1).max()
    expected = by_hand(p / np.maximum(p.sum(-1, keepdims=True), 1), IDS, rest=True)
    np.testing.assert_allclose(read(mixed).entropy, expected["entropy"], atol=1e-6)


def test_rows_without_any_weight_are_left_out() -> None:
    """As rows that see no key are, where the others sum to 1."""

    def relu(q: Tensor, k: Tensor) -> Tensor:
        weights = (quotient(q, k) - 0.2).relu()
        return weights / weights.sum(-1, keepdim=True).clamp_min(1e-12)

    model = Stack(relu, layer=kind())
    p = patterns(model)
    assert (p[:, :, :, 1:].sum(-1) == 0).any()
    current = np.diagonal(p, axis1=-2, axis2=-1)[..., 1:]
    there = p[..., 1:, :].sum(-1) > 0
    expected = (current * there).sum((1, 3)) / there.sum((1, 3))
    np.testing.assert_allclose(read(model).current_token, expected, atol=1e-6)


@pytest.mark.parametrize("mask", [False, True])
def test_scores_of_a_kernel_of_ones_own(mask: bool) -> None:
    """q, k and v: everything is known, the largest logit too."""

    def of(module: Any, inputs: tuple[Any, ...], output: Any) -> dict[str, Any]:
        q, k, v = module.parts(inputs[0])
        said = {"mask": torch.ones(12, 12, dtype=torch.bool).tril()} if mask else {"causal": True}
        return {"q": q, "k": k, "v": v, "scale": None, **said}

    found, expected = read(Stack(layer=kind(of))), read(Stack(None))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6, err_msg=name)


def test_values_are_known_where_they_were_said() -> None:
    @tracer.measure
    def length(rows: RowBlock) -> Tensor:
        return rows.z.norm(dim=-1).transpose(1, 2)

    def alone(module: Any, inputs: tuple[Any, ...], output: Any) -> Tensor:
        return told(module, inputs, output)[0]

    expected = read(Stack(None), measures=length).length
    np.testing.assert_allclose(read(Stack(layer=kind()), measures=length).length, expected, rtol=1e-5)
    with pytest.warns(RuntimeWarning, match="length .*raised ValueError: v is not known here"):
        assert np.isnan(read(Stack(layer=kind(alone, "")), measures=length).length).all()


def test_one_module_before_its_class_and_both_before_what_is_recognised_inside() -> None:
    """A layer whose fused attention is told as another pattern: one row of the picture, and that pattern."""

    def uniform(module: Any, inputs: tuple[Any, ...], output: Any) -> Tensor:
        n = inputs[0].shape[1]
        return (torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]).expand(len(inputs[0]), 2, n, n)

    def first(module: Any, inputs: tuple[Any, ...], output: Any) -> Tensor:
        return torch.eye(inputs[0].shape[1])[:1].expand(len(inputs[0]), 2, inputs[0].shape[1], -1)

    class Derived(kind(uniform, out="")):
        pass

    model = Stack(None, layer=Derived)
    tracer.attends(model.blocks[1], first)
    found = read(model)
    assert found.sizes == {"layer": 2, "head": 2}
    np.testing.assert_allclose(found.first_token, [[float(np.mean(1 / np.arange(2, 13)))] * 2, [1.0, 1.0]], rtol=1e-5)
    np.testing.assert_allclose(found.entropy_normalised, [[1, 1], [0, 0]], atol=1e-6)


def test_inputs_are_those_of_forward_in_their_order() -> None:
    seen: list[tuple[Any, ...]] = []

    class Asked(Quotient):
        def forward(self, x: Tensor, scale: float = 1.0, *, name: str = "", **more: Any) -> Tensor:
            return super().forward(scale * x)

    @tracer.attends(Asked)
    def pattern(module: Asked, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        seen.append(inputs)
        assert output.shape == inputs[0].shape
        return module.weights(*module.parts(inputs[1] * inputs[0])[:2])  # pyrefly: ignore[not-callable]

    layer, x = Asked(), torch.randn(2, 5, 32)
    for call in ({"x": x}, {"scale": 2.0, "x": x}, {"x": x, "name": "me", "other": 3}):
        with torch.no_grad(), tracer.watch(layer) as watcher:
            layer(**call)
        watcher.check()
    assert [one[1:] for one in seen] == [(1.0, {"name": ""}), (2.0, {"name": ""}), (1.0, {"name": "me", "other": 3})]
    assert declarations.declaration(layer) is not None and pattern is not None


def test_heads_of_a_list_stand_side_by_side() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(32, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return linear(self.query(x)[:, None], self.key(x)[:, None])[:, 0] @ self.value(x)

    class Several(nn.Module):
        def __init__(self, _: Any) -> None:
            super().__init__()
            self.heads, self.out = nn.ModuleList(Head() for _ in range(3)), nn.Linear(24, 32)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.cat([head(x) for head in self.heads], -1))

    @tracer.attends(Head)
    def pattern(head: Head, inputs: tuple[Tensor, ...], output: Tensor) -> tuple[Tensor, Tensor]:
        """[batch query_pos key_pos]: one head."""
        x = inputs[0]
        return linear(head.query(x)[:, None], head.key(x)[:, None])[:, 0], head.value(x)

    found = read(Stack(layer=Several))
    assert found.module.values.tolist() == ["blocks.0.heads", "blocks.1.heads"] and found.sizes["head"] == 3
    assert float(found.entropy.std()) > 0


def test_a_function_may_roll_dice_and_run_parts_of_the_module() -> None:
    def rolls(module: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        torch.rand(3)
        F.scaled_dot_product_attention(*module.parts(inputs[0]))  # seen by nobody
        return told(module, inputs, output)

    model = Stack(layer=kind(rolls))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    found = read(model)
    assert torch.equal(torch.rand(2), expected) and found.sizes["layer"] == 2


def test_outputs_and_gradients_are_the_model_s_own_to_the_bit() -> None:
    plain, mine = Stack(), Stack(layer=kind())
    plain(IDS).square().mean().backward()
    with tracer.watch(mine) as watcher:
        mine(IDS).square().mean().backward()
    watcher.check()
    for one, other in zip(plain.parameters(), mine.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)  # pyrefly: ignore[bad-argument-type]


def gives(what: Any) -> Any:
    def function(module: Any, inputs: Any, output: Any) -> Any:
        return what(*module.parts(inputs[0]), module) if callable(what) else what

    return function


WRONG: list[tuple[Any, str]] = [
    (lambda q, k, v, m: 1 / 0, r"raised ZeroDivisionError: division by zero"),
    (None, r"returns a NoneType, and not a pattern \[batch head"),
    ((1, 2, 3), r"returns 3 things"),
    (lambda q, k, v, m: {"weights": q}, r"says 'weights', which is none of pattern, v, q"),
    (lambda q, k, v, m: {"v": v}, r"says v: give pattern \(and v\), or q and k"),
    (lambda q, k, v, m: {"pattern": m.weights(q, k), "q": q, "k": k}, r"give pattern \(and v\), or q and k"),
    (lambda q, k, v, m: {"pattern": [1.0]}, r"gives a list as pattern, and no tensor"),
    (lambda q, k, v, m: m.weights(q, k)[0, 0], r"gives \[12, 12\], and not a pattern"),
    (lambda q, k, v, m: m.weights(q, k)[:2], r"gives patterns of 2 sequences, where 3 are read"),
    (lambda q, k, v, m: m.weights(q, k) - 0.5, r"gives negative weights, such as -0.5"),
    (lambda q, k, v, m: m.weights(q, k) / 0, r"gives numbers that are not finite, where the module's own are"),
    (lambda q, k, v, m: (m.weights(q, k), v.transpose(1, 2)), r"gives v \[3, 12, 4, 8\], and not .*transpose\(1, 2\)"),
    (lambda q, k, v, m: (m.weights(q, k), v[:2]), r"gives v \[2, 4, 12, 8\]"),
    (lambda q, k, v, m: {"q": q, "k": k[..., :3]}, r"gives q .* and k .*, and not both \[batch head pos d_head\]"),
    (lambda q, k, v, m: {"q": q, "k": k[:, :3]}, r"gives 4 heads of q and 3 of k"),
    (lambda q, k, v, m: {"q": q, "k": k, "mask": torch.ones(5, 12)}, r"a mask of shape \[5, 12\] does not fit"),
    (lambda q, k, v, m: (m.weights(q, k), 2 * v), r"pattern times v is not what proj reads, they differ by"),
    (lambda q, k, v, m: (m.weights(q, k)[:, :1], v[:, :1]), r"says z \[3, 12, 1, 8\]"),
    (lambda q, k, v, m: m.weights(q, k)[:, :3], r"which reads \[3, 12, 32\], and not z of 3 heads"),
]


@pytest.mark.parametrize(("what", "why"), WRONG, ids=[why for _, why in WRONG])
def test_what_is_no_pattern_is_said_once_with_the_function_s_name(what: Any, why: str) -> None:
    """Of a recognised layer beside it everything is there."""
    model = Stack(layer=kind(gives(what))).eval()
    model.blocks[0] = Quotient(None)
    with torch.no_grad(), tracer.watch(model) as watcher, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        plain = model(IDS)
        assert torch.equal(model(IDS), plain)
    (one,) = [str(x.message) for x in said]
    assert one.startswith(f"tracer.attends, blocks.1: {__name__}:gives.<locals>.function ")
    assert one.endswith("Its heads are left out from here on, everything else goes on")
    assert re.search(why, one), one
    assert watcher.read().module.values.tolist() == ["blocks.0"]


def test_an_analysis_is_refused_where_no_pattern_comes() -> None:
    said: list[Any] = [told]
    model = WrappedModel(Stack(layer=kind(lambda *given: said[0](*given))), n_ctx=20, d_vocab=40)
    assert by_distance(model, IDS).values.shape[:2] == (2, HEADS)
    said[0] = gives(None)
    with pytest.raises(CannotWatch, match=r"tracer\.attends, blocks\.0: .*returns a NoneType"):
        by_distance(model, IDS)
    with pytest.raises(CannotWatch, match=r"tracer\.attends, blocks\.0: .*returns a NoneType"):
        WrappedModel(Stack(layer=kind(gives(None))), n_ctx=20, d_vocab=40)
    said[0] = told  # it is asked again
    by_distance(model, IDS)


def test_where_nothing_else_is_there_the_reason_is_said() -> None:
    model = Stack(layer=kind(gives(None)))
    with torch.no_grad(), tracer.watch(model) as watcher, pytest.warns(RuntimeWarning, match="returns a NoneType"):
        model(IDS)
    with pytest.raises(NoHeads, match=r"tracer\.attends, blocks\.0: .*returns a NoneType"):
        watcher.read()


def test_who_says_it_again_is_asked_again() -> None:
    mine = kind(gives(None))
    model = Stack(layer=mine)
    with pytest.warns(RuntimeWarning, match="returns a NoneType"), pytest.raises(NoHeads):
        read(model)
    tracer.attends(mine, told, out="proj")
    assert read(model).sizes["layer"] == 2


def test_a_model_that_has_diverged_is_no_fault_of_the_function() -> None:
    model = Stack(layer=kind())
    with torch.no_grad():
        model.words.weight[:] = float("nan")
    with pytest.warns(UserWarning, match="activations are not finite; first seen in layer 0"):
        assert np.isnan(read(model).entropy).all()
    with torch.no_grad():
        model.words.weight[:] = 1.0
    assert np.isfinite(read(model).entropy).all()


def test_heads_that_become_fewer_are_said() -> None:
    counts = iter([4, 4, 2, 2])

    def fewer(module: Any, inputs: Any, output: Any) -> Tensor:
        return told(module, inputs, output)[0][:, : next(counts)]

    model = Stack(layer=kind(fewer, out=""))
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(IDS)
        with pytest.warns(RuntimeWarning, match="gives 2 heads, and gave 4 before"):
            model(IDS)
    assert watcher.layers[0].n_heads == HEADS


@pytest.mark.parametrize(
    ("module", "function", "why"),
    [
        ("blocks", told, r"attends='blocks': write module:name"),
        (nn.Module, told, "is neither a module, such as model.blocks"),
        (int, told, "is neither a module"),
        (Quotient, 3, "3 is no function of"),
        (Quotient, Quotient, "is no function of"),
        (Quotient, "tests.hooks.quotients:nothing", "tests.hooks.quotients has no nothing"),
    ],
)
def test_what_is_no_module_or_no_function(module: Any, function: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        tracer.attends(module, function)


def test_a_part_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"quotients:told goes with out='out', and Quotient has no part .*: qkv, proj"):
        tracer.attends(Quotient(), told, out="out")
    model = Stack(layer=kind(out="out")).eval()
    with pytest.warns(RuntimeWarning, match="goes with out='out', and Mine has no part"), pytest.raises(NoHeads):
        read(model)
    model = Stack(layer=kind(out="qkv")).eval()
    with pytest.warns(RuntimeWarning, match="pattern times v is not what qkv reads"), pytest.raises(NoHeads):
        read(model)


def test_both_may_be_named() -> None:
    name = f"{__name__}:Named"
    assert tracer.attends(name, "tests.hooks.quotients:told", out="proj") == "tests.hooks.quotients:told"
    assert read(Stack(layer=Named)).sizes["layer"] == 2
    tracer.attends(Named, partial(told), out="proj")
    assert read(Stack(layer=Named)).sizes["layer"] == 2


class Named(Quotient):
    pass


def test_the_stream_of_a_model_with_a_layout_is_that_of_recognised_attention() -> None:
    """A softmax that is declared instead of seen: switched off, attributed and explained as if it had been seen."""

    def of(module: Any, inputs: tuple[Any, ...], output: Any) -> dict[str, Any]:
        x = inputs[0]
        q, k, v = (one(x).unflatten(-1, (4, -1)).transpose(1, 2) for one in (module.query, module.key, module.value))
        return {"q": module.turned(module.of_query(q)), "k": module.turned(module.of_key(k)), "v": v, "causal": True}

    def other(module: Any, inputs: tuple[Any, ...], output: Any) -> tuple[Tensor, Tensor]:
        said = of(module, inputs, output)
        return linear(said["q"], said["k"]), said["v"]

    theirs, mine, wrong = (Mine().eval() for _ in range(3))
    for model, function, out in ((mine, of, "write"), (wrong, other, "")):
        model.load_state_dict(theirs.state_dict())
        for floor in model.tower:
            tracer.attends(floor.look, function, out=out)
    layout, ids = tracer.Layout(**LAYOUT), torch.randint(24, (3, 14), generator=torch.Generator().manual_seed(0))
    found, expected = (tracer.load_hf(one, layout=layout) for one in (mine, theirs))
    assert [one.code for one in found.layers] == [f"{__name__}:{of.__qualname__}"] * 2
    for ask in (
        lambda model: ablate.sweep(model, ids),
        lambda model: ablate.sweep(model, ids, "mean"),
        lambda model: tracer.logit_attribution(model, ids).heads,
        lambda model: tracer.why(model, ids[:1], 1, 2, 9, 4),
    ):
        np.testing.assert_allclose(ask(found), ask(expected), rtol=1e-3, atol=1e-5)
    with pytest.raises(
        ValueError, match=r"heads of layer 0 write is off|its pattern, which .*other says, is no softmax"
    ):
        tracer.load_hf(wrong, layout=layout)
