"""What each variable of a trace means: label, unit, range, value at chance, palette, formula, source, probe.

The dashboard reads everything it says about a number from here, without importing torch. A new measure is one function
that computes it, one row here, and one test with an answer known by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

MAX_PERIOD = 25
"""Olsson et al. 2022 repeat 25 random tokens."""


def period(d_vocab: int, n_ctx: int) -> int:
    """Length of Probe R's block: 25, or as much as fits twice in the context and once in the vocabulary."""
    return min(MAX_PERIOD, (n_ctx - 1) // 2, d_vocab - 1)


@dataclass(frozen=True)
class Setting:
    """What the value at chance depends on."""

    n_ctx: int
    """Tokens of a row of held-out text."""
    period: int
    """Length L of Probe R's repeated block; 0 when it was not measured on."""
    d_vocab: int
    """Size of the vocabulary; 0 for a model that reads no tokens."""
    causal: bool = True
    """Does every row see the keys up to itself only? Otherwise it sees all n_ctx."""

    @classmethod
    def of(cls, d_vocab: int, n_ctx: int) -> Setting:
        """The setting of a run."""
        return cls(n_ctx, period(d_vocab, n_ctx), d_vocab)


@dataclass(frozen=True)
class Measure:
    """One variable of the trace."""

    name: str
    """Its name in the trace."""
    label: str
    """A title, for an axis or a menu."""
    short: str
    """As few letters as fit on a small grid."""
    unit: str
    """Empty for pure numbers."""
    low: float | None
    """Smallest possible value; None when there is no bound."""
    high: float | None
    """Largest possible value; None when there is no bound or it depends on the setting."""
    palette: Literal["sequential", "diverging"]
    """diverging when 0 is in the middle and signs matter."""
    formula: str
    """Plain text, in the words of design and docstrings."""
    source: str
    """Who defined it; "ours" where nobody did."""
    probe: Literal["text", "repeat", "train", "weights", "prompts", "clock"]
    """Which tokens it is measured on: held-out text, repeated random tokens, the training batch, or none."""
    dims: tuple[str, ...]
    """Its dimensions in the trace."""
    note: str = ""
    """What a reader could get wrong."""
    chance_text: str = ""
    """What `chance` is the value of."""
    chance: Callable[[Setting], float] | None = None
    """The value that uniform attention, or a model that knows nothing, would have; nan where that is undefined."""

    def at_chance(self, setting: Setting | None) -> float | None:
        """`chance`, or None where there is no such value or the setting does not say enough."""
        value = self.chance(setting) if self.chance and setting else float("nan")
        return value if math.isfinite(value) else None


PROBES = {
    "text": "held-out text",
    "repeat": "random tokens, repeated once",
    "train": "the training batch",
    "weights": "the weights themselves",
    "prompts": "the fixed prompts of the run",
    "clock": "a clock or a counter",
}
"""How to name the probe of a measure beside its value."""


def probe_words(kind: str) -> dict[str, str]:
    """PROBES of a run of this kind; of the models of others no text was held out."""
    text = {"watched": "inputs of its first training batch", "opened": "passages of Python source"}
    return {**PROBES, "text": text.get(kind, PROBES["text"])}


HEAD = ("step", "layer", "head")
PARAM = ("step", "param")
HEAD_MATRIX = ("step", "layer", "head", "matrix")

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


def _uniform_one_key(setting: Setting) -> float:
    return _mean([1 / _keys(setting, q, setting.n_ctx) for q in _rows(setting)])


def _uniform_one_copy(setting: Setting) -> float:
    n = 2 * setting.period + 1
    return _mean([1 / _keys(setting, q, n) for q in range(setting.period + 1, n)])


def _uniform_entropy(setting: Setting) -> float:
    return _mean([math.log(_keys(setting, q, setting.n_ctx)) for q in _rows(setting)])


def _uniform_distance(setting: Setting) -> float:
    def of_row(q: int) -> float:
        after = 0 if setting.causal else setting.n_ctx - 1 - q
        return (q * (q + 1) + after * (after + 1)) / 2 / _keys(setting, q, setting.n_ctx)

    return _mean([of_row(q) for q in _rows(setting)])


def _knows_nothing(setting: Setting) -> float:
    return math.log(setting.d_vocab) if setting.d_vocab else float("nan")


_ROWS = (
    Measure(
        "entropy",
        "Attention entropy",
        "H",
        "nats",
        0,
        None,
        "sequential",
        "H_q = -sum_k A_qk ln A_qk, mean over rows q >= 1 and sequences",
        "Zhai et al. 2023 (2303.06296)",
        "text",
        HEAD,
        "Grows with the number of keys; exp(H) is the effective number of keys. Low is sharp, and sharp heads can be "
        "healthy: it is collapse only together with trouble in loss or gradient.",
        UNIFORM,
        _uniform_entropy,
    ),
    Measure(
        "entropy_normalised",
        "Normalised entropy",
        "H/max",
        "",
        0,
        1,
        "sequential",
        "H_q / ln(q + 1), mean over rows q >= 1 and sequences",
        "ours: entropy over that of uniform attention to the same keys",
        "text",
        HEAD,
        "1 spreads over every key, 0 looks at one. Previous-token and induction heads end near 0.1 and are healthy.",
        UNIFORM,
        lambda setting: 1.0,
    ),
    Measure(
        "previous_token",
        "Previous-token attention",
        "prev",
        "",
        0,
        1,
        "sequential",
        "A_q,q-1, mean over rows q >= 1 and sequences",
        "Olsson et al. 2022, Methods",
        "text",
        HEAD,
        "How much of its attention goes to the token just before: 1 is a head that only looks one back.",
        UNIFORM,
        _uniform_one_key,
    ),
    Measure(
        "current_token",
        "Current-token attention",
        "self",
        "",
        0,
        1,
        "sequential",
        "A_qq, mean over rows q >= 1 and sequences",
        "ARENA 1.2, without row 0",
        "text",
        HEAD,
        "How much of its attention goes to the token it stands on.",
        UNIFORM,
        _uniform_one_key,
    ),
    Measure(
        "first_token",
        "First-token attention",
        "first",
        "",
        0,
        1,
        "sequential",
        "A_q0, mean over rows q >= 1 and sequences",
        "Xiao et al. 2023 (2309.17453), attention sinks",
        "text",
        HEAD,
        "Where heads rest when nothing matches: high does not mean that the first token matters.",
        UNIFORM,
        _uniform_one_key,
    ),
    Measure(
        "attended_distance",
        "Mean attended distance",
        "dist",
        "tokens",
        0,
        None,
        "sequential",
        "sum_k A_qk |q - k|, mean over rows q >= 1 and sequences",
        "Vig and Belinkov 2019 (1906.04284)",
        "text",
        HEAD,
        "How far back a head looks on average: a mean of 20 may be all at 20, or half at 0 and half at 40.",
        UNIFORM,
        _uniform_distance,
    ),
    Measure(
        "duplicate_token",
        "Duplicate-token attention",
        "dup",
        "",
        0,
        1,
        "sequential",
        "sum of A_qk over keys k < q that hold the query's token, mean over the second copy q = L+1 .. 2L",
        "Wang et al. 2022 (2211.00593), as mass per row",
        "repeat",
        HEAD,
        "Looks back at an earlier copy of the same token. Not the number of transformer_lens detect_head, which also "
        "averages over rows that cannot match.",
        "uniform attention on the same rows",
        _uniform_one_copy,
    ),
    Measure(
        "induction",
        "Induction score",
        "ind",
        "",
        0,
        1,
        "sequential",
        "sum of A_qk over keys k whose previous token is the query's, mean over the second copy q = L+1 .. 2L",
        "prefix matching, Olsson et al. 2022, Methods, as mass per row",
        "repeat",
        HEAD,
        "Half of an induction head: it looks at the token that came next last time. Whether it copies it is another "
        "measure. Not the number of transformer_lens detect_head.",
        "uniform attention on the same rows",
        _uniform_one_copy,
    ),
    Measure(
        "max_logit",
        "Largest attention logit",
        "max qk",
        "",
        None,
        None,
        "sequential",
        "max over sequences, rows and visible keys of scale * q . k",
        "Dehghani et al. 2023 (2302.05442); Wortsman et al. 2023 (2309.14322)",
        "text",
        HEAD,
        "Steady growth leads to one-hot rows and unstable training.",
    ),
    Measure(
        "pattern",
        "Attention pattern",
        "A",
        "",
        0,
        1,
        "sequential",
        "A = softmax over keys of scale * q . k",
        "Vaswani et al. 2017",
        "prompts",
        ("step", "prompt", "layer", "head", "query_pos", "key_pos"),
        "Row: the token that looks. Column: the token it looks at. Kept in float16.",
    ),
    Measure(
        "grad_norm",
        "Gradient norm",
        "g",
        "",
        0,
        None,
        "sequential",
        "l2 norm of the gradient of the training loss, before clipping",
        "ours",
        "train",
        PARAM,
        "Grows with the size of the tensor.",
    ),
    Measure(
        "weight_norm",
        "Weight norm",
        "w",
        "",
        0,
        None,
        "sequential",
        "l2 norm of the weights",
        "ours",
        "weights",
        PARAM,
        "Grows with the size of the tensor.",
    ),
    Measure(
        "update_ratio",
        "Update ratio",
        "u",
        "",
        0,
        None,
        "sequential",
        "||W_t+1 - W_t|| / ||W_t||, from the true step",
        "CS231n notes, ratio of weights:updates; Karpathy, nn-zero-to-hero, lecture 4",
        "train",
        PARAM,
        "Read it as a power of ten. 1e-3 is a rule of thumb from SGD; Adam and Muon are often higher early on. "
        "Undefined for weights that are all 0.",
    ),
    Measure(
        "head_grad_norm",
        "Gradient norm of a head",
        "g",
        "",
        0,
        None,
        "sequential",
        "l2 norm of the gradient of the head's own slice of W_Q, W_K, W_V or W_O, before clipping",
        "ours",
        "train",
        HEAD_MATRIX,
        "Q and K move the pattern, V and O what is written; they often move at different times.",
    ),
    Measure(
        "head_weight_norm",
        "Weight norm of a head",
        "w",
        "",
        0,
        None,
        "sequential",
        "l2 norm of the head's own slice of W_Q, W_K, W_V or W_O",
        "ours",
        "weights",
        HEAD_MATRIX,
    ),
    Measure(
        "head_update_ratio",
        "Update ratio of a head",
        "u",
        "",
        0,
        None,
        "sequential",
        "||W_t+1 - W_t|| / ||W_t|| of the head's own slice of W_Q, W_K, W_V or W_O",
        "as update_ratio",
        "train",
        HEAD_MATRIX,
        "Read it as a power of ten.",
    ),
    Measure(
        "train_loss",
        "Training loss",
        "train",
        "nats",
        0,
        None,
        "sequential",
        "mean cross-entropy of the next token on the batch of that step",
        "standard",
        "train",
        ("step",),
        "exp of it is the perplexity. A mixed source counts with its share of rows.",
        KNOWS_NOTHING,
        _knows_nothing,
    ),
    Measure(
        "val_loss",
        "Validation loss",
        "val",
        "nats",
        0,
        None,
        "sequential",
        "mean cross-entropy of the next token on held-out text",
        "standard",
        "text",
        ("step",),
        "exp of it is the perplexity.",
        KNOWS_NOTHING,
        _knows_nothing,
    ),
    Measure(
        "loss_by_position",
        "Loss by position",
        "loss",
        "nats",
        0,
        None,
        "sequential",
        "mean cross-entropy at each position, which predicts the next token",
        "Olsson et al. 2022, 2D in-context plots",
        "text",
        ("step", "pos"),
        "Later positions know more; how much more is in-context learning.",
        KNOWS_NOTHING,
        _knows_nothing,
    ),
    Measure(
        "icl_score",
        "In-context learning score",
        "ICL",
        "nats",
        None,
        None,
        "diverging",
        "mean loss of the token at 98 % of the context minus mean loss of the token at 10 %",
        "Olsson et al. 2022 (tokens 500 and 50 of 512); the shares are ours",
        "text",
        ("step",),
        "Negative means that context helps.",
        "a model that makes no use of context",
        lambda setting: 0.0,
    ),
    Measure(
        "repeat_loss",
        "Loss on repeated tokens",
        "repeat",
        "nats",
        0,
        None,
        "sequential",
        "mean loss at positions L+1 .. 2L-1: tokens s_2 .. s_L of the second copy",
        "Olsson et al. 2022",
        "repeat",
        ("step",),
        "Only copying can bring it down; the first token of the copy is left out, as nothing announces it.",
        KNOWS_NOTHING,
        _knows_nothing,
    ),
    Measure(
        "first_copy_loss",
        "Loss on the same tokens when new",
        "first",
        "nats",
        0,
        None,
        "sequential",
        "mean loss at positions 1 .. L-1: tokens s_2 .. s_L of the first copy",
        "ours, the control of repeat_loss",
        "repeat",
        ("step",),
        "These tokens are random, so it stays at or above chance; a model of text rises above it.",
        KNOWS_NOTHING,
        _knows_nothing,
    ),
    Measure(
        "tokens_seen",
        "Training tokens seen",
        "tokens",
        "tokens",
        0,
        None,
        "sequential",
        "step * batch size * context length",
        "standard",
        "clock",
        ("step",),
    ),
    Measure(
        "step_ms",
        "Time of a step",
        "ms",
        "ms",
        0,
        None,
        "sequential",
        "wall time of one training step, mean since the last record, without recording",
        "standard",
        "clock",
        ("step",),
    ),
    Measure(
        "learning_rate",
        "Learning rate",
        "lr",
        "",
        0,
        None,
        "sequential",
        "warm-up, then constant",
        "standard",
        "train",
        ("step",),
    ),
    Measure(
        "resid_rms",
        "Size of the residual stream",
        "rms",
        "",
        0,
        None,
        "sequential",
        "root mean square of a vector, median over tokens; depth 0 enters the first block, depth d leaves block d",
        "Heimersheim and Turner 2023 follow norms through depth; the root mean square and the median are ours",
        "text",
        ("step", "depth"),
        "A norm in front of a sublayer hides its size. The median, as a few tokens may be far larger than the rest.",
    ),
    Measure(
        "clip_factor",
        "Gradient clipping factor",
        "clip",
        "",
        0,
        1,
        "sequential",
        "min(1, limit / norm of all gradients): what every gradient was multiplied by",
        "Pascanu et al. 2013",
        "train",
        ("step",),
        "grad_norm is from before clipping.",
    ),
)

MEASURES: dict[str, Measure] = {measure.name: measure for measure in _ROWS}
HEAD_MEASURES: tuple[str, ...] = tuple(measure.name for measure in _ROWS if measure.dims == HEAD)


@dataclass(frozen=True)
class Band:
    """A range of a measure, low <= value < high, and how to read it."""

    low: float
    high: float
    name: str
    text: str


UPDATE_BANDS = (
    Band(0.0, 1e-4, "slow", "barely moves: frozen, finished, or a learning rate that is too low"),
    Band(1e-4, 1e-2, "usual", "around 1e-3, the rule of thumb"),
    Band(1e-2, 1e-1, "fast", "usual for a while with Adam or Muon, a reason to look otherwise"),
    Band(1e-1, math.inf, "very fast", "a tenth of the weights is replaced every step: expect trouble"),
)
UPDATE_BANDS_SOURCE = (
    "The middle, 1e-3, is from CS231n's notes and Karpathy's nn-zero-to-hero, lecture 4, both for SGD; the edges of "
    "the bands are ours. A guide, not a law: with Adam and Muon the step does not follow from the gradient's size."
)


def update_band(ratio: float) -> Band | None:
    """The band an update ratio falls in; None when it is undefined (nan)."""
    return next((band for band in UPDATE_BANDS if band.low <= ratio < band.high), None)
