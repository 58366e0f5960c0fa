"""Rows behind a stretch: effects against exact ones, trainings without rows made by hand, dates by their definition."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.training.test_which_rows import induction, of_kind
from tracer.analysis.row_dates import dates_moved, head_of_run, steps_of_change
from tracer.cli.rows_command import lines_of_stretch, sentence
from tracer.data import build, probes
from tracer.model import Transformer
from tracer.store import Run
from tracer.store.row_effects import rows_path, rows_there
from tracer.training import loop
from tracer.training import stretch_rows as module
from tracer.training.stretch_rows import passed, stretch_rows

FIRST, LAST, UNTIL, HEAD = 2, 4, 6, (1, 2)
ASKED: dict[str, Any] = {"without": (20,), "draws": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return loop.train(of_kind(tmp_path_factory.mktemp("runs") / "r"), quiet=True)


@pytest.fixture(scope="module")
def told(run: Run) -> Any:
    return stretch_rows(run, FIRST, LAST, HEAD, **ASKED)


def test_a_training_without_rows_is_that_of_a_hand_in_float64(run: Run, told: Any) -> None:
    config, n = run.config, run.config.optim.batch_size
    data = build(config.data, config.model.n_ctx, config.seed)
    of = probes.repeated(data.d_vocab, config.model.n_ctx, data.bos or 0, batch=config.record.repeat_rows)
    way = 1 if told["curve"].values[0][told["at"].values == LAST] >= told["curve"].values[0][0] else -1
    flat = (-way * told["effect"].values).ravel().argsort(kind="stable")
    most = flat[: round(0.2 * flat.size)]
    assert told["left_out"].values.tolist() == [0, len(most), len(most), len(most)]
    assert told["share"].values.tolist() == [0, 20, 20, 20] and told["draw"].values.tolist() == [-1, -1, 0, 1]
    for training, left in ((0, []), (1, most.tolist())):
        model = cast(Transformer, run.model(FIRST)).double().requires_grad_(True)
        curve = []
        for step in range(FIRST, UNTIL + 1):
            curve.append(induction(model, of, HEAD))
            rows = data.train(step, n)
            counts = torch.tensor([(step - FIRST) * n + row not in left for row in range(n)])
            losses = F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:], reduction="none")
            model.zero_grad()
            (losses[counts].sum() / losses.numel()).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= config.optim.lr * cast(torch.Tensor, p.grad)
        np.testing.assert_allclose(told["curve"].values[training], curve, atol=2e-7)
    assert np.ptp(told["curve"].values[0] - told["curve"].values[1]) > 1e-6


def test_as_it_was_is_the_run_to_the_bit(run: Run, told: Any) -> None:
    assert told.attrs["same"] == "weights equal to the run's to the bit at step 2, 4, 6"
    recorded = run.trace["induction"][:, HEAD[0], HEAD[1]].to_series()
    for step in (2, 4, 6):
        assert told["curve"].values[0][told["at"].values == step] == pytest.approx(recorded[step], abs=1e-7)


def test_others_are_of_the_same_steps_and_kind() -> None:
    rng = np.random.default_rng(0)
    mixed = rng.random((5, 16)) < 0.5
    most = rng.choice(80, 24, replace=False)
    drawn = [module._others(7, draw, most, mixed) for draw in range(3)]
    for rows in drawn:
        assert len(set(rows.tolist())) == 24
        for kind in (False, True):
            found, wanted = (np.bincount(some[mixed.ravel()[some] == kind] // 16, minlength=5) for some in (rows, most))
            np.testing.assert_array_equal(found, wanted)
    assert len({tuple(sorted(rows.tolist())) for rows in drawn}) == 3
    np.testing.assert_array_equal(drawn[1], module._others(7, 1, most, mixed))


def test_dates_are_where_a_level_is_first_passed() -> None:
    steps, curve = [10, 20, 30, 40], [0.0, 1.0, 0.2, 1.0]
    assert passed(steps, curve, 0.5, 1.0) == 15
    assert passed(steps, [-y for y in curve], -0.25, -1.0) == 12.5
    assert passed(steps, curve, 0.0, 1.0) == 10
    assert np.isnan(passed(steps, curve, 1.5, 1.0))


def answer(date: list[float], until: int = 100, share: float = 5.0) -> Any:
    arrays = {
        "effect": np.zeros((1, 1)), "date": np.array(date), "share": np.array([0.0, share, share, share]),
        "draw": np.array([-1, -1, 0, 1]),
    }  # fmt: skip
    return module.as_dataset(arrays, {"first": 0, "last": 1, "until": until, "run": "r"})


def test_dates_over_seeds_are_a_paired_difference() -> None:
    found = dates_moved([answer([50, 60, 52, 54]), answer([40, 46, 40, 42]), answer([70, 90, 69, 73])])
    assert [one.share for one in found] == [5.0]
    one = found[0]
    assert one.most == (10, 6, 20) and one.others == (3, 1, 1) and one.never == 0
    assert one.more == pytest.approx(np.mean([7, 5, 19]))
    spread = np.std([7, 5, 19], ddof=1) / 3**0.5
    assert one.margin == pytest.approx(4.302653 * spread, rel=1e-6)  # Student's t of 2 degrees of freedom
    assert sentence(one).startswith("over 3 runs, without the top 5 % of rows the score is halfway +10.3 steps later")

    gone = dates_moved([answer([50, np.nan, 52, 54]), answer([40, 46, 40, 42])])[0]
    assert gone.most == (50, 6) and gone.never == 1 and "1 trainings did not get there" in sentence(gone)
    assert np.isnan(dates_moved([answer([50, 60, 52, 54])])[0].margin)
    with pytest.raises(ValueError, match="as it was, the score did not get there"):
        dates_moved([answer([np.nan, 60, 52, 54])])
    with pytest.raises(ValueError, match="answers of the same shares"):
        dates_moved([answer([50, 60, 52, 54]), answer([50, 60, 52, 54], share=1.0)])


def test_the_run_keeps_the_answer(run: Run, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{FIRST}-{LAST}-L1H2-induction"
    assert rows_there(run.dir) == [name]
    monkeypatch.setattr(module, "_ranked", None)  # nothing is computed
    again = stretch_rows(run, FIRST, LAST, HEAD, **ASKED)
    assert again.identical(told) and again.identical(cast(Any, module.answer(run, name)))
    with pytest.raises(TypeError):  # of other shares it is
        stretch_rows(run, FIRST, LAST, HEAD, without=(10,), draws=2)
    path = rows_path(run.dir, name)
    kept = path.read_bytes()
    path.write_bytes(kept[:-9] + bytes([kept[-9] ^ 1]) + kept[-8:])
    with pytest.raises(ValueError, match="cannot be read .*remove it and ask again"):
        stretch_rows(run, FIRST, LAST, HEAD, **ASKED)
    path.write_bytes(kept)


def test_the_command_says_rows_and_dates(told: Any) -> None:
    shown = lines_of_stretch(told, 1)
    assert shown[0].startswith("r, steps 2 to 4: induction score of L1H2, ") and "to first order" in shown[1]
    assert len(shown) == 3 + 2 + 3 + 3
    best = told.attrs["rows"][0]
    assert shown[3].split()[:3] == [str(best["step"]), str(best["row"]), f"{best['effect']:+.2e}"]
    assert shown[7].split()[:3] == ["as", "it", "was"] and shown[8].startswith("without the top 20 %")
    assert [one.startswith("without as many at random") for one in shown[9:]] == [True, True]


def test_only_ranked_where_nothing_is_left_out(run: Run, tmp_path: Path) -> None:
    ranked = stretch_rows(run, 3, 4, (0, 1), "entropy", without=())
    assert "date" not in ranked and ranked["effect"].shape == (1, run.config.optim.batch_size)
    assert len(lines_of_stretch(ranked, 100)) == 3 + run.config.optim.batch_size


def test_the_head_and_the_steps_are_those_of_the_run(run: Run) -> None:
    last = np.median(run.trace["previous_token"].values[-3:], axis=0)
    head = head_of_run(run, "previous_token")
    assert last[head] == last.max()
    with pytest.raises(ValueError, match="no change of previous_token of L.H. is dated in r: give steps"):
        steps_of_change(run, head, "previous_token")


@pytest.mark.parametrize(
    ("args", "more", "says"),
    [
        ((2, 4, HEAD, "max_logit"), {}, "is no mean over rows"),
        ((2, 4, HEAD), {"without": (0,)}, "are per cent, between 0 and 100"),
        ((2, 4, HEAD), {"draws": 0}, "draws=0 at least 1"),
        ((2, 4, HEAD), {"until": 7}, "until=7 is none of the steps from 4 to 6"),
        ((4, 9, HEAD), {}, "was trained from step 0 to 6"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, args: Any, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        stretch_rows(run, *args, **more)
