"""What a run is made of: small frozen dataclasses, validated once, saved as JSON in the run directory."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Literal, cast

from tracer.config.field_docs import fields_in_help
from tracer.config.fields import check_fields, check_range, numbers_in

Init = float | Literal["fan_in", "linear"]
"""A standard deviation, or 1/sqrt(fan_in) normal, or torch.nn.Linear's default uniform(+-1/sqrt(fan_in))."""

CORPORA = ("python-stdlib", "repeated-random", "markov")
"""Corpora that need no files; anything else is a path, `hf:NAME` for a Hugging Face dataset, or code."""

OWN_CODE = re.compile(r"(?!hf:)[\w.]+:[\w.<>]+")
"""module:name of a function that makes a source (`tracer.data.own_source`); a file of such a name: "./module:name"."""

DRAWS = 5
"""Other sequences that resample ablation takes a replacement from, for a mean, unless told otherwise."""

WIDEST = {
    "n_layers": 1000, "n_heads": 4096, "d_model": 1 << 17, "n_ctx": 1 << 20, "d_head": 1 << 17, "d_vocab": 1 << 24,
    "mlp_hidden": 1 << 20, "unembed_hidden": 1 << 20,
}  # fmt: skip
"""Beyond these a number is a mistake, or meant to exhaust whoever reads it."""
LARGEST = 1 << 28
"""Numbers in the stream of one sequence."""


