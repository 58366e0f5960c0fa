"""The values that uniform attention, and a model that knows nothing, would have."""

from __future__ import annotations

import math

from tracer.measures.setting import Setting

UNIFORM = "uniform attention to the keys each row sees"
KNOWS_NOTHING = "a model that gives every token the same probability: ln(d_vocab)"


def _rows(setting: Setting) -> range:
    """The query rows that are averaged over: q >= 1."""
    return range(1, setting.n_ctx)


def _keys(setting: Setting, q: int, n: int) -> int:
    """Keys that row q of n sees."""
    return q + 1 if setting.causal else n


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else float("nan")


def uniform_one_key(setting: Setting) -> float:
    return _mean([1 / _keys(setting, q, setting.n_ctx) for q in _rows(setting)])


def uniform_fixed_distance(setting: Setting) -> float:
    """The nearest distance has the shortest rows, and so the largest weights."""
    rows = range(3, setting.n_ctx) if setting.n_ctx >= 4 else range(0)
    return _mean([1 / _keys(setting, q, setting.n_ctx) for q in rows])


def uniform_one_copy(setting: Setting) -> float:
    n = 3 * setting.period + 1
    return _mean([1 / _keys(setting, q, n) for q in range(2 * setting.period + 1, n)])


def uniform_entropy(setting: Setting) -> float:
    return _mean([math.log(_keys(setting, q, setting.n_ctx)) for q in _rows(setting)])


def uniform_distance(setting: Setting) -> float:
    def of_row(q: int) -> float:
        after = 0 if setting.causal else setting.n_ctx - 1 - q
        return (q * (q + 1) + after * (after + 1)) / 2 / _keys(setting, q, setting.n_ctx)

    return _mean([of_row(q) for q in _rows(setting)])


def knows_nothing(setting: Setting) -> float:
    return math.log(setting.d_vocab) if setting.d_vocab else float("nan")
