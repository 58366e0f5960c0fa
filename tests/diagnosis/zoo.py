"""Runs that are sick by construction, and healthy ones: a table of what each is, and of what has to be found.

Each is a real run of a second on one core. What is broken is broken in the weights, the data or the optimiser, so that
the finding does not hang on rounding, on the seed or on the number of threads.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tests.diagnosis import watched
from tests.diagnosis.harm import (
    Hurt,
    batch,
    blind,
    copy,
    cut,
    freeze,
    identity,
    once,
    shuffle,
    swell,
    withhold,
    zero,
)  # fmt: skip
from tests.diagnosis.watched import Case
from tracer.config import DataConfig, InitConfig, ModelConfig, OptimConfig, RecordConfig, TrainConfig
from tracer.diagnosis import Kind
from tracer.store import Run
from tracer.store.labels import Labels
from tracer.tracking.telling import Telling
from tracer.training import loop
from tracer.training.extras import Extras

CHAOS: frozenset[Kind] = frozenset(
    {"one-hot", "vanishing", "scores", "collapse", "residual", "updates", "unigram", "uniform", "dead"}
)
"""What may follow, and is true where it is found, once steps are so large that rounding decides."""


@dataclass(frozen=True)
class Animal:
    """One run."""

    name: str
    how: str
    """How it is made sick, or what it is."""
    expected: frozenset[Kind] = frozenset()
    may: frozenset[Kind] = frozenset()
    """Findings that are true of some seeds or machines and not of others."""
    says: str = ""
    """What the advice about the expected finding has to say."""
    remedy: bool = True
    """Does the evidence leave one cause? Else the finding has to name several, and what tells them apart."""
    settings: dict[str, Any] = field(default_factory=dict)
    hurt: Hurt | None = None
    watched: Case | None = None

    def train(self, folder: Path, seed: int = 0) -> Run:
        """Make the run; no two seeds share weights or batches."""
        if self.watched is not None:
            return watched.train(self.watched, folder / f"{self.name}-{seed}", seed)
        job = loop.prepare(config(folder, seed, **self.settings))
        if self.hurt is not None:
            self.hurt(job)
        return loop._begin(
            job, folder / f"{self.name}-{seed}", None, 0, None, True, False, Telling(),
            Extras.given((), None, ()), Labels(),
        )  # fmt: skip


def config(folder: Path, seed: int, **settings: Any) -> TrainConfig:
    """A tiny run, with changes by the name of the field that they change."""
    settings = dict(settings)
    if settings.setdefault("corpus", "text") == "text":
        settings["corpus"], settings["vocab_size"] = str(text(folder)), 257
    base: dict[str, Any] = {
        "model": ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=16),
        "data": DataConfig(corpus="text", vocab_size=16, period_min=3, period_max=6),
        "optim": OptimConfig(name="adamw", lr=1e-2, batch_size=16, warmup=0),
        "record": RecordConfig(every=4, snapshot_every=1000, log_every=1000, val_rows=16, repeat_rows=4, text_prompts=0,
                               repeat_prompts=0),
    }  # fmt: skip
    for part, value in base.items():
        mine = {name: settings.pop(name) for name in list(settings) if name in value.__dataclass_fields__}
        base[part] = replace(value, **mine)
    return TrainConfig(**dict[str, Any](steps=48, device="cpu", seed=seed) | settings | base)


WORDS = {"the": "a cat dog bird fish", "cat": "sat ran slept", "dog": "ran barked", "bird": "sang flew", "fish": "swam"}


def text(folder: Path) -> Path:
    """Sentences of a small grammar."""
    path = folder / "text.txt"
    if not path.exists():
        draw = random.Random(0)
        subjects = [word for word in WORDS if word != "the"]
        lines = (f"the {(one := draw.choice(subjects))} {draw.choice(WORDS[one].split())}." for _ in range(4000))
        path.write_text("\n".join(lines))
    return path


def sick(title: str, how: str, expected: str, hurt: Hurt | None = None, says: str = "", remedy: bool = True,
         may: frozenset[Kind] = frozenset(), **settings: Any) -> Animal:  # fmt: skip
    return Animal(title, how, frozenset(expected.split()), may, says, remedy, settings, hurt)  # pyrefly: ignore[bad-argument-type]


def other(name: str, how: str, expected: str, case: watched.Case, says: str = "", remedy: bool = False,
          may: frozenset[Kind] = frozenset()) -> Animal:  # fmt: skip
    return Animal(name, how, frozenset(expected.split()), may, says, remedy, watched=case)  # pyrefly: ignore[bad-argument-type]


SHARP: frozenset[Kind] = frozenset({"vanishing", "scores", "unigram"})
SLOW: frozenset[Kind] = frozenset({"unigram"})
"""Where steps are small on purpose, so that what was built stays."""
ONE_HEAD: dict[str, Any] = {"n_layers": 1, "n_heads": 1, "lr": 1e-4, "steps": 24}
RANDOM = "random values"
MANY: dict[str, Any] = {"remedy": False}
REPEATS: dict[str, Any] = {"corpus": "repeated-random"}
COUNTED: dict[str, Any] = {
    **REPEATS,
    "vocab_size": 64,
    "lr": 4e-3,
    "val_rows": 64,
    "init": InitConfig(unembed=0.02),
}
"""Repeats of 63 tokens, all as frequent, from a start that knows nothing: a loss of ln 64, and of ln 63 for whoever has
counted. Nothing is between."""
LEARNED: dict[str, Any] = {**REPEATS, "period_max": 4, "lr": 2e-2, "steps": 100, "batch_size": 32}
"""Repeats of which much is learned in 100 steps: a token comes back after three or four."""
SICK = (
    sick("silent", "W_V = W_O = 0 in all heads", "dead unigram", zero("W_V", "W_O"), RANDOM, **COUNTED),
    sick("silent-sgd", "the same, one layer, SGD", "dead unigram", zero("W_V", "W_O"), RANDOM, n_layers=1, name="sgd",
         weight_decay=0.0, **COUNTED | {"lr": 0.1}),
    sick("silent-text", "the same on text, where a token tells the next: only attention is sick", "dead",
         zero("W_V", "W_O"), RANDOM, norm="layer", mlp_hidden=(32,)),
    sick("silent-layer", "the same in the second layer of two", "dead", zero("W_V", "W_O", layers=(1,)), RANDOM,
         n_heads=4),
    sick("silent-head", "the same in one head of four", "dead", zero("W_V", "W_O", heads=1), RANDOM, n_heads=4,
         norm="none", lr=3e-3),
    sick("equal-keys", "W_Q = W_K = 0 in all heads", "uniform", zero("W_Q", "W_K"), RANDOM),
    sick("equal-keys-muon", "the same with Muon and rotary positions", "uniform", zero("W_Q", "W_K"), RANDOM,
         name="muon", positions="rotary", lr=3e-3),
    sick("equal-keys-markov", "the same on Markov chains, four layers", "uniform", zero("W_Q", "W_K"), RANDOM,
         corpus="markov", n_layers=4, norm="layer"),
    sick("equal-keys-head", "the same in one head of four", "uniform", zero("W_Q", "W_K", heads=2), RANDOM, n_heads=4),
    sick("frozen-qk", "W_Q and W_K ask for no gradient", "frozen", freeze("W_Q", "W_K"), "requires_grad", **MANY),
    sick("frozen-qk-muon", "the same with Muon", "frozen", freeze("W_Q", "W_K"), "requires_grad", **MANY, name="muon",
         lr=3e-3),
    sick("frozen-embedding", "W_E asks for no gradient", "frozen", freeze("W_E"), "requires_grad", **MANY,
         corpus="text", mlp_hidden=(32,)),
    sick("frozen-block", "nothing in the second block asks for a gradient", "frozen",
         freeze(*(f"blocks.1.attn.W_{x}" for x in "QKVO"), "blocks.1.ln1.w"), "requires_grad", **MANY),
    sick("withheld-qk", "W_Q and W_K are not given to AdamW", "frozen", withhold("W_Q", "W_K"), "optimiser", **MANY),
    sick("withheld-unembed", "W_U is not given to AdamW", "frozen", withhold("W_U"), "optimiser", **MANY),
    sick("cut-head", "no gradient arrives in W_Q and W_K of one head", "frozen", cut(1), "requires_grad", **MANY,
         n_heads=4, weight_decay=0.0),
    sick("clones", "all heads of a layer begin as copies", "clones", copy(0, 1), "its own",
         name="sgd", lr=0.1),
    sick("clones-some", "two heads of four begin as copies", "clones", copy(1), "its own", n_heads=4, lr=3e-3,
         corpus="text"),
    sick("shuffled", "tokens shuffled over all rows", "unigram", shuffle, "context", **MANY, **COUNTED),
    sick("shuffled-text", "the letters of a text shuffled over all rows", "unigram", shuffle, "context", **MANY,
         steps=100, lr=2e-2, mlp_hidden=(32,)),
    sick("blind", "every token has the same vector", "unigram", blind, "inputs", **MANY, **COUNTED),
    sick("blind-rotary", "the same, with positions in q and k only", "unigram uniform updates", blind, "are 0",
         **MANY, **COUNTED, positions="rotary"),
    sick("asleep", "a learning rate of 1e-9", "updates unigram", None, "raise the learning rate", lr=1e-9),
    sick("asleep-clipped", "gradients clipped to 1e-9, SGD", "updates unigram", None, "clipped", **MANY, name="sgd",
         lr=0.1, clip=1e-9, momentum=0.0, weight_decay=0.0),
    sick("lr-0.5", "AdamW at 0.5, 50 times the usual", "residual", None, "lower the learning rate", may=CHAOS, lr=0.5),
    sick("lr-1.0", "AdamW at 1.0", "residual", None, "lower the learning rate", may=CHAOS, lr=1.0, clip=None),
    sick("decay", "weight decay throws every weight to -0.98 times its size at every step", "updates", None,
         "lower the weight decay", may=CHAOS, lr=1e-2, weight_decay=198.0),
    sick("overshoot", "weight decay throws every weight to -4 times its size at every step", "divergence", None,
         "lower the weight decay", may=CHAOS, lr=0.5, weight_decay=10.0, norm="none", every=1),
    sick("swell", "W_E grows by a fifth at every step", "residual updates", swell, "beside the optimiser", **MANY,
         may=frozenset({"dead", "unigram"})),
    sick("nan-once", "one forward pass gives nan, and not again", "divergence", once(30), "fault of that moment",
         **MANY),
    sick("nan-batch", "one batch gives infinities whenever it comes", "divergence", batch(30), "left its range",
         **MANY),
    sick("one-hot", "W_Q and W_K start 120 times too large", "one-hot", None, "lower model.init.attn",
         may=SHARP, lr=1e-4, steps=24, init=InitConfig(attn=30.0)),
    sick("unscaled", "scores as large, and not divided by sqrt(d_head)", "one-hot", None, "sqrt(d_head)",
         may=SHARP, **MANY, lr=1e-4, steps=24, attn_scale="none", init=InitConfig(attn=30.0)),
    sick("loud", "W_Q and W_K a multiple of the identity: equal tokens tie at scores over 88", "scores",
         identity(9.0), "lower model.init.attn", may=SLOW, **ONE_HEAD, corpus="markov",
         positions="none"),
    sick("stands-in", "a head that looks at its own token, without a residual connection", "stands-in",
         identity(1.6), "residual connection", may=SLOW, **ONE_HEAD, residual=False,
         init=InitConfig(pos=3.0)),
    other("watched-equal-keys", "another model, queries and keys 0", "uniform", watched.Case(watched.zero_qk)),
    other("watched-frozen", "another model, queries and keys not given to the optimiser", "frozen",
          watched.Case(None, without=("q.weight", "k.weight")), "optimiser"),
    other("watched-clones", "another model, heads that begin as copies", "clones",
          watched.Case(watched.clone, lr=0.1, optimizer=torch.optim.SGD), "its own", remedy=True),
    other("watched-asleep", "another model, a learning rate of 0", "updates", watched.Case(lr=0.0), "learning rate"),
    other("watched-nan", "another model, a weight becomes nan", "divergence", watched.Case(nan_at=20),
          "outside of the optimiser", remedy=True),
    other("watched-one-hot", "another model, scores 10,000 times too large", "one-hot", watched.Case(watched.loud)),
)  # fmt: skip


def healthy(title: str, how: str, **settings: Any) -> Animal:
    return Animal(title, how, settings=settings)


HEALTHY = (
    healthy("base", "two layers, two heads, RMSNorm, AdamW, text"),
    healthy("repeats", "repeats", **LEARNED),
    healthy("repeats-rotary", "repeats, rotary positions, four heads", **LEARNED, positions="rotary", n_heads=4),
    healthy("repeats-sgd", "repeats, SGD", **{**LEARNED, "lr": 0.1}, name="sgd"),
    healthy("repeats-muon", "repeats, Muon", **LEARNED, name="muon"),
    healthy("one-layer", "one layer, one head", n_layers=1, n_heads=1),
    healthy("three-layers", "three layers of four heads", n_layers=3, n_heads=4),
    healthy("four-layers", "four layers, LayerNorm", n_layers=4, norm="layer"),
    healthy("eight-heads", "eight heads of two", n_heads=8),
    healthy("wide", "32 wide, eight heads", d_model=32, n_heads=8, lr=5e-3),
    healthy("full-rank", "heads as wide as the stream", d_head=16),
    healthy("mlp", "with an MLP", mlp_hidden=(64,)),
    healthy("gelu", "with two hidden layers and GELU", mlp_hidden=(32, 32), activation="gelu", norm="layer"),
    healthy("no-norm", "without a norm", norm="none", lr=3e-3),
    healthy("post-norm", "norm after the sublayer, without gains", norm_position="post", norm="layer", norm_gain=False),
    healthy("rotary", "rotary positions", positions="rotary"),
    healthy("sinusoidal", "sinusoidal positions", positions="sinusoidal"),
    healthy("shortformer", "positions in q and k only", positions="shortformer"),
    healthy("no-positions", "no positions", positions="none"),
    healthy("tied", "W_U = W_E transposed", tie_embeddings=True, init=InitConfig(embed=0.3)),
    healthy("no-output-matrix", "attention without W_O", attn_out=False),
    healthy("biased-output", "attention with b_O", attn_out_bias=True),
    healthy("small-start", "weights of 0.02, as GPT-2", init=InitConfig(0.02, 0.02, 0.02, 0.02, 0.02), warmup=5),
    healthy("dropout", "dropout of a tenth", dropout=0.1),
    healthy("sgd", "SGD with momentum", name="sgd", lr=0.1),
    healthy("sgd-unclipped", "SGD without momentum or clipping", name="sgd", lr=0.5, momentum=0.0, clip=None),
    healthy("muon", "Muon", name="muon", lr=1e-2),
    healthy("muon-text", "Muon, three layers", name="muon", lr=1e-2, n_layers=3),
    healthy("markov", "Markov chains", corpus="markov", lr=2e-2, steps=80),
    healthy("markov-rotary", "two symbols, rotary, four heads", corpus="markov", markov_states=2, positions="rotary",
            n_heads=4, lr=2e-2, steps=100),
    healthy("text-large", "text, 32 wide, an MLP of 128", d_model=32, mlp_hidden=(128,), lr=5e-3),
    healthy("text-mlp", "LayerNorm, MLP, four layers", mlp_hidden=(64,), norm="layer", n_layers=4),
    healthy("mixed", "text with a tenth of repeats", mix="repeated-random", mix_share=0.1),
    healthy("accumulated", "two micro-batches", accumulate=2),
    healthy("wide-batch", "64 rows", batch_size=64),
    healthy("long", "150 steps", steps=150, every=10),
    healthy("short", "30 steps", steps=30),
    other("watched-healthy", "another model, AdamW", "", watched.Case()),
    other("watched-sgd", "another model, SGD", "", watched.Case(lr=0.1, optimizer=torch.optim.SGD)),
    other("watched-gpt2", "GPT-2 of Hugging Face, two layers", "", watched.Case(model="gpt2", lr=3e-3)),
)  # fmt: skip
ZOO = {animal.name: animal for animal in (*SICK, *HEALTHY)}
