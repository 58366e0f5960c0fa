"""Which rows moved a head: parts that add up, and a step without a row that is made by hand in float64."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tiers import quick
from tests.training.test_own_loss import by_hand
from tests.trainings import tiny
from tracer.cli.rows_command import lines
from tracer.config import TrainConfig
from tracer.data import build, probes
from tracer.interventions.edits import recording
from tracer.model import Transformer
from tracer.store import Run
from tracer.training import interrupts, loop
from tracer.training.which_rows import which_rows


def of_kind(directory: Path, **changes: Any) -> TrainConfig:
    """Plain SGD, so that an update is a rate times a gradient."""
    config = tiny(directory, steps=6)
    optim = replace(config.optim, name="sgd", momentum=0.0, weight_decay=0.0, warmup=0, clip=None, lr=0.5)
    record = replace(config.record, every=2, snapshot_every=2, state_every=2, repeat_rows=8)
    return replace(config, optim=replace(optim, **changes.pop("optim", {})), record=record, **changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return loop.train(of_kind(tmp_path_factory.mktemp("runs") / "r"), quiet=True)


def induction(model: Transformer, of: probes.ProbeR, head: tuple[int, int]) -> float:
    """By its definition, from the pattern: attention of the second copy to what came after the first."""
    with recording(tap := f"blocks.{head[0]}.attn.hook_pattern") as seen, torch.no_grad():
        model(of.tokens)
    pattern, found = seen[tap][:, head[1]], []
    for row, period in enumerate(of.periods.tolist()):
        found += [pattern[row, q, q - period + 1] for q in range(of.second_copy.start, of.second_copy.stop)]
    return float(torch.stack(found).mean())


def test_a_step_without_a_row_is_that_of_a_hand_in_float64(run: Run) -> None:
    head, step = (1, 2), 4
    told = which_rows(run, step, head)
    config = run.config
    data = build(config.data, config.model.n_ctx, config.seed)
    of = probes.repeated(data.d_vocab, config.model.n_ctx, data.bos or 0, batch=config.record.repeat_rows)
    rows = data.train(step, config.optim.batch_size)
    model = cast(Transformer, run.model(step)).double().requires_grad_(True)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    n_targets = rows[:, 1:].numel()

    def after(kept: list[int]) -> float:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(weights[name])
        model.zero_grad()
        logits = model(rows[kept, :-1])
        (F.cross_entropy(logits.flatten(0, 1), rows[kept, 1:].flatten(), reduction="sum") / n_targets).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= config.optim.lr * cast(torch.Tensor, p.grad)
        return induction(model, of, head)

    every = list(range(len(rows)))
    whole = after(every)
    by_hand = [whole - after([row for row in every if row != left]) for left in every]
    assert np.ptp(by_hand) > 1e-6
    np.testing.assert_allclose(told["effect"], by_hand, atol=3e-8, rtol=0.02)
    assert told.attrs["after"] == pytest.approx(whole, abs=1e-7)
    np.testing.assert_array_equal(told["tokens"], rows)
    assert told.attrs["same"] == "weights equal to the bit, loss of the batch equal to the bit"


KINDS: dict[str, dict[str, Any]] = {
    "plain": {}, "accumulated": {"optim": {"accumulate": 2}}, "dropout": {"dropout": 0.2},
    "dropout, accumulated": {"dropout": 0.2, "optim": {"accumulate": 2}}, "muon": {"optim": {"name": "muon"}},
}  # fmt: skip


@pytest.mark.parametrize("kind", quick(KINDS, ("dropout, accumulated",)))
def test_the_parts_add_up_and_the_step_is_the_runs(tmp_path: Path, kind: str) -> None:
    changes = KINDS[kind]
    config = of_kind(tmp_path / "r", **({"optim": changes["optim"]} if "optim" in changes else {}))
    config = replace(config, model=replace(config.model, dropout=changes.get("dropout", 0.0)))
    run = loop.train(config, quiet=True)
    told = which_rows(run, 4, (0, 1))
    np.testing.assert_allclose(told["share"].sum("row"), 1, atol=1e-5)
    assert float(told["loss"].mean()) == pytest.approx(told.attrs["batch_loss"], abs=1e-6)
    assert told.attrs["batch_loss"] == pytest.approx(float(run.trace["train_loss"].sel(step=4)), abs=1e-7)
    induction = run.trace["induction"][:, 0, 1].to_series()
    assert told.attrs["before"] == pytest.approx(induction[4], abs=1e-7)
    assert told["gradient"].dims == ("row", "matrix") and bool((told["gradient"] > 0).all())


def test_rows_of_the_mix_are_told(tmp_path: Path) -> None:
    config = of_kind(tmp_path / "r")
    text = tmp_path / "text.txt"
    text.write_text("one two three four five six seven eight nine ten " * 400)
    data = replace(config.data, corpus=str(text), mix="repeated-random", mix_share=0.5, vocab_size=300)
    run = loop.train(replace(config, data=data), quiet=True)
    told = which_rows(run, 2, (0, 0))
    mixed = told["mixed_in"].values
    assert 0 < mixed.sum() < len(mixed)
    for row, tokens in enumerate(told["tokens"].values):  # a block over and over, or a window of the text
        periods = [p for p in range(data.period_min, data.period_max + 1) if (tokens[1:-p] == tokens[1 + p :]).all()]
        assert bool(periods) is bool(mixed[row]) or "one two" in str(told["text"].values[row])
    assert "one two three" in "".join(told["text"].values[~mixed])
    shown = lines(told, 1)
    best, least = (int(one(told["effect"].values)) for one in (np.argmax, np.argmin))
    assert len(shown) == 5 and shown[3].split()[0] == str(best) and shown[4].split()[0] == str(least)
    assert sum("mixed" in one for one in lines(told, 100)) == mixed.sum()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((4, (2, 0)), "L2H0 is not there: 2 layers of 4 heads"),
        ((6, (0, 0)), "was trained from step 0 to 6"),
        ((4, (0, 0), "val_loss"), "'val_loss' is no measure of heads that every record has: entropy"),
        ((4, "L0H0"), "a head is .layer, head."),
    ],
)
def test_what_is_not_there_is_refused(run: Run, args: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        which_rows(run, *args)


def test_a_loss_of_ones_own_has_no_rows(tmp_path: Path) -> None:
    run = loop.train(of_kind(tmp_path / "own"), quiet=True, loss=by_hand)
    with pytest.raises(ValueError, match="own is trained on a loss of its own, of which no part is a row's"):
        which_rows(run, 4, (0, 0))


def test_it_works_in_one_process(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "processes", lambda: SimpleNamespace(num_processes=2))
    with pytest.raises(ValueError, match="works in one process: start it without `accelerate launch` .here are 2."):
        which_rows(run, 4, (0, 0))