@fields_in_help
@dataclass(frozen=True)
class InitConfig:
    """Standard deviations of the weights at step 0."""

    embed: Init = 1.0
    """W_E."""
    pos: Init = 1.0
    """W_pos."""
    attn: Init = "fan_in"
    """W_Q, W_K, W_V, W_O and W_gate."""
    mlp: Init = "linear"
    """Every matrix and bias of the MLPs."""
    unembed: Init = "fan_in"
    """W_U."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, ("embed", "pos", "attn", "mlp", "unembed"), "not be negative or infinite", of="init.")


@fields_in_help
@dataclass(frozen=True)
class ModelConfig:
    """One transformer, read top to bottom; every specimen is a setting of these fields."""

    n_layers: int = 2
    """Number of blocks."""
    n_heads: int = 4
    """Attention heads per block."""
    d_model: int = 128
    """Width of the residual stream."""
    d_head: int | None = None
    """Width of a head; None means d_model / n_heads, d_model gives full-rank heads."""
    n_ctx: int = 64
    """Longest input, in tokens."""
    d_vocab: int | None = None
    """Vocabulary size; None means the tokenizer's."""
    mlp_hidden: tuple[int, ...] = ()
    """Widths of the hidden layers of each block's MLP; empty means attention only."""
    activation: Literal["relu", "gelu"] = "relu"
    """Non-linearity of the MLPs."""
    norm: Literal["none", "rms", "layer"] = "rms"
    """Normalisation of each sublayer."""
    norm_position: Literal["pre", "post"] = "pre"
    """pre: x + f(norm(x)); post: norm(x + f(x))."""
    norm_gain: bool = True
    """Learned gain (and bias, for layer norm)."""
    norm_eps: float = 1e-6
    """Added to the variance inside the root."""
    final_norm: bool = True
    """A last norm before the unembedding (ignored when norm is none)."""
    attn_scale: Literal["d_head", "d_model", "none"] = "d_head"
    """Scores are divided by the square root of this width, or by 1."""
    qk_norm: bool = False
    """RMSNorm of each head's q and k, before they are turned or multiplied (Dehghani et al. 2023; Qwen3)."""
    attn_softcap: float | None = None
    """Scores s become c tanh(s / c), within c of 0, before the softmax (Gemma 2, 2024, with c = 50); None: as they are.
    Whatever reads scores reads these. No fused kernel has it, so that training keeps every head's whole pattern."""
    attention: Literal["softmax", "sigmoid"] = "softmax"
    """sigmoid: the weight of a key is sigmoid(score - ln n_ctx), each key by itself (Ramapuram et al. 2024). A row may
    sum to less than 1 or more: what is measured and drawn divides one of more by its sum, and leaves what is less to no
    key, as a sink does. As costly as attn_softcap."""
    sink: Literal["none", "zero", "learned"] = "none"
    """A key beside the positions, of which nothing is read, so that a head may look nowhere: its logit is 0 (softmax1,
    Miller 2023) or learned by each head (gpt-oss 2025). What the positions get then sums to less than 1."""
    smear: Literal["none", "keys", "queries"] = "none"
    """Each head mixes every key (or query) with that of the token before, by a share that it learns (smeared keys,
    Olsson et al. 2022) and that begins at one half, after the norm of qk_norm and before rotary positions. The first
    token's stays as it is. The weight behind the share, a_smear, is decayed like other weights, which pulls the share
    to one half."""
    attn_gate: bool = False
    """What each head gives is multiplied, number by number, by sigmoid(x W_gate) of the query's own token before W_O
    (Qiu et al. 2025; Qwen3-Next). Whatever reads W_V W_O, or z, reads it before the gate."""
    attn_out: bool = True
    """W_O; without it the concatenated heads are the output, so n_heads * d_head must equal d_model."""
    attn_out_bias: bool = False
    """b_O, a bias on the attention output."""
    residual: bool = True
    """x + f(x); without it each sublayer replaces the stream."""
    positions: Literal["learned", "sinusoidal", "rotary", "shortformer", "none"] = "learned"
    """learned and sinusoidal add to the embedding, shortformer adds a learned vector to the input of q and k only."""
    dropout: float = 0.0
    """Dropout on the pattern and on each sublayer's output, while training."""
    unembed_hidden: tuple[int, ...] = ()
    """Hidden layers of an MLP that stands in for the unembedding; empty means one matrix W_U."""
    tie_embeddings: bool = False
    """W_U = W_E transposed."""
    init: InitConfig = field(default_factory=InitConfig)
    """Standard deviations of the weights at step 0."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, WIDEST, "be at least 1")
        for name, widest in WIDEST.items():
            value = getattr(self, name)
            if any(width > widest for width in numbers_in(value)):
                raise ValueError(f"{name}={value} is more than a model here can have: {widest:,}")
        if self.n_ctx * self.d_model > LARGEST:
            raise ValueError(f"n_ctx={self.n_ctx} times d_model={self.d_model} is more than {LARGEST:,}")
        if self.d_head is None and self.d_model % self.n_heads:
            small = [h for h in range(1, math.isqrt(self.d_model) + 1) if self.d_model % h == 0]
            divisors = sorted({*small, *(self.d_model // h for h in small)})
            nearest = [h for h in divisors if h < self.n_heads][-1:] + [h for h in divisors if h > self.n_heads][:1]
            raise ValueError(
                f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}; "
                f"nearest that divide: {', '.join(map(str, nearest))} (or set d_head yourself)"
            )
        if not self.attn_out and self.n_heads * self.head_width != self.d_model:
            raise ValueError(
                f"without W_O the heads are the output, so n_heads * d_head = {self.n_heads} * {self.head_width} = "
                f"{self.n_heads * self.head_width} must equal d_model={self.d_model}; set attn_out or another d_head"
            )
        if self.attn_out_bias and not self.attn_out:
            raise ValueError("attn_out_bias=True needs attn_out=True: there is no W_O to add a bias to")
        if self.tie_embeddings and self.unembed_hidden:
            raise ValueError(f"tie_embeddings=True leaves no room for unembed_hidden={self.unembed_hidden}")
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(f"rotary positions rotate pairs, so d_head={self.head_width} must be even")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be at least 0 and below 1")
        check_range(self, ["norm_eps"], "not be negative or infinite")
        if self.attention == "sigmoid" and self.sink != "none":
            raise ValueError(f"attention=sigmoid leaves nothing to share with sink={self.sink}: set one of them alone")
        if self.attn_softcap is not None and not 0 < self.attn_softcap < math.inf:
            raise ValueError(
                f"attn_softcap={self.attn_softcap} must be more than 0 and finite; None leaves scores alone"
            )

    @property
    def head_width(self) -> int:
        """d_head, resolved."""
        return self.d_head if self.d_head is not None else self.d_model // self.n_heads

    @property
    def attn_only(self) -> bool:
        return not self.mlp_hidden

    @property
    def looks_nowhere(self) -> bool:
        """May a row of a pattern sum to less than 1?"""
        return self.sink != "none" or self.attention == "sigmoid"

    @property
    def smeared(self) -> Literal["q", "k"] | None:
        """What of q and k is mixed with that of the token before; None: neither."""
        return cast("Literal['q', 'k'] | None", {"none": None, "keys": "k", "queries": "q"}[self.smear])

    @property
    def scale(self) -> float:
        """What q . k is multiplied by."""
        return {"d_head": self.head_width**-0.5, "d_model": self.d_model**-0.5, "none": 1.0}[self.attn_scale]


@fields_in_help
@dataclass(frozen=True)
class DataConfig:
    """Where the tokens come from."""

    corpus: str = "python-stdlib"
    """python-stdlib, repeated-random, markov, a text file or folder, hf:NAME[:SUBSET] (a Hugging Face dataset), or
    module:name of a function of one's own (docs/own.md)."""
    vocab_size: int = 1024
    """Tokens of the byte-level BPE, or of the random sources (the start token included)."""
    mix: str | None = None
    """A second corpus that replaces a share of the training rows (never of the held-out rows)."""
    mix_share: float = 0.0
    """Share of training rows that come from `mix`."""
    start_token: bool = False
    """Every row of text begins with the start token, as prompts and random rows do."""
    period_min: int = 8
    """Shortest block of repeated-random tokens."""
    period_max: int = 30
    """Longest block of repeated-random tokens."""
    markov_states: int = 3
    """Number of symbols of the in-context Markov chains (Edelman et al. 2024)."""
    val_share: float = 0.05
    """Share of the documents held out."""
    text_field: str = "text"
    """Column of a Hugging Face dataset that holds the text."""
    max_mb: float = 48.0
    """At most this many megabytes of text are read."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.mix_share <= 1:
            raise ValueError(f"mix_share={self.mix_share} must be between 0 and 1")
        if bool(self.mix) != bool(self.mix_share):
            raise ValueError(f"mix={self.mix!r} and mix_share={self.mix_share} go together: set both or neither")
        if not 0 < self.val_share < 1:
            raise ValueError(f"val_share={self.val_share} must be between 0 and 1")
        check_range(self, ["max_mb"], "be positive and finite")
        if not 2 <= self.period_min <= self.period_max:
            raise ValueError(f"period_min={self.period_min} and period_max={self.period_max}: need 2 <= min <= max")
        for name, said in (("mix", self.mix), ("corpus", self.corpus if self.mix else None)):
            if said and OWN_CODE.fullmatch(said):
                raise ValueError(
                    f"{name}={said!r} is a function of your own, which is not mixed: set mix=None and mix_share=0 "
                    f"(--data.mix None --data.mix-share 0), and mix in the function"
                )

    @property
    def is_own(self) -> bool:
        """Is the corpus a function that a person must name?"""
        return OWN_CODE.fullmatch(self.corpus) is not None


@fields_in_help
@dataclass(frozen=True)
class OptimConfig:
    """How the weights move."""

    name: Literal["sgd", "adamw", "muon"] = "adamw"
    """sgd is with Nesterov momentum; muon drives the matrices inside blocks and AdamW everything else."""
    lr: float = 1e-3
    """Learning rate (of the matrices, for muon)."""
    qk_lr_factor: float = 1.0
    """W_Q and W_K move at lr times this."""
    pos_lr_factor: float = 1.0
    """W_pos moves at lr times this."""
    adam_lr: float | None = None
    """Learning rate of the AdamW part of muon; None means lr."""
    momentum: float = 0.9
    """Of sgd and muon."""
    beta2: float = 0.99
    """Of AdamW."""
    weight_decay: float = 0.01
    """An update takes lr times this off every weight; of sgd, this times the weight is added to its gradient."""
    warmup: int = 50
    """Steps of linear warm-up, then constant."""
    clip: float | None = 1.0
    """Largest global gradient norm; None leaves gradients alone."""
    qk_clip: float | None = None
    """Largest attention logit: a head with a larger one in the batch has W_Q and W_K scaled down after the update, each
    by the root of what is too much (QK-clip, Kimi K2 2025); None leaves them alone."""
    reparam: Literal["none", "sigma"] = "none"
    """sigma: each matrix of the blocks is gamma V / sigma(V), sigma its largest singular value, and V and gamma, which
    begins at 1, are learned (Zhai et al. 2023). Weights that are kept, measured and clipped by are the products; decay
    is of V and gamma."""
    batch_size: int = 32
    """Sequences per step, over all processes and accumulated micro-batches."""
    accumulate: int = 1
    """Micro-batches per step."""
    precision: Literal["auto", "no", "bf16"] = "auto"
    """Mixed precision of the forward and backward; auto is bf16 on a GPU."""
    compile: bool = False
    """torch.compile the training forward."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, ("batch_size", "accumulate"), "be at least 1")
        if self.batch_size % self.accumulate:
            raise ValueError(f"batch_size={self.batch_size} is not divisible by accumulate={self.accumulate}")
        if self.qk_clip is not None and self.compile:
            raise ValueError("qk_clip reads q and k of each batch, which compile=True hides: set one of them alone")
        if self.qk_clip is not None and self.reparam != "none":
            raise ValueError(
                f"reparam={self.reparam} makes W_Q and W_K anew, which qk_clip scales: set one of them alone"
            )
        positive = ("lr", "adam_lr", "qk_lr_factor", "pos_lr_factor", "clip", "qk_clip")
        check_range(self, positive, "be positive and finite")
        check_range(self, ("warmup", "weight_decay", "momentum", "beta2"), "not be negative or infinite")


