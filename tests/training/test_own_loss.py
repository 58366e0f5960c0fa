"""A training on a loss of somebody's own: the same loop, named again by whoever goes on, and refused in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.own_data import Uneven, named_here_alone  # noqa: F401 (a fixture)
from tests.training.test_own_corpus import small
from tests.trainings import tiny
from tracer.cli import configs, trainings
from tracer.diagnosis.rules import RULES
from tracer.store import Run
from tracer.store.choosing import differences, settings
from tracer.training import loop
from tracer.training.extras import Extras
from tracer.training.job import dropout_seed
from tracer.training.own_loss import LossBatch, OwnLoss, given_loss

HERE = f"{__name__}:"


def by_hand(logits: Tensor, batch: LossBatch) -> Tensor:
    """Next-token loss, written by a user"""
    return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())


def each(logits: Tensor, batch: LossBatch) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")


def noisy(logits: Tensor, batch: LossBatch) -> Tensor:
    """Rolls dice, and knows the step."""
    kept = torch.rand(batch.targets.shape) < 0.5
    return each(logits, batch).where(kept, 0.0) * (1 + batch.step / 10)


def of_attention(logits: Tensor, batch: LossBatch) -> Tensor:
    """What the first head of layer 0 gives to the token before; the model's own logits are not read."""
    seen = []

    def look(pattern: Tensor, hook: Any) -> None:
        seen.append(pattern)

    batch.model.run_with_hooks(batch.tokens, fwd_hooks=[("blocks.0.attn.hook_pattern", look)])
    return -seen[0][:, 0].diagonal(-1, 1, 2).mean().log()


def model_of(run: Run) -> dict[str, Tensor]:
    model: Any = run.model(run.steps[-1])
    return model.state_dict()


