"""What switching heads off costs, by one forward pass after the other and with weights set to zero."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import tracer.ablate
from dashboard.loading import ablation
from dashboard.loading.ablation import Setup, Swept
from tests.dashboard.questions.conftest import Write
from tracer import ablate
from tracer.analysis import prompt_attention
from tracer.interventions.edits import recording
from tracer.store import Run
from tracer.store.effects_file import EffectsWriter

NAN = float("nan")
OFF = ((0, 1), (1, 3))
PROMPT = (0, 3, 4, 5, 3, 4, 5)
SETUPS = [("zero", True), ("mean", False), ("resample", True)]


def setup_of(run: Run, off: Any, mode: str = "zero", frozen: bool = False) -> Setup:
    return Setup.of(run, 20, off, mode, frozen)


def without(run: Run, off: Any) -> Any:
    """The model with W_O of these heads set to zero: nothing that they found is written."""
    model: Any = run.model(20)
    for layer, head in off:
        model.blocks[layer].attn.W_O[head] = 0
    return model


def losses(model: Any, tokens: torch.Tensor) -> np.ndarray:
    """Of every next token, from the logits."""
    with torch.no_grad():
        log_p = model(tokens[:, :-1]).double().log_softmax(-1)
    return -log_p.gather(-1, tokens[:, 1:, None])[..., 0].numpy()


def test_sizes(write: Write) -> None:
    assert not ablation.is_large(write("small", n_params=20_000_000))
    assert ablation.is_large(write("large", n_params=20_000_001))
    for n_ctx, d_vocab, repeats in (
        (None, None, False), (7, None, False), (None, 7, True), (None, 6, False), (6, 100, False), (7, 7, True),
    ):  # fmt: skip
        assert ablation.repeats(write(f"{n_ctx} {d_vocab}", n_ctx=n_ctx, d_vocab=d_vocab)) is repeats


def test_the_key_of_a_setup(small_run: Run) -> None:
    setup = setup_of(small_run, OFF, "mean", True)
    assert setup == Setup(str(small_run.dir.resolve()), small_run.job, 20, OFF, "mean", True)
    assert setup.opened.dir == small_run.dir.resolve()


def test_the_losses_with_every_head_on(small_run: Run) -> None:
    batches = ablation.batches(small_run)
    assert batches.text is not None
    model: Any = small_run.model(20)
    repeat = losses(model, batches.repeat.tokens)[:, batches.repeat.predictable]
    found = ablation.clean(small_run, 20)
    assert list(found) == ["repeat", "text"]
    assert found["repeat"] == pytest.approx(repeat.mean(), abs=1e-5)
    assert found["text"] == pytest.approx(losses(model, batches.text).mean(), abs=1e-5)


def test_what_zeroed_heads_cost(small_run: Run) -> None:
    batches, found = ablation.batches(small_run), ablation.costs(setup_of(small_run, OFF))
    for name, tokens, where in batches.sequences():
        before, after = losses(small_run.model(20), tokens), losses(without(small_run, OFF), tokens)
        cost = found[name]
        assert (cost.before, cost.after) == pytest.approx((before[:, where].mean(), after[:, where].mean()), abs=1e-5)
        expected = ablate.estimate((after - before)[:, where].mean(1))
        assert cost.change.mean == pytest.approx(expected.mean, abs=1e-5)
        assert (cost.change.low, cost.change.high) == pytest.approx((expected.low, expected.high), abs=1e-5)
        at = ablation.clean_by_position(small_run, 20)[name]
        np.testing.assert_allclose(at, before.mean(0), atol=1e-5)
        np.testing.assert_allclose(cost.after_by_position, after.mean(0), atol=1e-5)


def effect_of(run: Run, name: str, off: Any, mode: str, frozen: bool) -> ablate.Effect:
    batches = ablation.batches(run)
    tokens = batches.repeat.tokens if name == "repeat" else batches.text
    assert tokens is not None
    return ablate.effect(
        run.model(20), tokens, off, mode, reference=batches.reference(name, mode), frozen=frozen
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "frozen"), SETUPS)
def test_what_replaced_heads_cost(mode: str, frozen: bool, small_run: Run) -> None:
    found = ablation.costs(setup_of(small_run, OFF, mode, frozen))
    for name, where in (("repeat", ablation.batches(small_run).repeat.predictable), ("text", slice(None))):
        expected = effect_of(small_run, name, OFF, mode, frozen)
        assert found[name].change.mean == pytest.approx(expected.over(where).mean, abs=2e-6)
        np.testing.assert_allclose(found[name].after_by_position, expected.ablated.mean(0).numpy(), atol=1e-5)


def test_the_cost_by_what_is_put_in_place(small_run: Run, copy_run: Callable[..., Run]) -> None:
    found = ablation.by_replacement(setup_of(small_run, OFF, "mean"))
    where = ablation.batches(small_run).repeat.predictable
    assert list(found) == ["zero", "mean", "resample"]
    for mode, estimate in found.items():
        expected = effect_of(small_run, "repeat", OFF, mode, False).over(where)
        assert (estimate.mean, estimate.low) == pytest.approx((expected.mean, expected.low), abs=2e-6)


def test_beside_all_other_heads_of_the_layer(small_run: Run) -> None:
    """Three others; of pairs of heads more than are asked for."""
    where = ablation.batches(small_run).repeat.predictable
    for mode, frozen in (("mean", True), ("zero", False)):
        found = ablation.null(setup_of(small_run, ((0, 1),), mode, frozen), 30)
        each = [effect_of(small_run, "repeat", [(0, head)], mode, frozen).over(where).mean for head in range(4)]
        assert found.effect == pytest.approx(each.pop(1), abs=2e-6)
        np.testing.assert_allclose(sorted(found.others), sorted(each), atol=2e-6)
    assert len(ablation.null(setup_of(small_run, OFF), 4).others) == 4


def scores(model: Any, run: Run) -> np.ndarray:
    """Attention of the second copy's queries to the token after their first one, from whole patterns."""
    repeat = ablation.batches(run).repeat
    return prompt_attention.induction(model, repeat.tokens, repeat.second_copy).numpy()