@fields_in_help
@dataclass(frozen=True)
class RecordConfig:
    """When to measure and what to keep."""

    every: int = 10
    """Head measures, losses and gradients every this many steps (and at 1, 2, 4, 8, ... before)."""
    begin: int = 0
    """Before this step nothing is recorded but at snapshots."""
    snapshot_every: int = 25
    """Weights and patterns every this many steps."""
    snapshot_mb: float = 2000.0
    """Snapshots are thinned out beforehand so that all of them fit in this many megabytes."""
    state_every: int = 100
    """Weights with the optimiser's state every this many steps, from which training can be had again; 0: none."""
    state_mb: float = 500.0
    """Those states are thinned out beforehand so that all of them fit in this many megabytes."""
    log_every: int = 100
    """A log line, with sample texts, every this many steps."""
    val_rows: int = 16
    """Held-out sequences of Probe D."""
    repeat_rows: int = 32
    """Sequences of Probe R (metrics: at least 32)."""
    icl_rows: int = 40
    """Held-out sequences of the in-context learning score."""
    icl_every: int = 100
    """That score every this many steps, of those that are recorded, and at the last."""
    text_prompts: int = 3
    """Held-out passages whose patterns are kept."""
    repeat_prompts: int = 2
    """Repeated-token sequences whose patterns are kept."""
    pattern_ctx: int = 64
    """Patterns are kept for the first this many positions."""

    def __post_init__(self) -> None:
        check_fields(self)
        rows = ("val_rows", "repeat_rows", "icl_rows", "pattern_ctx")
        check_range(self, ("every", "snapshot_every", "log_every", "icl_every", *rows), "be at least 1", of="record.")
        kept = ("begin", "text_prompts", "repeat_prompts", "snapshot_mb", "state_every", "state_mb")
        check_range(self, kept, "not be negative or infinite", of="record.")


