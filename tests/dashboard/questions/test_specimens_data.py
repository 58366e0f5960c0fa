"""Which run is which specimen, what came of it, and the lines that show it: runs written by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dashboard import shipped
from dashboard.views.specimens import data
from dashboard.views.specimens.data import LossSetting
from tests.dashboard.questions.conftest import trace_into
from tracer.config import TrainConfig
from tracer.heads.definitions import entropy
from tracer.pictures import curves, payload
from tracer.pictures.montage import montage
from tracer.presets import PRESETS
from tracer.specimens.system_figures import Outcome, outcome
from tracer.specimens.tutorials import CLAIMS, SPECIMENS
from tracer.store import Run

NAN = float("nan")
HEADS = ("layer", "head")
AXES = ("prompt", "layer", "head", "query_pos", "key_pos")
Make = Callable[..., Run]
EXERCISES = {name: one.exercise for name, one in SPECIMENS.items() if one.exercise}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make("name", "single-head", model={...}, recorded=(steps, values, coords), status=...): a run of that preset."""

    def made(
        name: str, specimen: str, recorded: tuple[Any, ...] = (), model: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None, **facts: Any,
    ) -> Run:  # fmt: skip
        base: TrainConfig = PRESETS[f"{specimen}-small"].config
        base = replace(base, model=replace(base.model, **(model or {})), **(config or {}))
        directory = tmp_path / name
        (directory / "snapshots").mkdir(parents=True)
        meta = {
            "format": 1, "config": asdict(base), "preset": f"{specimen}-small", "d_vocab": 100, "n_params": 9,
            "status": "finished", "created": "2026-01-02T03:04:05+00:00", "step": 20,
        }  # fmt: skip
        (directory / "run.json").write_text(json.dumps(meta | facts))
        if recorded:
            trace_into(directory, *recorded)
        return Run(directory)

    return made


def settings(runs: list[Run], *series: str) -> list[tuple[int, dict[str, str]]]:
    """By seed, the name of the run that stands for each specimen."""
    found = data.trained(runs, series) if series else data.trained(runs)
    return [(setting.seed, {name: run.name for name, run in of.items()}) for setting, of in found.items()]


def test_what_makes_a_run_a_specimen(make: Make) -> None:
    base = PRESETS["single-head-small"].config
    (setting,) = data.trained([make("plain", "single-head")])
    assert setting == LossSetting(
        base.model.d_model, base.model.n_ctx, base.optim.batch_size, base.optim.lr, 100, base.data.corpus, base.seed
    )
    width = base.model.d_model
    known = [
        make("wider", "single-head", model={"d_model": 2 * width}),
        make("whole head", "single-head", model={"d_head": width}),
        make("published", "single-head", preset="single-head"),
        make("full", "multi-head-full", model={"d_head": PRESETS["multi-head-full-small"].config.model.d_model}),
    ]  # fmt: skip
    assert [len(data.trained([run])) for run in known] == [1] * 4
    unknown = [
        make("clamped", "single-head", config={"clamp": ("L0H0 off",)}), make("renamed", "single-head", preset="demo"),
        make("normed", "single-head", model={"norm": "rms"}), make("no preset", "single-head", preset=None),
        make("forked", "single-head", parent={"run": "a", "step": 3}), make("damaged", "single-head"),
        make("whole heads", "multi-head", model={"d_head": PRESETS["multi-head-small"].config.model.d_model}),
        make("half", "multi-head-full", model={"d_head": 8}),
    ]  # fmt: skip
    meta = json.loads((unknown[5].dir / "run.json").read_text())
    (unknown[5].dir / "run.json").write_text(json.dumps(meta | {"config": {"steps": "x"}}))
    assert [data.trained([run]) for run in unknown] == [{}] * 8


def test_the_setting_of_most_comes_first_and_of_two_runs_the_one_that_ended(make: Make) -> None:
    other = {"config": {"seed": 1}}
    runs = [
        make("alone", "single-head", **other), make("live", "multi-head", status="stopped"),
        make("one", "single-head"), make("ended", "multi-head"), make("older", "multi-head", status="diverged"),
        make("stopped", "single-head", status="stopped"),
    ]  # fmt: skip
    assert settings(runs) == [(0, {"multi-head": "ended", "single-head": "one"}), (1, {"single-head": "alone"})]
    assert settings(runs, "multi-head") == [(0, {"multi-head": "ended"})]
    stopped = [make("first", "two-blocks", status="stopped"), make("second", "two-blocks", status="stopped")]
    assert settings(stopped) == [(0, {"two-blocks": "first"})]