def test_induction_scores_with_heads_off(small_run: Run) -> None:
    before, after = ablation.induction(setup_of(small_run, OFF))
    np.testing.assert_allclose(before, scores(small_run.model(20), small_run), atol=1e-6)
    np.testing.assert_allclose(after, scores(without(small_run, OFF), small_run), atol=1e-6)
    assert not np.allclose(before[1], after[1], atol=1e-5)
    np.testing.assert_array_equal(ablation.induction(setup_of(small_run, ()))[1], before)


def test_induction_scores_with_the_mean_of_rows_that_repeat_nothing(small_run: Run) -> None:
    batches = ablation.batches(small_run)
    with torch.no_grad(), recording("blocks.0.attn.hook_z") as seen:
        small_run.model(20)(batches.wide["repeat"])
    mean = seen["blocks.0.attn.hook_z"].mean(0)[:, 1]
    model: Any = small_run.model(20)

    def replaced(_module: Any, _given: Any, z: torch.Tensor) -> torch.Tensor:
        z = z.clone()
        z[:, :, 1] = mean[: z.shape[1]]
        return z

    model.blocks[0].attn.hook_z.register_forward_hook(replaced)
    after = ablation.induction(setup_of(small_run, ((0, 1),), "mean"))[1]
    np.testing.assert_allclose(after[1], scores(model, small_run)[1], atol=1e-5)


def test_one_prompt_before_and_after(small_run: Run) -> None:
    tokens = torch.tensor([PROMPT])
    found = ablation.on_prompt(setup_of(small_run, OFF), PROMPT, 4)
    for name, model in (("before", small_run.model(20)), ("after", without(small_run, OFF))):
        loss = found[f"loss_{name}"]
        assert np.isnan(loss[0])
        np.testing.assert_allclose(loss[1:], losses(model, tokens)[0], atol=1e-5)
        with torch.no_grad():
            expected = model(tokens)[0, 4].softmax(-1)
        np.testing.assert_allclose(found[f"next_{name}"], expected, atol=1e-6)
    nothing = ablation.on_prompt(setup_of(small_run, ()), PROMPT, 4)
    np.testing.assert_array_equal(nothing["loss_after"], nothing["loss_before"])


@pytest.mark.parametrize(("mode", "frozen"), SETUPS)
def test_a_prompt_takes_what_stands_in_from_text(mode: str, frozen: bool, small_run: Run) -> None:
    batches = ablation.batches(small_run)
    text = {"zero": None, "mean": batches.wide["text"], "resample": batches.text}[mode]
    expected = ablate.effect(
        small_run.model(20), torch.tensor([PROMPT]), OFF, mode, reference=text, frozen=frozen
    )  # fmt: skip
    found = ablation.on_prompt(setup_of(small_run, OFF, mode, frozen), PROMPT, 2)
    np.testing.assert_allclose(found["loss_after"][1:], expected.ablated[0].numpy(), atol=1e-5)


def test_a_pattern_before_and_after(small_run: Run) -> None:
    patterns = []
    for model in (small_run.model(20), without(small_run, ((0, 1),))):
        with torch.no_grad(), recording("blocks.1.attn.hook_pattern") as seen:
            model(torch.tensor([PROMPT]))
        patterns.append(seen["blocks.1.attn.hook_pattern"][0, 2].numpy())
    off = ((0, 1),)
    for last, start in ((3, 4), (7, 0), (9, 0)):
        before, after = ablation.patterns(setup_of(small_run, off), PROMPT, (1, 2), last)
        np.testing.assert_allclose(before, patterns[0][start:, start:], atol=1e-6)
        np.testing.assert_allclose(after, patterns[1][start:, start:], atol=1e-6)
    before, after = ablation.patterns(setup_of(small_run, off, "zero", True), PROMPT, (1, 2), 9)
    np.testing.assert_array_equal(after, before)
    assert not np.allclose(patterns[0], patterns[1], atol=1e-5)


