"""A model of somebody's own in our loop: our data, optimiser and seeds, and the run that `watch(build=)` gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from tests.own_data import Addition, named_here_alone  # noqa: F401 (a fixture)
from tests.own_gpt import LAYOUT, Floor, Mine, Norm
from tests.trainings import tiny
from tracer.cli import configs, trainings
from tracer.config import TrainConfig
from tracer.data.probes import per_token_loss
from tracer.huggingface.architectures import Layout
from tracer.store import Run
from tracer.store.choosing import settings
from tracer.training import loop
from tracer.training.job import dropout_seed

HERE = f"{__name__}:"


class Small(Mine):
    """Sizes as the configuration says, weights as torch's dice do, and dropout."""

    def __init__(self, config: TrainConfig) -> None:
        nn.Module.__init__(self)
        model = config.model
        assert model.d_vocab is not None
        self.words, self.places = nn.Embedding(model.d_vocab, 32), nn.Embedding(model.n_ctx, 32)
        self.last, self.say = Norm(32), nn.Linear(32, model.d_vocab, bias=False)
        self.tower = nn.ModuleList(Floor(32, 4, 4, "", False) for _ in range(model.n_layers))
        self.drop = nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> Any:
        return SimpleNamespace(logits=self.drop(super().forward(ids)))


def doubled(logits: Tensor, batch: tracer.LossBatch) -> Tensor:
    return 2 * F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")


def train(directory: Path, build: Any = Small, steps: int = 8, **options: Any) -> Run:
    return tracer.train(tiny(directory, steps=steps), quiet=True, build=build, **options)


def updates_of(run: Run) -> Any:
    return run.updates


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("own") / "own"
    return train(directory, f"{HERE}Small", layout=Layout(**LAYOUT), tags=["mine"], loss=doubled)