CLAMP = re.compile(
    r"L(\d+)(?:H(\d+))?(?: (off|no-previous|previous)|( z)? ?= ?((?!hf:)[\w.]+:[\w.<>]+))(?: (\d*):(\d*))?"
)
CLAMP_GRAMMAR = (
    'write "L0H1 off" (the head writes nothing), "L0 no-previous" (no head of layer 0 may attend to the token before), '
    '"L0H2 previous" (it attends to nothing else), "L1H2 = module:function" (its pattern is what your function '
    'returns) or "L1H2 z = module:function" (its z is), and a window of steps if it is not held throughout: '
    '"L0H1 off 200:600", "L0H1 off 200:", "L0H1 off :600"'
)


@fields_in_help
@dataclass(frozen=True)
class Clamp:
    """One intervention that is held while a model trains, in the words of `TrainConfig.clamp`."""

    layer: int
    """Counted from 0."""
    head: int | None
    """None: every head of the layer."""
    what: Literal["off", "no-previous", "previous", "pattern", "z"]
    """The head writes nothing (off); does not look at the token before (no-previous), or at nothing else (previous);
    or has the pattern, or the z, that `code` gives."""
    start: int = 0
    """The first step at which it is held."""
    stop: int | None = None
    """Held at the steps start <= t < stop; None: to the end."""
    code: str = ""
    """`module:function` of what gives the pattern, or z; of the other words none."""

    @classmethod
    def parse(cls, text: str) -> Clamp:
        """Read one clamp; ValueError with the grammar when it is none."""
        found = CLAMP.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"clamp {text!r} is not understood: {CLAMP_GRAMMAR}")
        layer, head, word, z, code, start, stop = found.groups()
        what = cast(Literal["off", "no-previous", "previous", "pattern", "z"], word or ("z" if z else "pattern"))
        clamp = cls(
            int(layer), int(head) if head else None, what, int(start or 0), int(stop) if stop else None, code or ""
        )
        if clamp.stop is not None and clamp.stop <= clamp.start:
            raise ValueError(f"clamp {text!r} is never held: its window ends at step {clamp.stop}, before it begins")
        return clamp

    def __str__(self) -> str:
        where = f"L{self.layer}" + ("" if self.head is None else f"H{self.head}")
        what = f"{' z' if self.what == 'z' else ''} = {self.code}" if self.code else f" {self.what}"
        window = f" {self.start}:{'' if self.stop is None else self.stop}" if self.start or self.stop else ""
        return where + what + window

    def heads(self, n_heads: int) -> tuple[int, ...]:
        return tuple(range(n_heads)) if self.head is None else (self.head,)

    def held(self, step: int) -> bool:
        return self.start <= step and (self.stop is None or step < self.stop)

    def meets(self, other: Clamp) -> bool:
        """Do both act on the same head at the same step?"""
        heads = self.layer == other.layer and (None in (self.head, other.head) or self.head == other.head)
        later = max(self.start, other.start)
        return heads and self.held(later) and other.held(later)


