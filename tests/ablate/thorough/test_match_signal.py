"""A head that only signals that its token was there before costs the same, whatever stands in its place.

What the first tier leaves.
"""

from dataclasses import replace

import pytest

from tests.ablate.test_match_signal import COST, CTX, VOCAB, signalling
from tracer.ablate import MODES, effect, sweep, verdict
from tracer.ablate.repeats import Repeats
from tracer.analysis.eval_sequences import batches
from tracer.data.probes import repeated
from tracer.presets import preset
from tracer.store import Run
from tracer.training.loop import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of the toy, whose vocabulary and context are those of the model above."""
    config = replace(preset("induction").config, run=str(tmp_path_factory.mktemp("match") / "toy"), steps=1)
    return train(replace(config, device="cpu"), quiet=True)


def test_what_stands_in_for_it_does_not_signal() -> None:
    """On the card of Probe R, and on that of rows that are given."""
    model = signalling()
    for rows in (None, repeated(VOCAB, CTX, at=16, batch=32).tokens):
        card = verdict(model, 1, 1, tokens=rows)
        assert {mode: round(found.mean, 2) for mode, found in card.effects.items()} == dict.fromkeys(MODES, COST)
        assert not card.is_induction_head  # it raises no token above another by itself
        ablated = next(test for test in card.tests if test.name == "ablation")
        assert ablated.passed and "Mean and resample are of rows without a repeat." in ablated.sentence


@pytest.mark.parametrize("mode", MODES)
def test_pages_take_replacements_from_rows_without_a_repeat(mode: str, run: Run) -> None:
    """The batches of a run with as many tokens; and sweeps, which share work, as single passes."""
    found, model = batches(run), signalling()
    probe, reference = found.repeat, found.reference("repeat", mode)
    assert (reference is None) == (mode == "zero")
    if reference is not None:
        assert reference.shape == (8 * len(probe.tokens), probe.tokens.shape[1])
        assert not Repeats(reference).seen.any()
    alone = effect(model, probe.tokens, [(1, 1)], mode, reference=reference).over(probe.predictable)
    assert alone.mean == pytest.approx(COST, abs=0.005)
    swept = sweep(model, probe.tokens, mode, positions=probe.predictable, reference=reference)
    assert float(swept[1, 1]) == pytest.approx(COST, abs=0.005)
