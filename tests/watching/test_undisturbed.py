"""Who watches changes nothing: outputs and gradients are the model's own to the bit, and buffers are as they were."""

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from tests.watching.conftest import FAMILIES
from tests.watching.loops import batches
from tracer.store import open_run
from tracer.watching.undisturbed import undisturbed

IDS = torch.randint(2, 20, (3, 9), generator=torch.Generator().manual_seed(0))


def leaves(output: Any) -> list[Tensor]:
    values = output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else [output]
    return [x for x in values if isinstance(x, Tensor)]


def case(name: str, build: Callable[..., Any], gpt: Callable[..., Any]) -> tuple[Any, dict[str, Any]]:
    if name in ("flash", "by hand"):
        return gpt(flash=name == "flash").eval(), {"idx": IDS}
    if name == "vit":
        return build(name), {"pixel_values": torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))}
    given: dict[str, Any] = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    given["attention_mask"][0, 6:] = 0
    return build(name, "eager" if name in ("gemma2", "bloom") else "sdpa"), given | (
        {"decoder_input_ids": IDS} if name in ("t5", "bart") else {}
    )


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ["flash", "by hand", *FAMILIES])
def test_a_watched_pass_returns_what_the_model_returns(
    build: Callable[..., Any], gpt: Callable[..., Any], name: str, grad: bool
) -> None:
    model, given = case(name, build, gpt)
    with torch.set_grad_enabled(grad):
        expected = leaves(model(**given))
        for _ in range(2):  # the first pass is checked, later ones are trusted
            with tracer.watch(model):
                found = leaves(model(**given))
            assert found and all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    if grad:
        grads = [gradients(model, out) for out in (found, expected)]
        assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def gradients(model: nn.Module, output: list[Tensor]) -> list[Tensor]:
    loss = torch.stack([x.square().sum() for x in output if x.requires_grad]).sum()
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [grad for grad in found if grad is not None]


class Counting(nn.Module):
    """Keeps statistics of what it sees, in training and in eval mode: in place, replaced, and as plain attributes."""

    def __init__(self, gpt: Any) -> None:
        super().__init__()
        self.inner, self.norm = gpt, nn.BatchNorm1d(20, momentum=0.3)
        self.register_buffer("counts", torch.zeros(20))
        self.register_buffer("moved", torch.zeros(20))
        self.alias, self.calls, self.plain = self.counts, 0, torch.zeros(20)

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits, _ = self.inner(idx, targets)
        seen = F.one_hot(idx, 20).sum((0, 1)).float()
        self.counts += seen
        self.moved = 0.5 * self.moved + seen
        self.plain += seen
        self.calls += 1
        random.random()
        np.random.rand()  # noqa: NPY002 (what data sets draw from)
        was, self.norm.training = self.norm.training, True
        logits = self.norm(logits.transpose(1, 2)).transpose(1, 2)
        self.norm.training = was
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def state(model: Any) -> list[Any]:
    return [*(b.clone() for b in model.buffers()), model.plain.clone(), model.alias.clone(), torch.tensor(model.calls)]