@fields_in_help
@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a run."""

    run: str | None = None
    """Name under checkpoints/, or a directory; None makes a name from the preset and the seed."""
    steps: int = 1000
    """Number of updates."""
    seed: int = 0
    """Of the initial weights and the order of the data."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU when there is one."""
    clamp: tuple[str, ...] = ()
    """Interventions held while training: "L0H1 off", "L0 no-previous", "L0H2 previous 200:600" (a window of steps),
    "L1H2 = module:function" (a pattern of one's own, docs/own.md)."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """One transformer, read top to bottom; every specimen is a setting of these fields."""
    data: DataConfig = field(default_factory=DataConfig)
    """Where the tokens come from."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """How the weights move."""
    record: RecordConfig = field(default_factory=RecordConfig)
    """When to measure and what to keep."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, ["steps"], "be at least 1")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed} must be at least 0 and below 2**32")
        if self.model.qk_norm and self.optim.qk_clip is not None:
            raise ValueError("model.qk_norm=True undoes what optim.qk_clip scales, W_Q and W_K: set one of them alone")
        if self.model.sink != "none" and self.optim.qk_clip is not None:
            raise ValueError("model.sink and optim.qk_clip exclude each other: the largest logit may be the sink's")
        if self.model.attn_softcap is not None and self.optim.qk_clip is not None:
            raise ValueError("model.attn_softcap and optim.qk_clip both limit the largest logit: set one of them alone")
        self._check_clamps()

    @property
    def clamps(self) -> tuple[Clamp, ...]:
        """`clamp`, read."""
        return tuple(map(Clamp.parse, self.clamp))

    @property
    def own_clamps(self) -> tuple[Clamp, ...]:
        """Those that are functions, which a person must name."""
        return tuple(clamp for clamp in self.clamps if clamp.code)

    def _check_clamps(self) -> None:
        n_layers, n_heads, clamps = self.model.n_layers, self.model.n_heads, self.clamps
        for text, clamp in zip(self.clamp, clamps, strict=True):
            if clamp.what == "previous" and self.model.attention == "sigmoid":
                raise ValueError(
                    f"clamp {text!r}: model.attention=sigmoid gives the one key that is left no weight of 1"
                )
            if clamp.layer >= n_layers or (clamp.head or 0) >= n_heads:
                raise ValueError(
                    f"clamp {text!r}: this model has layers 0 to {n_layers - 1} and heads 0 to {n_heads - 1}"
                )
            for other, wanted in zip(self.clamp, clamps, strict=True):
                if {clamp.what, wanted.what} == {"previous", "no-previous"} and clamp.meets(wanted):
                    raise ValueError(f"clamps {text!r} and {other!r} leave a head nothing to attend to: drop one")
                if clamp.code and clamp is not wanted and clamp.what == wanted.what and clamp.meets(wanted):
                    raise ValueError(f"clamps {text!r} and {other!r} give one head two of the same: drop one")
        if clamps and self.optim.compile:
            raise ValueError(
                f"clamp={', '.join(self.clamp)} and optim.compile=True exclude each other: the model would be "
                f"compiled anew wherever a clamp begins or ends; train with --no-optim.compile"
            )