@pytest.mark.parametrize(("mode", "frozen"), [("mean", False), ("zero", True)])
def test_every_head_by_itself(mode: str, frozen: bool, small_run: Run) -> None:
    found = ablation.sweep(small_run, 20, mode, frozen)
    assert list(found) == ["repeat", "text"]
    for name, where in (("repeat", ablation.batches(small_run).repeat.predictable), ("text", slice(None))):
        for head in ((0, 1), (1, 2)):
            expected = effect_of(small_run, name, [head], mode, frozen).over(where)
            got = tuple(getattr(found[name], part)[head] for part in ("effect", "low", "high"))
            assert got == pytest.approx((expected.mean, expected.low, expected.high), abs=2e-6)
        assert found[name].effect.shape == (2, 4)


def test_significant_is_below_a_twentieth(copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    p = xr.DataArray([[0.01, 0.03], [0.05, 0.06]], dims=("layer", "head"), attrs={"note": "too few"})
    table = xr.Dataset({name: p * 0 for name in ("effect", "low", "high")} | {"p_holm": p})
    monkeypatch.setattr(tracer.ablate, "sweep", lambda *_, **__: table)
    found = ablation.sweep(copy_run("levels"), 20, "zero", False)["text"]
    assert found.corrected.tolist() == [[True, True], [False, False]] and found.too_few == "too few"


def test_an_interval_is_sure_where_it_excludes_zero() -> None:
    low, high = np.array([0.1, -0.5, 0.0, -0.2, -0.3, NAN]), np.array([2.0, -0.1, 0.5, 0.0, 0.3, NAN])
    nothing = np.zeros(6)
    assert Swept(nothing, low, high, nothing).sure.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("effects", "top", "digits"),
    [
        ([[0.1, -0.15], [NAN]], 0.15, 3), ([[0.2], [-0.1]], 0.2, 2), ([[-0.4]], 0.4, 2), ([[NAN]], 1.0, 3),
        ([[0.0]], 1.0, 3), ([[np.inf, 0.01]], 0.01, 3),
    ],
)  # fmt: skip
def test_the_scale_of_changes(effects: list[list[float]], top: float, digits: int) -> None:
    scale = ablation.change_scale(*map(np.array, effects))
    assert (scale.lo, scale.hi, scale.digits) == (-top, top, digits)


def swept_run(run: Run, rows: dict[str, dict[int, float]]) -> Run:
    """Effects by mode and step; nan is that of text, which was not measured there."""
    attrs: dict[str, Any] = dict.fromkeys(("seed", "draws", "drawn_from", "n_sequences", "mean_of"), 1)
    writer = EffectsWriter(run.dir, {"probe": (("probe",), ["repeat", "text"], {})}, attrs, 4)
    for mode, steps in rows.items():
        for step, text in steps.items():
            writer.append(mode, False, step, np.stack([np.ones((2, 4)), np.full((2, 4), text)]))
    writer.close()
    return run


def test_snapshots_that_were_swept_in_every_mode(copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of steps 0, 10, 20 and 30; step 5 has no snapshot, and 20 lacks a mode."""
    run = copy_run("swept")
    assert ablation.effects(run) is None and ablation.swept(run) == 0
    rows = {"zero": {0: NAN, 5: 1.0, 20: 1.0}, "mean": {0: NAN, 5: 1.0, 20: 1.0}}
    swept_run(run, rows)
    assert ablation.swept(run) == 0, "resample is to come"
    swept_run(run, {"resample": {0: NAN, 5: 1.0}})
    found = ablation.effects(run)
    assert found is not None and found["step"].values.tolist() == [0, 5, 20]
    monkeypatch.setattr(ablation, "batches", lambda _run: pytest.fail("text was read, and all modes are there"))
    assert ablation.swept(run) == 1


def test_a_run_that_cannot_be_resampled_is_swept_without(copy_run: Callable[..., Run]) -> None:
    """One row of text and no tokens that repeat: nothing stands in for a head."""
    run = copy_run("alone")
    meta = json.loads((run.dir / "run.json").read_text())
    meta["config"]["record"]["val_rows"] = 1
    meta["config"]["model"]["n_ctx"] = 6
    (run.dir / "run.json").write_text(json.dumps(meta))
    run = Run(run.dir)
    swept_run(run, {"zero": {0: 1.0, 10: 1.0, 30: 1.0}})
    assert ablation.batches(run).modes == ["zero"] and ablation.swept(run) == 3


def test_frozen_effects_alone_are_no_sweep(copy_run: Callable[..., Run]) -> None:
    run = swept_run(copy_run("frozen"), {"zero": {0: 1.0}})
    (run.dir / "effects.zarr" / "zero").rename(run.dir / "effects.zarr" / "zero_frozen")
    assert ablation.swept(run) == 0 and ablation.effects(run) is not None
