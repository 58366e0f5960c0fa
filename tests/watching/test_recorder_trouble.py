"""Whatever goes wrong in recording: one warning, and the training is what it would have been."""

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import tracer
from tests.watching.loops import batches
from tracer.heads.call import AttentionCall
from tracer.store import open_run
from tracer.watching.first_bad import BadTensor, FirstBad


class Sparse(nn.Module):
    """Its gradients of the embedding are sparse; its second call of a kind breaks when it is not training."""

    def __init__(self, inner: nn.Module, brittle: bool) -> None:
        super().__init__()
        self.inner, self.table, self.brittle = inner, nn.Embedding(20, 1, sparse=True), brittle

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if self.brittle and not self.training:
            raise KeyError("only for training")
        logits, loss = self.inner(idx, targets)
        return logits, loss + self.table(idx).square().mean()


def _loop(model: nn.Module, trained: nn.Module | None, recorder: Any, early: bool = False) -> list[Tensor]:
    optimizer = torch.optim.SGD((trained or model).parameters(), lr=0.1)
    torch.manual_seed(1)
    if early:
        recorder.step()
    for batch in batches(6):
        optimizer.zero_grad()
        loss = (trained or model)(batch[:, :-1], batch[:, 1:])[1]
        loss.backward()
        optimizer.step()
        if recorder is not None:
            recorder.step(loss)
    if recorder is not None:
        recorder.close()
    return [p.detach().clone() for p in (trained or model).parameters()]


TROUBLE: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "not in eval mode": (lambda gpt: Sparse(gpt(), True), {}, "KeyError: 'only for training'"),
    "sparse gradients": (lambda gpt: Sparse(gpt(), False), {}, ""),
    "another's tokenizer": (lambda gpt: gpt(), {"tokenizer": 30}, "30 tokens and the model's embedding 20"),
    "early step": (lambda gpt: gpt(), {}, "step.. came before any call of the model"),
    "a copy": (lambda gpt: gpt(), {}, "and not a copy, that is trained"),
    "a file in the way": (lambda gpt: gpt(), {"run": "file/run"}, "NotADirectoryError|FileExistsError"),
}


@pytest.mark.parametrize("what", TROUBLE)
def test_trouble_is_one_warning_and_the_training_goes_on(
    here: Path, gpt: Callable[..., Any], tokenizer_of: Callable[[int], Any], what: str
) -> None:
    make, options, says = TROUBLE[what]
    (here / "file").write_text("")
    torch.manual_seed(0)
    model = make(gpt)
    twin = copy.deepcopy(model)
    other = copy.deepcopy(model) if what == "a copy" else None
    expected = _loop(twin, None, None)
    if "tokenizer" in options:
        options = {"tokenizer": tokenizer_of(options["tokenizer"])}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        recorder = tracer.watch(model, **dict[str, Any](run="r", every=2) | options)
        found = _loop(model, other, recorder, early=what == "early step")
    texts = [str(one.message) for one in said if "manyeyes" in str(one.message)]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    if what == "sparse gradients":
        assert len(texts) <= 1
        return
    assert len(texts) == 1 and recorder.off is not None, texts
    with pytest.raises(RuntimeWarning, match=says):
        warnings.warn(texts[0], RuntimeWarning, stacklevel=1)


