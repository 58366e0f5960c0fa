"""A watched loop says which value was the first that was not finite, at which update, and says it before the next."""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tracer
from tests.tiers import quick
from tests.watching.loops import batches
from tests.watching.test_gathering import stand_in
from tracer.heads.call import AttentionCall
from tracer.store import Run, open_run
from tracer.watching import first_bad
from tracer.watching.finite_check import FiniteCheck, _norm, _spread, _sum
from tracer.watching.first_bad import Model
from tracer.watching.pace import Pace
from tracer.watching.watcher import Watcher

AT = 12
"""The update at which something is put in."""


def infinite_w_v(model: Any, _: Any) -> None:
    model.h[1].attn.c_attn.weight[48 + 12 : 48 + 18] = torch.inf  # W_V of L1H2


def huge_w_q_and_w_k(model: Any, _: Any) -> None:
    model.h[1].attn.c_attn.weight[:48] *= 1e20


def nan_row(model: Any, _: Any) -> None:
    model.wte.weight[7] = torch.nan


def nan_row_uncounted(model: Any, _: Any) -> None:
    model.wte.weight.data[7] = torch.nan  # which torch does not count as a write to the weight


def overflow(_: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = torch.inf


def nothing(*_: Any) -> None: ...


class NanGradient(torch.autograd.Function):
    """x, whose gradient is no number."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * torch.nan


CAUSES: dict[str, tuple[Callable[[Any, Any], None], str, str, int | None, int | None, str]] = {
    "an infinite W_V": (infinite_w_v, "weight", "h.1.attn.c_attn.weight", 1, 2, "not finite"),
    "W_Q and W_K x 1e20": (huge_w_q_and_w_k, "activation", "attention scores of h.1.attn", 1, None, "not finite"),
    "a NaN gradient": (nothing, "gradient", "gradient of h.0.ln_1.bias", 0, None, "finite"),
    "loss x NaN": (nothing, "loss", "the loss", None, None, "not finite"),
    "a NaN row": (nan_row, "weight", "wte.weight", None, None, "not finite"),
    "a NaN row, not counted": (nan_row_uncounted, "weight", "wte.weight", None, None, "not finite"),
    "an overflow in the optimiser": (overflow, "update", "wte.weight", None, None, "finite"),
}
"""What is put in; then the cause, the tensor, its layer and head, and the loss of that update."""


def train(
    model: Any,
    cause: str,
    put: Callable[[Any, Any], None],
    on_finding: Any = None,
    inside: bool = False,
    every: int = 5,
) -> tuple[Run, int]:
    """The run, and the updates made before its loop was asked to stop."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    made = 0
    with tracer.watch(model, run="r", every=every, on_finding=on_finding) as recorder:
        for step, batch in enumerate(batches(20)):
            if step == AT:
                with torch.no_grad():
                    put(model, optimizer)
            if step == AT and cause == "a NaN gradient":
                hook = model.h[0].ln_1.register_forward_hook(lambda _, __, output: NanGradient.apply(output))
            x, y = batch[:, :-1], batch[:, 1:]
            logits, loss = model(x, y) if inside else (model(x)[0], None)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten()) if loss is None else loss
            if step == AT and cause == "a NaN gradient":
                hook.remove()
            loss = loss * torch.nan if step == AT and cause == "loss x NaN" else loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
            made = step + 1
            if recorder.should_stop:
                break
    return open_run("r"), made


@pytest.mark.parametrize("cause", quick(CAUSES, ("a NaN row", "an infinite W_V", "an overflow in the optimiser")))
def test_each_cause_has_its_answer(here: Path, gpt: Callable[..., Any], cause: str) -> None:
    put, kind, where, layer, head, loss = CAUSES[cause]
    with pytest.warns(RuntimeWarning, match=f"not finite at step {AT}, first in {where}"):
        run, made = train(gpt(dropout=0.0), cause, put, "stop")
    found = run.meta["divergence"]
    first = found["non_finite"]
    assert (found["step"], found["cause"], found["loss"]) == (AT, kind, loss), found
    assert (first["where"], first["layer"], first["head"], first["step"]) == (where, layer, head, AT), found
    assert run.status == "diverged" and made == AT + 1, "the loop was asked to stop before the next update"
    assert run.updates is not None and run.updates["step"].values.tolist() == list(range(AT + 1))
    finding = tracer.diagnose(run)[0]
    said = f"{finding.evidence} {finding.source} {finding.advice}"
    assert finding.kind == "divergence" and finding.step == AT and where in finding.evidence and "repla" not in said
    assert finding.heads == (((1, 2),) if head is not None else ())


def test_what_is_read_again_and_again_for_nothing_is_read_no_more() -> None:
    """Gradients whose squares overflow, and which are finite: each look is a pass of the model, 8 in all."""
    module = nn.Linear(3, 3)
    looks = []
    module.register_forward_hook(lambda *_: looks.append(1))
    check, optimizer = FiniteCheck(Pace(0.05, None)), torch.optim.SGD(module.parameters())
    check.watch(
        Model(module, dict(module.named_parameters()), Watcher(module, keep=0), None, ()), contextlib.nullcontext
    )
    for step in range(12):
        check.called((torch.ones(2, 3),), {})
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, 3e38)
        check.before(optimizer, step, None)
        assert check.of_update(step, lambda _: None) is None
        assert len(looks) == min(step + 1, 8)


@pytest.mark.parametrize(
    ("given", "n", "kept"),
    [(10, 4, [0, 3, 6, 9]), (10, 8, [0, 1, 3, 4, 5, 6, 8, 9]), (3, 8, [0, 1, 2]), (5, 1, [0]), (1, 8, [0]), (0, 8, [])],
)
def test_a_sample_has_the_first_and_the_last(given: int, n: int, kept: list[int]) -> None:
    assert [int(x) for x in _spread([torch.tensor(i) for i in range(given)], n)] == kept


def test_a_sum_of_a_sample_is_not_finite_where_one_of_its_numbers_is_not() -> None:
    """Of tensors of other shapes, strides and precisions, 4,096 numbers of each."""
    many = torch.zeros(5000)
    many[4096] = torch.inf
    square = torch.arange(6.0).view(2, 3)
    assert float(_sum([many, square])) == 15 and float(_sum([square.T, many])) == 0 + 3  # its first row alone
    assert _sum([square, square.double()]) == 30
    many[4095] = torch.nan
    assert math.isnan(float(_sum([many, square])))
    sparse = torch.eye(3).to_sparse()
    assert float(_sum([sparse])) == 3
    assert _norm([square, many[:3]]) == pytest.approx(55**0.5) and _norm([]) == 0


@pytest.mark.parametrize(("part", "bad", "heads"), [("v", [1], (2, 3)), ("k", [0, 1], ()), ("q", [3], (3,))])
def test_the_heads_of_a_part_that_is_not_finite(part: str, bad: list[int], heads: tuple[int, ...]) -> None:
    """Two heads of queries read one of keys and values; where all are not finite, none is named."""
    x = {name: torch.ones(1, 3, n, 2) for name, n in (("q", 4), ("k", 2), ("v", 2))}
    x[part][0, 1, bad, 0] = float("inf")
    call = stand_in(AttentionCall, n_heads=4, first_head=0, **x)
    assert first_bad._of_call(call) == (part, heads)
