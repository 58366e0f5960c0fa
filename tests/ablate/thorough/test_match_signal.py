"""A head that only signals that its token was there before costs the same, whatever stands in its place.

What the first tier leaves.
"""

from tests.ablate.test_match_signal import COST, CTX, VOCAB, signalling
from tracer.ablate import MODES, verdict
from tracer.data.probes import repeated


def test_what_stands_in_for_it_does_not_signal() -> None:
    """On the card of Probe R, and on that of rows that are given."""
    model = signalling()
    for rows in (None, repeated(VOCAB, CTX, at=16, batch=32).tokens):
        card = verdict(model, 1, 1, tokens=rows)
        assert {mode: round(found.mean, 2) for mode, found in card.effects.items()} == dict.fromkeys(MODES, COST)
        assert not card.is_induction_head  # it raises no token above another by itself
        ablated = next(test for test in card.tests if test.name == "ablation")
        assert ablated.passed and "Mean and resample are of rows without a repeat." in ablated.sentence