def test_shipped_runs_fill_in(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = [make("mine", "single-head"), make("lone", "multi-head", config={"seed": 2})]
    theirs = [make("theirs", "single-head"), make("more", "multi-head"), make("far", "multi-head", config={"seed": 1})]
    monkeypatch.setattr(shipped, "specimens", lambda: theirs)
    series = ("single-head", "multi-head")
    found = data.with_shipped(data.trained(mine, series), series)
    assert [(setting.seed, {name: run.name for name, run in of.items()}) for setting, of in found.items()] == [
        (0, {"single-head": "mine", "multi-head": "more"}), (2, {"multi-head": "lone"}), (1, {"multi-head": "far"}),
    ]  # fmt: skip


def measured(n_layers: int, n_heads: int, steps: list[int], **more: Any) -> tuple[Any, ...]:
    """Random measures of heads at these steps, a loss, and the patterns of two prompts of 5 tokens at each."""
    draw, n = np.random.default_rng(n_heads), len(steps)
    values = {name: (HEADS, draw.random((n, n_layers, n_heads)) * 2) for name in
              ("entropy", "current_token", "previous_token")}  # fmt: skip
    values |= {"train_loss": ((), np.linspace(3.0, 1.0, n)), "val_loss": ((), np.linspace(3.5, 2.0, n))}
    pattern = np.tril(draw.random((n, 2, n_layers, n_heads, 5, 5)).astype(np.float16))
    coords = {
        "prompt": (("prompt",), ["text 0", "text 1"], {}), "layer": (("layer",), list(range(n_layers)), {}),
        "head": (("head",), list(range(n_heads)), {}),
        "prompt_tokens": (("prompt", "query_pos"), np.ones((2, 5), np.int64), {"strings": [list("abcde")] * 2}),
    }  # fmt: skip
    values |= {"pattern": (AXES, pattern)} | more
    return steps, {name: value for name, value in values.items() if value is not None}, coords


def test_what_a_run_came_to(make: Make) -> None:
    plain, eyes = make("plain", "multi-head", measured(1, 4, [0, 9])), make("eyes", "many-eyes", measured(2, 6, [0, 9]))
    for run in (plain, eyes):
        assert repr(data.result(run)) == repr(outcome(run))
    foreign = make("unnamed", "multi-head", measured(1, 4, [0, 9]), preset=None)
    assert repr(data.result(foreign)) == repr(outcome(foreign))
    nothing = make("nothing", "multi-head")
    live = make("live", "multi-head", measured(1, 4, [0, 9]), status="stopped")
    broken = make("broken", "multi-head", measured(1, 4, [0, 9], entropy=None), status="diverged")
    assert data.result(nothing) is None and data.result(broken) is None
    found = data.outcomes({"a": plain, "b": nothing, "c": live, "d": broken})
    assert [(name, one.run) for name, one in found.items()] == [("a", "plain")]


def test_the_share_on_the_token_before_at_the_end(make: Make) -> None:
    shares = np.array([[[0.1, 0.1, 0.4]], [[0.2, 0.3, 0.7]], [[0.5, NAN, 0.2]]])
    run = make("shares", "multi-head", ([0, 5, 9], {"previous_token": (HEADS, shares)}, {}))
    assert data.previous_share(run) == pytest.approx(0.4)
    none = make("unknown", "multi-head", ([0], {"previous_token": (HEADS, shares[2:])}, {}))
    other = make("other", "multi-head", ([0], {"entropy": (HEADS, shares[2:])}, {}))
    assert all(np.isnan(data.previous_share(one)) for one in (none, other, make("empty", "multi-head")))


def came_to(step: int, loss: float, status: str = "finished") -> Outcome:
    return Outcome("r", status, step, 3.0, 2.5, ((2.5,),), loss, 9, 0.1)


def test_claims_are_judged_where_their_runs_can_be_compared(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "single-head": came_to(20, 3.0), "multi-head": came_to(20, 2.0), "multi-head-full": came_to(30, 2.0),
        "four-blocks": came_to(7, NAN, "diverged"), "four-blocks-rms": came_to(20, 1.0),
        "single-head-residual": came_to(5, 4.0),
    }  # fmt: skip
    monkeypatch.setattr(data, "outcomes", lambda runs: made)
    runs = {name: that_came_to(make, name, one) for name, one in made.items()}
    found = {one.claim.text: one for one in data.readings(runs)}
    assert [one.claim for one in found.values()] == list(CLAIMS)
    said = {text: one.verdict for text, one in found.items()}
    assert said["multi-head is better than single-head"] == "holds"
    assert said["with it, entropy stays above two thirds of the start"] == "holds"
    assert said["four-blocks diverges"] == "holds"
    full = found["multi-head-full is better than single-head"]
    assert (full.verdict, full.why) == ("not tested", "trained for 30 and 20 steps: not comparable")
    waits = found["two-blocks is better than multi-head"]
    assert (waits.verdict, waits.why) == ("not tested", "waits for two-blocks")
    made["multi-head-full"] = came_to(7, NAN, "diverged")  # which ended early, and may be compared
    runs["multi-head-full"] = that_came_to(make, "multi-head-full", made["multi-head-full"], "broken")
    again = {one.claim.text: one for one in data.readings(runs)}
    assert again["multi-head-full is better than single-head"].verdict == "fails"


def that_came_to(make: Make, specimen: str, one: Outcome, name: str = "") -> Run:
    values = {"entropy": (HEADS, np.array([[[one.entropy_start]], [[one.entropy_end]]])),
              "val_loss": ((), np.array([9.0, one.loss]))}  # fmt: skip
    return make(name or specimen, specimen, ([0, one.step], values, {}), status=one.status, step=one.step)


def test_small_curves_in_thousandths(make: Make) -> None:
    steps = list(range(100))
    draw = np.random.default_rng(0)
    heads, losses = draw.random((100, 2, 3)), draw.random(100)
    values = {"entropy": (HEADS, heads), "train_loss": ((), losses)}
    found = data.course(make("course", "multi-head", (steps, values, {})))
    at = np.linspace(0, 99, 48).round().astype(int)
    assert found["entropy"] == tuple(np.round(heads.mean((1, 2))[at], 3).tolist())
    assert found["training loss"] == tuple(np.round(losses[at], 3).tolist())
    assert data.course(make("none", "multi-head")) == {}


@pytest.mark.parametrize(
    ("n_layers", "n_heads", "names"),
    [(1, 1, ["head"]), (1, 2, ["heads"]), (2, 1, ["layer 0", "layer 1"]), (2, 3, ["layer 0", "layer 1"])],
)
def test_the_lines_of_a_run(n_layers: int, n_heads: int, names: list[str], make: Make) -> None:
    recorded = measured(n_layers, n_heads, [0, 5, 9], train_loss=((), np.array([500.0, 5.0, 1.0])))
    run = make("lined", "multi-head", recorded)
    values, found = {name: array for name, (_, array, *_) in recorded[1].items()}, data.lines(run)
    labels = [f"L{layer}H{head}" for layer in range(n_layers) for head in range(n_heads)]
    n = run.config.model.n_ctx
    uniform = math.fsum(math.log(keys) for keys in range(2, n + 1)) / (n - 1)
    assert found.entropy == curves.pack(
        [0, 5, 9], np.vstack([values["entropy"].reshape(3, -1).T, [uniform] * 3]), [*labels, "even attention"],
        groups=[*np.repeat(range(n_layers), n_heads).tolist(), n_layers], group_names=[*names, "even attention"],
        n_layers=n_layers,
    )  # fmt: skip
    shares = [values[name].mean((1, 2)) for name in ("current_token", "previous_token")]
    header, arrays = payload.unpack(found.looks)
    drawn = arrays["lines"] / 65534 * (header["hi"] - header["lo"]) + header["lo"]
    assert header["labels"] == ["own token", "previous"]
    np.testing.assert_allclose(drawn, shares, atol=1e-4)
    both = [values["train_loss"], values["val_loss"]]
    assert found.loss == curves.pack([0, 5, 9], both, ["train", "held-out"], log_y=True)
    assert found.n_heads == n_layers * n_heads and payload.header(found.entropy)["n_layers"] == n_layers


def test_lines_of_what_was_recorded(make: Make) -> None:
    run = make("bare", "multi-head", measured(1, 2, [0, 5], val_loss=None))
    assert payload.header(data.lines(run).loss)["labels"] == ["train"]
    poor = make("poor", "multi-head", measured(1, 2, [0, 5], entropy=None, train_loss=None))
    with pytest.raises(ValueError, match="^poor holds no entropy, train_loss$"):
        data.lines(poor)


def test_every_head_at_both_ends(make: Make) -> None:
    recorded = measured(1, 2, [0, 5, 9])
    pattern = recorded[1]["pattern"][1]
    run = make("ends", "multi-head", recorded)
    found = data.ends(run)
    assert [(end.step, end.alone) for end in found] == [(0, False), (9, False)]
    for end, row in zip(found, (0, 2), strict=True):
        thumbs = payload.unpack(end.atlas)[1]["thumbs"]
        np.testing.assert_allclose(thumbs / 255, np.sqrt(pattern[row, 0].astype(float)), atol=0.5 / 39 + 4e-3)
    for dark in (True, False):
        small = data.small_ends(run, dark)
        assert small == [(step, montage(pattern[row, 0].astype(float), dark=dark)) for row, step in ((0, 0), (2, 9))]
    assert data.small_ends(run, True) != data.small_ends(run, False)
    assert [end.alone for end in data.ends(make("one", "single-head", measured(1, 1, [3])))] == [True]
    for shape in ((2, 1), (1, 2)):
        assert not data.ends(make(f"several {shape}", "multi-head", measured(*shape, [3])))[0].alone
    none = make("none", "multi-head", measured(1, 2, [0], pattern=None))
    assert data.ends(none) == [] and data.small_ends(none, True) == []
    assert data.small_ends(make("nothing", "multi-head"), True) == [] and data.most_changed(none, True) is None


def test_the_head_that_changed_most(make: Make) -> None:
    """By the sum of what its cells changed by, first record to last; of one record the first head."""
    recorded = measured(2, 2, [0, 5, 9])
    pattern = recorded[1]["pattern"][1][:, 0].astype(float)
    changes = {one: float(np.abs(pattern[2][one] - pattern[0][one]).sum()) for one in np.ndindex(2, 2)}
    layer, head = max(changes, key=lambda one: changes[one])
    found = data.most_changed(make("moves", "two-blocks", recorded), dark=True)
    assert found is not None and found.label == f"L{layer}H{head}"
    one = [(step, pattern[row, layer : layer + 1, head : head + 1]) for row, step in ((0, 0), (2, 9))]
    assert found.images == tuple((step, montage(cells, dark=True)) for step, cells in one)
    alone = data.most_changed(make("still", "multi-head", measured(1, 2, [3])), dark=True)
    assert alone is not None and alone.label == "L0H0" and [step for step, _ in alone.images] == [3]


def test_published_entropies_without_the_first_row() -> None:
    assert data.published_entropy(SPECIMENS["single-head-scaled"]) == pytest.approx(0.089 * 32 / 31)
    assert data.published_entropy(SPECIMENS["multi-head"]) is None


def test_the_setting_of_the_small_ones() -> None:
    for name in ("single-head", "many-eyes"):
        base = PRESETS[f"{name}-small"].config
        small = LossSetting(base.model.d_model, base.model.n_ctx, base.optim.batch_size, base.optim.lr, 77,
                        base.data.corpus, 5)  # fmt: skip
        assert data.is_small(small, name) and not data.is_small(replace(small, lr=9.0), name)
        assert data.is_small(small) == (name == "single-head")


@pytest.mark.parametrize("name", list(EXERCISES))
def test_an_exercise_with_its_heads(name: str) -> None:
    done, found = EXERCISES[name](), data.ran(name)
    assert found.checks == done.checks
    n_heads, few = len(done.pattern), len(done.strings) <= 8
    assert len(found.heads) == (n_heads if few else 0)
    rows = [entropy(torch.from_numpy(one)).mean() for one in done.pattern]
    assert found.labels == tuple(f"L0H{head}, entropy {float(row):.2f}" for head, row in enumerate(rows))
    header, arrays = payload.unpack(found.atlas)
    assert arrays["there"].tolist() == [[1] * n_heads] and header["measures"] == []
    for head, blob in enumerate(found.heads):
        assert payload.header(blob)["label"] == f"L0H{head}"


@pytest.mark.parametrize(("n", "drawn"), [(8, True), (9, False)])
def test_few_tokens_have_pictures_of_their_own(n: int, drawn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(iter(EXERCISES))
    few = replace(EXERCISES[first](), pattern=np.full((1, n, n), 1 / n), strings=tuple(map(str, range(n))))
    monkeypatch.setitem(SPECIMENS, f"of {n}", replace(SPECIMENS[first], exercise=lambda: few))
    assert len(data.ran(f"of {n}").heads) == drawn