def test_what_a_model_counts_is_not_counted_by_measurements(here: Path, gpt: Callable[..., Any]) -> None:
    found = []
    for run in (None, "r"):
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        model = Counting(gpt())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        addresses = [b.data_ptr() for name, b in model.named_buffers() if name != "moved"]
        recorder = None if run is None else tracer.watch(model, run=run, every=1, held_out=next(batches(1)))
        for batch in batches(4):
            loss = model(batch[:, :-1], batch[:, 1:])[1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if recorder is not None:
                recorder.step(loss)
        if recorder is not None:
            recorder.close()
            assert recorder.off is None
        assert [b.data_ptr() for name, b in model.named_buffers() if name != "moved"] == addresses
        assert model.alias is model.counts
        drawn = torch.tensor(np.random.rand())  # noqa: NPY002
        found.append([*state(model), *model.parameters(), torch.rand(3), drawn])
    assert [i for i, (a, b) in enumerate(zip(*found, strict=True)) if not torch.equal(a, b)] == []
    assert np.isfinite(open_run("r").trace["val_loss"]).all()
    before = random.getstate()  # apart, as the checker of these tests' signatures draws too
    with undisturbed(model, torch.device("cpu")):
        model(batch[:, :-1], batch[:, 1:])
    assert random.getstate() == before


class Merging(nn.Linear):
    """As loralib's: train(False) adds the update of low rank to the frozen weight, train(True) takes it away."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, bias=False)
        self.a, self.b = nn.Parameter(torch.randn(2, d_in)), nn.Parameter(torch.randn(d_out, 2))
        self.weight.requires_grad_(False)
        self.merged = False

    def train(self, mode: bool = True) -> "Merging":
        if mode == self.merged:
            self.weight.data += (-1 if mode else 1) * self.b @ self.a
            self.merged = not mode
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (0 if self.merged else x @ self.a.T @ self.b.T)


class Gathering(nn.Module):
    """As mixtures of experts do it: each part puts a loss of its own into a list that the loop holds, too."""

    def __init__(self, inner: nn.Module, losses: list[Tensor]) -> None:
        super().__init__()
        self.inner, self.head, self.losses = inner, Merging(20, 20), losses
        self.seen, self.tables = {"tokens": 0}, [torch.zeros(20)]

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.inner(idx, targets)[0])
        self.losses.append(logits.square().mean())
        self.seen["tokens"] += idx.numel()
        self.tables[0] += F.one_hot(idx, 20).sum((0, 1))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def test_what_a_model_merges_and_gathers_is_its_own(here: Path, gpt: Callable[..., Any]) -> None:
    found = []
    for run in (None, "r"):
        torch.manual_seed(1)
        losses: list[Tensor] = []
        model = Gathering(gpt(), losses)
        frozen, table = model.head.weight.detach().clone(), model.tables[0]
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        recorder = None if run is None else tracer.watch(model, run=run, every=1)
        for batch in batches(3):
            loss = model(batch[:, :-1], batch[:, 1:])[1] + 0.01 * sum(losses)
            assert len(losses) == 1 and model.losses is losses and model.tables[0] is table
            losses.clear()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if recorder is not None:
                recorder.step(loss)
        if recorder is not None:
            recorder.close()
            assert recorder.off is None
        assert torch.equal(model.head.weight, frozen) and not model.head.merged and model.training
        found.append([*model.parameters(), table, torch.tensor(model.seen["tokens"])])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_what_modules_gather_is_copied_however_deep_and_shared_as_it_was() -> None:
    tensor, inner, model = torch.zeros(2), cast(Any, nn.Module()), cast(Any, nn.Module())
    model.inner = inner
    held: dict[str, Any] = {
        "nested": [[1], {"a": [tensor]}], "pair": ([tensor],), "ordered": OrderedDict(a=[1]), "seen": {1},
        "counts": Counter("aab"), "groups": defaultdict(list, a=[1]), "last": deque([[1], [2]], maxlen=2),
    }  # fmt: skip
    held["itself"] = [held["nested"]]
    held["itself"].append(held["itself"])
    vars(model).update(held)
    inner.nested = model.nested
    was = {name: repr(x) for name, x in held.items()}
    with undisturbed(model, torch.device("cpu")):
        assert {name: repr(getattr(model, name)) for name in held} == was
        assert inner.nested is model.nested is model.itself[0] and model.itself[1] is model.itself
        assert model.nested[1]["a"][0] is model.pair[0][0]
        model.nested[0].append(2)
        model.nested[1]["a"][0].add_(1)
        model.pair[0].append(tensor)
        model.ordered["a"].append(2)
        model.ordered["b"] = []
        model.seen.add(2)
        model.counts.update("a")
        model.groups["b"].append(1)
        model.last[0].append(2)
        model.last.append([3])
    assert all(getattr(model, name) is x for name, x in held.items()) and inner.nested is model.nested
    assert {name: repr(x) for name, x in held.items()} == was


def test_another_thread_may_use_the_model_meanwhile() -> None:
    model, found = cast(Any, nn.Module()), []
    model.waiting = waiting = deque([1, 2])

    class Passing:
        """Goes when the measurement ends, and looks at the model just then, as another thread would."""

        def __del__(self) -> None:
            found.append(hasattr(model, "waiting"))

    with undisturbed(model, torch.device("cpu")):
        model.passing = Passing()
        waiting.append(3)
        waiting.popleft()
    assert list(waiting) == [2, 3] and model.waiting is waiting and found == [True]