def test_it_is_trained_on_our_batches_by_our_optimiser_from_the_seed(run: Run) -> None:
    """By hand: the same losses and weights."""
    config = tiny(Path("x"), steps=8)
    job = loop.prepare(config)
    filled = replace(config, model=replace(config.model, d_vocab=job.data.d_vocab))
    torch.manual_seed(config.seed)
    model = Small(filled)
    ours = config.optim
    optimizer = torch.optim.AdamW(model.parameters(), ours.lr, (0.9, ours.beta2), weight_decay=ours.weight_decay)
    found = []
    for step in range(8):
        rows = job.data.train(step, 8)
        torch.manual_seed(dropout_seed(config.seed, step, 0))
        loss = F.cross_entropy(model(rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        (2 * loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), ours.clip or float("inf"))
        optimizer.step()
        found.append(loss.item())
    np.testing.assert_allclose(updates_of(run)["train_loss"], found, rtol=1e-5)
    np.testing.assert_allclose(updates_of(run)["loss_doubled"], 2 * np.array(found), rtol=1e-5)
    kept: Any = run.model(8, build=Small)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(kept.model.state_dict()[name], weight, rtol=1e-3, atol=1e-4)


def test_its_held_out_loss_is_that_of_our_rows(run: Run) -> None:
    data = loop.prepare(tiny(Path("x"))).data
    rows, model = data.val(8), run.model(8, build=Small)
    assert float(run.trace["val_loss"][-1]) == pytest.approx(
        per_token_loss(model(rows[:, :-1]), rows).mean().item(), rel=1e-5
    )
    assert run.trace["step"].values.tolist() == [0, 1, 2, 4, 8] and np.isfinite(run.trace["val_loss"]).all()
    assert run.trace["val_loss"].attrs["units"] == "nats" and run.trace["train_loss"].attrs["chance"] > 4


def test_it_is_the_run_that_watching_gives(run: Run) -> None:
    assert (run.status, run.about.kind, run.meta["build"], run.meta["loss"]) == (
        "finished", "watched", f"{HERE}Small", f"{HERE}doubled",
    )  # fmt: skip
    assert run.about.steps == 8 and run.about.batch_tokens == 320 and run.meta["tags"] == ["mine"]
    assert (
        settings(run)["build"] == f"{HERE}Small"
        and settings(run)["optim.lr"] == tiny(Path("x")).optim.lr
        and run.meta["corpus"]["name"] == "repeated-random"
    )
    model: Any = run.model(8, build=f"{HERE}Small")
    tokens = torch.arange(1, 9)[None]
    assert model.residual_stream(tokens).logits.shape == (1, 8, run.about.d_vocab)
    assert {"induction", "previous_token", "entropy"} <= set(run.trace) and "unigram" in run.meta["references"]


def test_it_is_neither_gone_on_with_nor_forked(run: Run, tmp_path: Path) -> None:
    again: tuple[Callable[[], Any], ...] = (
        lambda: tracer.resume(run.dir), lambda: tracer.fork(run, 4, tiny(tmp_path / "fork", steps=12)),
    )  # fmt: skip
    for go_on in again:
        with pytest.raises(ValueError, match=f"No state of its optimiser .* anew, `tracer train ... --build {HERE}Sm"):
            go_on()
    assert "trained anew" in run.why_not("resume")


class Wide(Small):
    def forward(self, ids: Tensor) -> Any:
        return F.pad(super().forward(ids).logits, (0, 1))


class Narrow(Small):
    def forward(self, ids: Tensor) -> Any:
        return super().forward(ids).logits[:, -1]


def broken(config: TrainConfig) -> nn.Module:
    raise KeyError("sizes")


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (broken, "broken could not build a model: KeyError: 'sizes'"), (lambda config: 3, "returned an int, and no"),
        (lambda config: nn.ReLU(), "without a parameter"), (nn.Linear(2, 2), "could not build a model"),
        (Wide, r"must give logits \[batch pos d_vocab\] = \[2, 40, 65\], .*not logits \[2, 40, 66\]"),
        (Narrow, "or an output that has them, not a Tensor"), (lambda config: nn.Linear(3, 3), "the model raised"),
        ("nowhere:f", "cannot be imported"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_before_anything_is_written(build: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^build=.*{why}"):
        train(tmp_path / "r", build)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"clamp": ("L0H1 off",)}, "clamp=L0H1 off goes by names"),
        ({"optim": {"compile": True}}, "compile parts of the model where it is built"),
        ({"optim": {"name": "muon"}}, "adamw or sgd"), ({"optim": {"qk_lr_factor": 2.0}}, "qk_lr_factor=2.0"),
    ],
)  # fmt: skip
def test_what_only_our_model_can_is_refused(changes: Any, why: str, tmp_path: Path) -> None:
    config = configs.merged(tiny(tmp_path / "r"), changes)
    with pytest.raises(ValueError, match=why):
        tracer.train(config, build=Small)


def test_a_layout_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give build= too"):
        tracer.train(tiny(tmp_path / "r"), layout=Layout(**LAYOUT))


def test_a_file_names_it_and_a_run_never(run: Run, tmp_path: Path) -> None:
    asked = tmp_path / "mine.yaml"
    asked.write_text("preset: induction\nbuild: mine:make\n")
    assert configs.code(asked)["build"] == ("mine:make",) and configs.read(asked)[1] == "induction"
    path = run.dir / "run.json"
    with pytest.raises(ValueError, match=f"is of a training with loss={HERE}doubled"):
        configs.code(path)
    with pytest.raises(ValueError, match=f"with build={HERE}Small, .*name it, --build {HERE}Small, or another"):
        configs.code(path, ["loss"])
    assert configs.code(path, ["loss", "build"]) == configs.NO_CODE
    config, _ = configs.read(path)
    assert config.steps == 8 and config.model.d_vocab == run.about.d_vocab


def test_a_series_is_trained_where_nothing_stands(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s-0").symlink_to(run.dir)
    code = {**configs.NO_CODE, "build": (f"{HERE}Small",)}
    with pytest.raises(ValueError, match="s-0 holds a run: give these another --run"):
        trainings.train_all(tiny(tmp_path / "s"), None, (0,), (), (), code=code)


class Silent(Small):
    """Gives logits in eval mode only."""

    def forward(self, tokens: torch.Tensor) -> Any:
        return None if self.training else super().forward(tokens)


def test_no_logits_in_training_are_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gives no logits when it trains"):
        train(tmp_path / "silent", f"{HERE}Silent")