def test_what_goes_wrong_at_a_look_leaves_the_pass_alone(
    here: Path, gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = gpt(), torch.zeros(2, 5, dtype=torch.long)
    recorder = tracer.watch(model, run="r", every=5, max_logits="every")
    model(ids)
    recorder.step(0.5)
    monkeypatch.setattr(AttentionCall, "row_maxima", lambda call: 1 / 0)
    with pytest.warns(RuntimeWarning, match="stopped recording r, training goes on. Why: ZeroDivisionError"):
        assert model(ids)[0].shape == (2, 5, 20)
    assert model(ids)[0].shape == (2, 5, 20) and not model.h[0].attn._forward_hooks
    recorder.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Any]:
    """A mesh of this one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/sync", rank=0, world_size=1)
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_of_sharded_weights_no_clamp_is_held_and_none_is_none(
    here: Path, alone: Any, build: Callable[..., Any]
) -> None:
    model = build("gpt2")
    fully_shard(model, mesh=alone)
    with tracer.watch(model, run="sharded", every=1) as recorder:
        recorder.clamp([])
        with pytest.raises(ValueError, match="no clamp can be held: the heads of this model may be split over proc"):
            recorder.clamp("L0H1 off")


def test_sharded_weights_without_attention_are_recorded(here: Path, alone: Any) -> None:
    model: Any = nn.Linear(4, 4)
    fully_shard(model, mesh=alone)
    recorder = tracer.watch(model, run="sharded", every=1)
    with pytest.warns(RuntimeWarning, match="without heads: no attention was seen in this FSDPLinear"):
        loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    recorder.step(loss)
    recorder.close()
    assert recorder.off is None and (open_run("sharded").trace["weight_norm"][0] > 0).all()


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_that_sharded_weights_are_not_kept_is_said_once(here: Path, alone: Any, build: Callable[..., Any]) -> None:
    model = build("gpt2")
    fully_shard(model, mesh=alone)
    recorder = tracer.watch(model, run="sharded", every=1)
    ids = torch.randint(0, 50, (8, 17), generator=torch.Generator().manual_seed(1))
    with pytest.warns(RuntimeWarning, match="keeps no snapshots in sharded") as said:
        for _ in range(2):
            loss = model(ids, labels=ids).loss
            loss.backward()
            recorder.step(loss)
        recorder.close()
    run = open_run("sharded")
    assert len(said) == 1 and recorder.off is None and run.steps == [] and run.status == "finished"
    assert run.trace.sizes["step"] == 3


@pytest.mark.parametrize(
    ("world", "next_step", "gathering", "off"),
    [(1, 5, False, True), (2, 5, False, False), (2, 5, True, True), (2, 0, False, True)],
)
def test_of_several_processes_one_in_trouble_goes_on_to_the_next_record(
    here: Path, world: int, next_step: int, gathering: bool, off: bool
) -> None:
    """There the others are told, who would wait for it for ever: unless it is there, or none was agreed upon."""
    recorder = tracer.watch(nn.Linear(2, 2), run="r")
    told = recorder._gathering
    recorder.ranks.world, told.next, told.under_way = world, next_step, gathering
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for why in ("first", "second"):
            with recorder._guard.safely():
                raise ValueError(why)
    assert (recorder.off, told.trouble) == (("first", "") if off else (None, "first")) and len(said) == off
    recorder.ranks.world = 1
    recorder.close()


def test_one_process_stops_at_once_and_several_where_all_do(here: Path) -> None:
    recorder = tracer.watch(nn.Linear(2, 2), run="r")
    assert not recorder.should_stop
    recorder._recording.telling.stop = True
    assert recorder.should_stop
    recorder.ranks.world = 2
    assert not recorder.should_stop
    recorder._gathering.stop = True
    assert recorder.should_stop
    recorder.ranks.world = 1
    recorder.close()


def test_of_several_processes_none_diverges_before_all_are_told(
    here: Path, gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = gpt(dropout=0.0)
    recorder = tracer.watch(model, run="r", every=4)
    *first, seventh, eighth = batches(8)  # the record of step 4 is complete when step 5 is over
    for batch in first:
        recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
    found = FirstBad("loss", BadTensor("the loss"), 6, "")
    monkeypatch.setattr(recorder._finite, "of_update", lambda step, kept: found)
    recorder.ranks.world, recorder._gathering.next = 2, 100
    recorder.step(model(seventh[:, :-1], seventh[:, 1:])[1])
    assert recorder.off is None and recorder.steps == 7 and recorder._not_finite.first is found
    recorder.ranks.world = 1
    with pytest.warns(RuntimeWarning, match="not finite at step 7, first in the loss"):
        recorder.step(model(eighth[:, :-1], eighth[:, 1:])[1])
    assert recorder.off is not None and open_run("r").status == "diverged"
