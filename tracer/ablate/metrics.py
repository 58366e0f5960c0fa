"""What an ablation is judged by: numbers read from the logits at some positions of each sequence.

Whoever computes logits asks a metric where it reads (`where`), and unembeds nothing else. A metric of somebody's own is
a function of (logits, targets, clean) that returns one number a sequence (`OwnMetric`); `kl` is written as one.
Where numbers are kept, `told` names the metric and `fingerprint` its code: they are never mixed with those of another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from types import CodeType
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from tracer.config.field_docs import fields_in_help
from tracer.model.protocol import check_vocabulary
from tracer.named_code import kind_of, name_of, named

Where = int | tuple[int, ...] | Int[Tensor, " sequence"]
"""Positions whose next token is predicted: the same in every sequence, or one for each; negative ones from the end."""
Tokens = int | Int[Tensor, " sequence"]
"""A token, the same in every sequence, or one for each."""
LONG = 8
"""Values of a field that are told; of more the first, and the hash of all."""


@runtime_checkable
class Metric(Protocol):
    """A number for each sequence and position read."""

    @property
    def long_name(self) -> str: ...

    @property
    def units(self) -> str: ...

    @property
    def worse(self) -> int:
        """1 if the number rises when a useful head is switched off, -1 if it falls."""
        ...

    def where(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read"]:
        """The positions it reads of the first n_read, those that the model was given."""
        ...

    def targets(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read target"]:
        """The tokens whose logits matter there."""
        ...

    def of(self, logits: Float[Tensor, "row d_vocab"], targets: Int[Tensor, "row target"]) -> Float[Tensor, " row"]: ...


@fields_in_help
@dataclass(frozen=True, eq=False)
class Loss:
    """Cross-entropy of the next token in nats, at some loss positions (default: all)."""

    positions: slice = field(default_factory=lambda: slice(None))
    """Of the loss positions, of which a row of n tokens has n - 1."""
    long_name = "next-token loss"
    units = "nats"
    worse = 1

    def where(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read"]:
        read = torch.arange(tokens.shape[1] - 1, device=tokens.device)[self.positions]
        if not len(read):
            raise ValueError(f"{self.positions} picks none of the {tokens.shape[1] - 1} loss positions")
        return read.expand(len(tokens), -1)

    def targets(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read target"]:
        return tokens.gather(1, self.where(tokens, n_read) + 1)[..., None]

    def of(self, logits: Float[Tensor, "row d_vocab"], targets: Int[Tensor, "row target"]) -> Float[Tensor, " row"]:
        return F.cross_entropy(_at_least_float(logits), targets[:, 0], reduction="none")


@fields_in_help
@dataclass(frozen=True, eq=False)
class LogProb:
    """Log-probability of a chosen token, in nats, as the next after some positions (default: the last)."""

    token: Tokens
    """Its number; one, or one a sequence."""
    positions: Where = -1
    """Where it would be the next: one place, one a sequence, or several. -1 is the last."""
    long_name = "log-probability"
    units = "nats"
    worse = -1

    def where(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read"]:
        return _where(self.positions, tokens, n_read)

    def targets(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read target"]:
        return _everywhere(self.token, self.where(tokens, n_read))[..., None]

    def of(self, logits: Float[Tensor, "row d_vocab"], targets: Int[Tensor, "row target"]) -> Float[Tensor, " row"]:
        return -F.cross_entropy(_at_least_float(logits), targets[:, 0], reduction="none")


@fields_in_help
@dataclass(frozen=True, eq=False)
class Probability(LogProb):
    """Probability of a chosen token as the next after some positions (default: the last)."""

    long_name = "probability"
    units = ""

    def of(self, logits: Float[Tensor, "row d_vocab"], targets: Int[Tensor, "row target"]) -> Float[Tensor, " row"]:
        return super().of(logits, targets).exp()


@fields_in_help
@dataclass(frozen=True, eq=False)
class LogitDifference:
    """Logit of the right token minus that of a wrong one, as the next after some positions (default: the last).

    Source: Wang et al. 2022, "Interpretability in the wild".
    """

    right: Tokens
    """Number of the right token; one, or one a sequence."""
    wrong: Tokens
    """That of the wrong one."""
    positions: Where = -1
    """Where they would be the next: one place, one a sequence, or several. -1 is the last."""
    long_name = "logit difference"
    units = "logits"
    worse = -1

    def where(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read"]:
        return _where(self.positions, tokens, n_read)

    def targets(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read target"]:
        read = self.where(tokens, n_read)
        return torch.stack([_everywhere(self.right, read), _everywhere(self.wrong, read)], -1)

    def of(self, logits: Float[Tensor, "row d_vocab"], targets: Int[Tensor, "row target"]) -> Float[Tensor, " row"]:
        right, wrong = logits.gather(1, targets).unbind(1)
        return right - wrong


KL = "KL(clean || ablated) of the next token"
"""How the metric is called."""
NEVER_BELOW = "not tested: a KL is above 0 wherever anything changes, so that no change is no hypothesis"
Of = Callable[..., Tensor]
"""(logits [batch read d_vocab], targets [batch read], clean, as logits) -> one number a sequence [batch]."""


@fields_in_help
@dataclass(frozen=True, eq=False)
class OwnMetric:
    """A function of (logits, targets, clean) that returns one number a sequence, at some loss positions (default: all).

    `logits` [batch read d_vocab] are those of the model with heads off, `clean` those of the same sequences and
    positions with nothing off, `targets` [batch read] the next tokens there. An effect is the number with heads off
    minus that of the clean run: positive, the head helped, where the function rises as the model gets worse
    (`worse=1`); of one that falls, such as an accuracy, say `worse=-1`, and negative effects are those of useful heads.
    Whole sequences are given, so that the logits of one and its clean ones are held, whatever the budget of a sweep.
    """

    function: Of
    """Given (logits, targets, clean), it returns one number a sequence."""
    positions: slice = field(default_factory=lambda: slice(None))
    """Of the loss positions, of which a row of n tokens has n - 1."""
    label: str = ""
    """Default: the function's name."""
    units: str = ""
    """Of its number; empty for a pure one."""
    worse: int = 1
    """1 where the number rises as the model gets worse, -1 where it falls."""

    @property
    def long_name(self) -> str:
        return self.label or getattr(self.function, "__name__", type(self.function).__name__)

    def where(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read"]:
        return Loss(self.positions).where(tokens, n_read)

    def targets(self, tokens: Int[Tensor, "batch pos"], n_read: int) -> Int[Tensor, "batch read target"]:
        return Loss(self.positions).targets(tokens, n_read)

    def of_sequences(
        self, logits: Float[Tensor, "batch read d_vocab"], targets: Int[Tensor, "batch read"],
        clean: Float[Tensor, "batch read d_vocab"],
    ) -> Float[Tensor, " batch"]:  # fmt: skip
        """What the function says, as at least float32; ValueError where it is not one number a sequence."""
        logits = _at_least_float(logits)
        found: Any = self.function(logits, targets, _at_least_float(clean))
        name, n = name_of(self.function), len(logits)
        if not isinstance(found, Tensor) or found.shape != (n,):
            what = f"shape {list(found.shape)}" if isinstance(found, Tensor) else kind_of(found)
            raise ValueError(
                f"metric {name} returned {what} for logits {list(logits.shape)} [batch read d_vocab]: it must return "
                f"one number a sequence, a tensor [{n}]"
            )
        if n_nan := int(found.isnan().sum()):
            raise ValueError(f"metric {name} returned nan for {n_nan} of {n} sequences: there is no effect to say")
        return found.to(logits)


def kl(
    logits: Float[Tensor, "batch read d_vocab"], targets: Int[Tensor, "batch read"],
    clean: Float[Tensor, "batch read d_vocab"],
) -> Float[Tensor, " batch"]:  # fmt: skip
    """KL(clean || ablated) of the next token in nats, mean over positions; 0 for the clean run, never below."""
    return F.kl_div(logits.log_softmax(-1), clean.log_softmax(-1), log_target=True, reduction="none").sum(-1).mean(-1)


AnyMetric = Metric | OwnMetric | Of | str
"""A metric, a function of (logits, targets, clean), or a name: of `NAMED`, or `module:name`."""
NAMED: dict[str, Callable[[slice], Metric | OwnMetric]] = {
    "loss": Loss,
    "kl": lambda positions: OwnMetric(kl, positions, KL, "nats"),
}


def metric_of(metric: AnyMetric | None, positions: slice | None = None) -> Metric | OwnMetric:
    """The metric that is meant (None: `Loss`), at these loss positions where it is a name or a function.

    ValueError for positions beside a metric that knows its own, and for what is none.
    """
    given = metric
    if isinstance(metric, str) and metric not in NAMED and ":" in metric:
        metric = named(metric, "metric")
    if metric is None or isinstance(metric, str):
        if metric is not None and metric not in NAMED:
            raise ValueError(f"metric={metric!r} is none: there are {', '.join(NAMED)}, or write module:name")
        return NAMED[metric or "loss"](positions or slice(None))
    if isinstance(metric, OwnMetric | Metric) and not isinstance(metric, type):
        if positions is not None:
            raise ValueError(f"positions={positions} and metric={given}: a metric knows its positions, leave one out")
        return metric
    if isinstance(metric, type) or not callable(metric):
        raise ValueError(
            f"metric={given!r} is none: give a name ({', '.join(NAMED)} or module:name), LogitDifference(right, "
            f"wrong), ..., or a function of (logits, targets, clean)"
        )
    return OwnMetric(metric, positions or slice(None))


def wanted(
    metric: Metric | OwnMetric, tokens: Int[Tensor, "batch pos"], n_read: int, d_vocab: int
) -> tuple[Int[Tensor, "batch read"], Int[Tensor, "batch read target"]]:
    """The positions and tokens that a metric asks for; ValueError for tokens outside the vocabulary."""
    where, targets = metric.where(tokens, n_read), metric.targets(tokens, n_read)
    check_vocabulary(targets, d_vocab)
    return where, targets


def reader(
    metric: Metric | OwnMetric, tokens: Int[Tensor, "batch pos"], n_read: int, d_vocab: int,
    clean: Callable[[], Float[Tensor, "batch pos d_vocab"]],
) -> Callable[[Float[Tensor, "batch pos d_vocab"]], Float[Tensor, "batch read"]]:  # fmt: skip
    """From the logits of the first n_read positions to the metric wherever it reads.

    `clean` gives the unablated logits, and is asked only by a metric that looks at them.
    """
    where, targets = wanted(metric, tokens, n_read, d_vocab)
    rows = torch.arange(len(tokens), device=tokens.device)[:, None]
    if isinstance(metric, OwnMetric):
        with torch.no_grad():
            before = clean()[rows, where]
        return lambda logits: metric.of_sequences(logits[rows, where], targets[..., 0], before)[:, None]
    return lambda logits: metric.of(logits[rows, where].flatten(0, 1), targets.flatten(0, 1)).view(where.shape)


def told(metric: Metric | OwnMetric) -> str:
    """`kl`, `module:function` or a class with its fields. ValueError for a function that cannot be named again."""
    if isinstance(metric, OwnMetric):
        fields = {name: value for name, value in _fields(metric).items() if name not in ("function", "label", "units")}
        default = _fields(OwnMetric(metric.function))
        fields = {name: value for name, value in fields.items() if value != default[name]}
        return _call(_name(metric.function), fields)
    name = name_of(metric)
    return _call(name.rpartition(":")[2] if name.startswith(f"{__name__}:") else name, _fields(metric))


def fingerprint(metric: Metric | OwnMetric) -> str:
    """Another for another metric, for other fields, and for a function of somebody's whose own code has changed.

    What that function calls is not looked into.
    """
    function = metric.function if isinstance(metric, OwnMetric) else type(metric).of
    text = [told(metric), repr(_fields(metric, whole=True)), _code(function)]
    return sha256("\n".join(text).encode()).hexdigest()


def _at_least_float(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _where(positions: Where, tokens: Tensor, n_read: int) -> Int[Tensor, "batch read"]:
    batch = len(tokens)
    if isinstance(positions, Tensor):
        if len(positions) != batch:
            raise ValueError(f"{len(positions)} positions for {batch} sequences: give one for each")
        read = positions.to(tokens.device)[:, None]
    else:  # one, or several
        read = torch.tensor((positions,), dtype=torch.long, device=tokens.device).expand(batch, -1)
    if not read.numel() or bool(((read < -n_read) | (read >= n_read)).any()):
        raise ValueError(f"positions {read.unique().tolist()}: the input has positions 0 to {n_read - 1}")
    return read % n_read


def _everywhere(token: Tokens, read: Int[Tensor, "batch read"]) -> Int[Tensor, "batch read"]:
    if isinstance(token, int):
        return torch.full_like(read, token)
    if len(token) != len(read):
        raise ValueError(f"{len(token)} tokens for {len(read)} sequences: give one, or one for each")
    return token.to(read.device)[:, None].expand_as(read)


def _name(function: Any) -> str:
    if getattr(function, "__module__", None) == __name__:
        return function.__name__
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    path = getattr(function, "__qualname__", "").split(".")
    if reduce(lambda thing, part: getattr(thing, part, None), path, home) is not function:
        raise ValueError(
            f"metric {name_of(function)} cannot be named again, and a run keeps which metric its numbers are of: "
            f"define it by `def` at the top of a module or of the notebook"
        )
    return name_of(function)


def _fields(metric: Metric | OwnMetric, whole: bool = False) -> dict[str, Any]:
    found = {name: value for name, value in vars(metric).items() if name != "function"}
    return {name: _plain(value, whole) for name, value in found.items()}


def _plain(value: Any, whole: bool) -> str:
    values = value.tolist() if isinstance(value, Tensor) else value
    if whole or not isinstance(values, list) or len(values) <= LONG:
        return repr(values)
    return f"[{', '.join(map(repr, values[:LONG]))}, ... {len(values)} in all]"


def _call(name: str, fields: dict[str, str]) -> str:
    return f"{name}({', '.join(f'{field}={value}' for field, value in fields.items())})" if fields else name


def _code(function: Any) -> str:
    """What a function does, as far as its own bytes and constants say it; nothing of ours, which versions name."""
    code = getattr(function, "__code__", None)
    if code is None or function.__module__ == __name__:
        return ""
    return "\n".join([*_bytes(code), repr(function.__defaults__), repr(function.__kwdefaults__)])


def _bytes(code: CodeType) -> list[str]:
    return [code.co_code.hex(), repr(code.co_names), *(part for const in code.co_consts for part in _const(const))]


def _const(const: Any) -> list[str]:
    if isinstance(const, CodeType):
        return _bytes(const)
    return sorted(map(repr, const)) if isinstance(const, frozenset) else [repr(const)]  # whose order no process keeps
