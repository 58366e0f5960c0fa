"""What each variable of a trace means: label, unit, range, value at chance, palette, formula, source, probe.

The dashboard reads everything it says about a number from here, without importing torch. A new measure is one function
that computes it (of a head: in `tracer.heads.definitions`, under the same name), one row in `attention`, `weights` or
`whole`, and one test with an answer known by hand.
"""

from tracer.measures.bands import UPDATE_BANDS, UPDATE_BANDS_SOURCE, Band, expected_range, update_band
from tracer.measures.described import described, in_trace, measures_in
from tracer.measures.measure import HEAD, PARAM, PROBES, SE, SEQUENCES, Measure, probe_words
from tracer.measures.registry import MEASURES
from tracer.measures.setting import MAX_PERIOD, Setting, farthest, period

__all__ = [
    "CONTROLS", "HEAD_MEASURES", "MAX_PERIOD", "MEASURES", "NO_MEANS", "PARAM_MEASURES", "PROBES", "REPEAT_MEASURES",
    "SE", "SEQUENCES", "TEXT_MEASURES", "UPDATE_BANDS", "UPDATE_BANDS_SOURCE", "Band", "Measure", "Setting",
    "described", "expected_range", "farthest", "in_trace", "measures_in", "period", "probe_words", "update_band",
]  # fmt: skip

HEAD_MEASURES: tuple[str, ...] = tuple(name for name, measure in MEASURES.items() if measure.dims == HEAD)
PARAM_MEASURES: tuple[str, ...] = tuple(name for name, measure in MEASURES.items() if measure.dims == PARAM)
TEXT_MEASURES: tuple[str, ...] = tuple(name for name in HEAD_MEASURES if MEASURES[name].probe == "text")
REPEAT_MEASURES: tuple[str, ...] = tuple(name for name in HEAD_MEASURES if MEASURES[name].probe == "repeat")
NO_MEANS = ("max_logit", "fixed_distance_at")
"""Of heads what is no mean over sequences, and has no standard error."""
CONTROLS = {"duplicate_token": "duplicate_control", "induction": "induction_control"}
"""By a score: the same weights where nothing repeats."""