def equal(one: Run, other: Run) -> bool:
    mine, theirs = model_of(one), model_of(other)
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.fixture(scope="module")
def noisily(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return loop.train(tiny(tmp_path_factory.mktemp("runs") / "noisily", steps=8), quiet=True, loss=noisy)


def test_next_token_loss_by_hand_trains_to_the_bit_as_ours(tmp_path: Path) -> None:
    ours = loop.train(tiny(tmp_path / "ours", steps=8), quiet=True)
    run = loop.train(tiny(tmp_path / "by_hand", steps=8), quiet=True, loss=f"{HERE}by_hand")
    assert equal(ours, run) and "loss" not in ours.meta and run.meta["loss"] == f"{HERE}by_hand"
    of_ours, of_theirs = ours.trace, run.trace
    for name in of_ours:
        if name != "step_ms":
            np.testing.assert_array_equal(of_ours[name], of_theirs[name], str(name))
    np.testing.assert_array_equal(of_theirs["loss_by_hand"], of_ours["train_loss"])
    said = of_theirs["loss_by_hand"].attrs
    assert said["long_name"] == "Loss trained on: by_hand" and said["source"] == f"{HERE}by_hand"
    assert said["formula"] == "Next-token loss, written by a user"


def job_of(directory: Path, loss: Any, accumulate: int = 1) -> loop.Job:
    config = small(directory)
    config = replace(config, optim=replace(config.optim, accumulate=accumulate))
    return loop.prepare(loop.on_corpus(config, Uneven), given_loss(loss))


def test_one_number_a_target_is_a_mean_over_those_that_count_however_they_are_shared_out(tmp_path: Path) -> None:
    """Ours, of data with a mask, is the oracle; in other sums, so not to the bit."""
    whole = job_of(tmp_path, None)
    expected, gradients = loop.forward_backward(whole, 3), [p.grad for p in whole.raw.parameters()]
    for parts in (1, 4):
        job = job_of(tmp_path, each, parts)
        assert float(loop.forward_backward(job, 3)) == pytest.approx(float(expected), rel=1e-6)
        for parameter, gradient in zip(job.raw.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-7)
        assert job.next_token is not None and float(job.next_token) == pytest.approx(float(expected), rel=1e-6)
        later = job_of(tmp_path, lambda logits, batch: each(logits, batch) * batch.step, parts)
        assert float(loop.forward_backward(later, 3)) == pytest.approx(3 * float(expected), rel=1e-6)


def test_one_number_is_a_mean_over_micro_batches(tmp_path: Path) -> None:
    whole, parted = (float(loop.forward_backward(job_of(tmp_path, by_hand, parts), 3)) for parts in (1, 4))
    assert parted == pytest.approx(whole, rel=1e-6)


def test_what_is_trained_on_stands_beside_the_next_token_loss(noisily: Run) -> None:
    """By hand at step 0, from the batch and the dice that are functions of (seed, step)."""
    job = loop.prepare(replace(noisily.config, run=None))
    rows = job.data.train(0, 8)
    losses = each(job.raw(rows[:, :-1]), LossBatch(rows[:, :-1], rows[:, 1:], rows[:, 1:] >= 0, 0)).detach()
    torch.manual_seed(dropout_seed(noisily.config.seed, 0, 0))
    kept = torch.rand(losses.shape) < 0.5
    first = noisily.trace.sel(step=0)
    assert float(first["train_loss"]) == pytest.approx(losses.mean().item(), rel=1e-6)
    assert float(first["loss_noisy"]) == pytest.approx(losses.where(kept, 0).mean().item(), rel=1e-6)
    assert noisily.trace["loss_noisy"].attrs["worse"] == "high"


def test_a_loss_may_ask_the_model_and_its_gradients_are_of_what_it_asked(tmp_path: Path) -> None:
    job = loop.prepare(tiny(tmp_path / "run"), given_loss(of_attention))
    loss = loop.forward_backward(job, 0)
    tokens = job.data.train(0, 8)[:, :-1]
    pattern = job.raw.run_with_cache(tokens)[1]["pattern", 0]
    expected = -np.log(np.mean([[row[q, q - 1] for q in range(1, 40)] for row in pattern[:, 0].detach().numpy()]))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    moved = {name for name, p in job.raw.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert {"blocks.0.attn.W_Q", "blocks.0.attn.W_K"} <= moved and not {"unembed.W_U", "blocks.0.attn.W_O"} & moved
    assert float(job.raw.blocks[0].attn.W_Q.grad[1].abs().sum()) == 0


REFUSED: dict[str, Callable[[Tensor, LossBatch], Any]] = {
    r"must return one number, or one for each target, \[8, 40\], .* not torch.float32 \[8\]$":
        lambda logits, batch: each(logits, batch).mean(1),
    "not a float$": lambda logits, batch: by_hand(logits, batch).item(),
    r"not torch.int64 \[\]$": lambda logits, batch: logits.argmax(-1).sum(),
    "does not depend on the logits": lambda logits, batch: by_hand(logits.detach(), batch),
    "no parameter of the model is in what": lambda logits, batch: torch.ones((), requires_grad=True) * 2,
    "it is nan on the first batch": lambda logits, batch: by_hand(logits, batch) * float("nan"),
    "its gradient of .* is not finite": lambda logits, batch: (logits - logits.detach()).square().sum().sqrt(),
    "it raised KeyError: 'labels'": lambda logits, batch: vars(batch)["labels"],
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_trained_on_is_refused_before_anything_is_written(why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^loss={HERE}<lambda>: .*{why}"):
        loop.train(tiny(tmp_path / "run", steps=2), quiet=True, loss=REFUSED[why])
    assert not (tmp_path / "run").exists()


def test_the_trial_rolls_no_dice(tmp_path: Path) -> None:
    job = loop.prepare(tiny(tmp_path / "run"), given_loss(noisy))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    loop.check_loss(job, 0)
    assert torch.equal(torch.get_rng_state(), before) and all(p.grad is None for p in job.raw.parameters())


@pytest.mark.parametrize(("given", "why"), [("nowhere:f", "cannot be imported"), (f"{HERE}HERE", "not a function")])
def test_what_is_no_function_is_refused(given: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^loss=.*{why}"):
        OwnLoss(given)


def by_position(logits: Tensor, batch: LossBatch) -> Tensor:
    return by_hand(logits, batch)


def test_its_variable_is_nobody_elses() -> None:
    with pytest.raises(ValueError, match="it would be loss_by_position: every run has a number of this name"):
        OwnLoss(by_position)
    probes: Any = {"loss": loop_probe()}
    with pytest.raises(ValueError, match="a measure or a probe has the name loss_noisy"):
        Extras.given((), probes, (), noisy)


def loop_probe() -> Any:
    from tracer.data.own_probe import Probe

    return Probe([[1, 2, 3]], {"noisy": [(2, 0)]})


def test_rules_of_the_next_token_loss_are_not_asked(noisily: Run) -> None:
    meta = {**noisily.meta, "references": {"unigram": 3.0}}
    rows = noisily.trace.isel(step=np.resize(np.arange(noisily.trace.sizes["step"]), 20))
    for name in ("chance", "unigram"):
        rule = RULES[name]
        assert not rule.can_see(meta, rows) and rule.can_see({**meta, "loss": None}, rows), name


def test_runs_that_differ_in_it_alone_differ(noisily: Run) -> None:
    plain = {name: value for name, value in settings(noisily).items() if name != "loss"}
    assert differences([settings(noisily), plain]) == {"loss": [f"{HERE}noisy", None]}


def test_a_file_names_it_and_a_run_never(tmp_path: Path) -> None:
    asked, run = tmp_path / "mine.yaml", tmp_path / "run.json"
    asked.write_text("preset: demo\nloss: mine:f\n")
    assert configs.code(asked)["loss"] == ("mine:f",) and configs.read(asked)[1] == "demo"
    asked.write_text("loss: [mine:f, mine:g]\n")
    with pytest.raises(ValueError, match="loss=.*a run has one"):
        configs.code(asked)
    run.write_text('{"format": 1, "config": {"steps": 7}, "loss": "mine:f"}')
    with pytest.raises(ValueError, match="name it, --loss mine:f, or another, such as --loss next-token"):
        configs.code(run)
    assert configs.code(run, ["loss"]) == configs.NO_CODE


def test_a_series_does_not_take_a_run_of_another_loss_for_its_own(noisily: Run) -> None:
    config = replace(noisily.config, run=str(noisily.dir.parent / "noisily"))
    (noisily.dir.parent / "noisily-0").symlink_to(noisily.dir)
    with pytest.raises(ValueError, match=f"was trained on the loss {HERE}noisy: name it, --loss {HERE}noisy, or give"):
        trainings.train_all(config, None, (0,), (), ())
    same = {**configs.NO_CODE, "loss": (f"{HERE}noisy",)}
    assert trainings.train_all(config, None, (0,), (), (), code=same) == "finished"
