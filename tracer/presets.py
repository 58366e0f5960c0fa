"""Every named configuration: the demo, the induction recipes, and each specimen of the tutorials behind manyeyes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tracer.config import DataConfig, InitConfig, ModelConfig, OptimConfig, RecordConfig, TrainConfig
from tracer.config.field_docs import fields_in_help


@fields_in_help
@dataclass(frozen=True)
class Preset:
    """A configuration with a name and a sentence that says what it shows."""

    description: str
    """What a run of it shows."""
    config: TrainConfig
    """Every setting of it."""


_DEMO = TrainConfig(
    steps=1300,
    model=ModelConfig(
        n_layers=2, n_heads=4, d_model=128, n_ctx=64, norm="rms", positions="learned",
        init=InitConfig(embed=0.02, pos=0.2, attn=0.02, unembed=0.02),
    ),
    data=DataConfig(corpus="python-stdlib", vocab_size=1024, mix="repeated-random", mix_share=0.1, start_token=True),
    optim=OptimConfig(
        name="muon", lr=3e-3, qk_lr_factor=20 / 3, pos_lr_factor=1 / 3, momentum=0.95, beta2=0.99, weight_decay=0.2,
        warmup=50, clip=1.0, batch_size=32,
    ),
    record=RecordConfig(every=25, snapshot_every=25),
)  # fmt: skip

_TOY = TrainConfig(
    steps=600,
    model=ModelConfig(n_layers=2, n_heads=4, d_model=64, n_ctx=64, norm="rms", positions="learned",
                      init=InitConfig(embed=1.0, pos=1.0, attn="fan_in", unembed="fan_in")),
    data=DataConfig(corpus="repeated-random", vocab_size=65, period_min=8, period_max=30),
    optim=OptimConfig(name="adamw", lr=2e-3, batch_size=64, warmup=0, clip=1.0, weight_decay=0.01, beta2=0.99),
    record=RecordConfig(every=25, snapshot_every=25),
)  # fmt: skip

_T1 = TrainConfig(  # series A of the tutorials: context 32, 4096 windows a batch, 3 epochs = 3548 batches
    steps=3548,
    model=ModelConfig(
        n_layers=1, n_heads=1, d_model=256, n_ctx=32, mlp_hidden=(2048, 2048), norm="none", attn_out=False,
        init=InitConfig(embed=1.0, pos=1.0, attn="fan_in", mlp="linear", unembed="fan_in"),
    ),
    data=DataConfig(corpus="python-stdlib", vocab_size=2048),
    optim=OptimConfig(name="sgd", lr=0.05, momentum=0.9, weight_decay=0.0, warmup=0, clip=None, batch_size=4096),
    record=RecordConfig(every=50, snapshot_every=100, log_every=100, val_rows=256),  # their losses differ by 2 %
)  # fmt: skip


def _with(config: TrainConfig, model: dict, **changes: Any) -> TrainConfig:
    return replace(config, model=replace(config.model, **model), **changes)


_NO_RESIDUAL = {"residual": False, "mlp_hidden": (), "unembed_hidden": (2048, 2048)}  # logits = MLP(Attn(X))
_FOUR_HEADS = _with(_T1, {"n_heads": 4, "attn_out": True})

_CHARACTERS = TrainConfig(  # its exercise: 100 steps on characters, which are the bytes of ASCII text
    steps=100,
    model=ModelConfig(
        n_layers=2, n_heads=6, d_model=384, n_ctx=256, norm="layer", norm_eps=1e-5, attn_out_bias=True, dropout=0.1,
        mlp_hidden=(1536,), activation="gelu",
        init=InitConfig(embed=0.02, pos=0.02, attn="linear", mlp="linear", unembed=0.02),
    ),
    data=DataConfig(vocab_size=257),
    optim=OptimConfig(name="adamw", lr=3e-4, batch_size=16, warmup=0),
    record=RecordConfig(every=10, snapshot_every=25, log_every=50, val_rows=64),
)  # fmt: skip

PRESETS: dict[str, Preset] = {
    "demo": Preset(
        "Python source text with 10 % repeated-random rows: an induction head forms within 1,300 steps. "
        "The mix, Muon and the size of the position embeddings help it along; induction-natural does without the mix",
        _DEMO,
    ),
    "induction-natural": Preset(
        "the demo's recipe on text alone: the same heads form, later and weaker",
        replace(_DEMO, steps=2000, data=replace(_DEMO.data, mix=None, mix_share=0.0)),
    ),
    "one-layer": Preset(
        "the demo with one layer of attention, nothing else: skip-trigrams, [A] ... [B] -> [C], and no induction head",
        _with(_DEMO, {"n_layers": 1}, steps=800),
    ),
    "induction": Preset(
        "a toy of repeated random tokens, 64 words: induction heads within 600 steps", _TOY
    ),
    "single-head-unscaled": Preset(
        "one head, N(0,1) weights, scores not scaled, no residual: attention is one-hot from the start",
        _with(_T1, {**_NO_RESIDUAL, "attn_scale": "none", "init": replace(_T1.model.init, attn=1.0)}),
    ),
    "single-head-scaled": Preset(
        "scores and weights scaled, still no residual: entropy starts high and collapses again",
        _with(_T1, _NO_RESIDUAL),
    ),
    "single-head-residual": Preset("X + Attn(X), then X + MLP(X): entropy stays", _T1),
    "single-head": Preset("the same again, as the base line of the multi-head series", _T1),
    "multi-head-full": Preset("four heads, each of full rank d_head = d_model", _with(_FOUR_HEADS, {"d_head": 256})),
    "multi-head": Preset("four heads of d_model / 4", _FOUR_HEADS),
    "two-blocks": Preset("two blocks of the same", _with(_FOUR_HEADS, {"n_layers": 2})),
    "four-blocks": Preset(
        "four blocks without normalisation: diverges within the first hundred batches",
        _with(_FOUR_HEADS, {"n_layers": 4}),
    ),
    "four-blocks-rms": Preset(
        "four blocks with RMSNorm on the input of every sublayer: trains",
        _with(_FOUR_HEADS, {"n_layers": 4, "norm": "rms", "final_norm": False}),
    ),
    "many-eyes": Preset(
        "heads as separate linear maps on characters, dropout, W_O with a bias: 384 wide, 6 heads, context 256",
        _CHARACTERS,
    ),
    "many-eyes-bare": Preset(
        "the same without W_O: the heads' outputs side by side are what the block adds",
        _with(_CHARACTERS, {"attn_out": False, "attn_out_bias": False}),
    ),
    "one-matmul": Preset(
        "one C x C matrix each for Q, K, V and O, no biases: 768 wide, 12 heads",
        TrainConfig(
            steps=1000,
            model=ModelConfig(
                n_layers=1, n_heads=12, d_model=768, n_ctx=128, norm="layer", norm_eps=1e-5, dropout=0.1,
                init=InitConfig(embed=0.02, pos=0.02, attn="linear", unembed=0.02),
            ),
            optim=OptimConfig(name="adamw", lr=3e-4, batch_size=16),
        ),
    ),
    "post-norm": Preset(
        "LayerNorm(x + sublayer(x)) without learned parameters: 8 wide, 4 heads of size 2, for 'the cat sat on mat'",
        TrainConfig(
            steps=500,
            model=ModelConfig(
                n_layers=1, n_heads=4, d_model=8, n_ctx=32, norm="layer", norm_position="post", norm_gain=False,
                norm_eps=1e-5, final_norm=False, mlp_hidden=(32,),
                init=InitConfig(embed=1.0, pos=0.1, attn="fan_in", unembed="fan_in"),
            ),
            data=DataConfig(vocab_size=512),
            optim=OptimConfig(name="adamw", lr=3e-3, batch_size=32),
        ),
    ),
}  # fmt: skip


SERIES_A = ("single-head-unscaled", "single-head-scaled", "single-head-residual", "single-head", "multi-head-full",
            "multi-head", "two-blocks", "four-blocks", "four-blocks-rms")  # fmt: skip
"""The specimens of the first two tutorials, which are too large for a CPU as published."""
COLLAPSE_STEPS, SMALL_STEPS = 1500, 2000
"""The first three show their pathology by 1500 updates; an unscaled or lonely head learns out of it later."""


def _small(config: TrainConfig, steps: int) -> TrainConfig:
    """The same system a quarter as wide, on a vocabulary and a context that a CPU can see enough of."""
    model, width = config.model, 64
    hidden: dict[str, Any] = {k: (4 * width,) * len(getattr(model, k)) for k in ("mlp_hidden", "unembed_hidden")}
    model = replace(model, d_model=width, n_ctx=16, d_head=width if model.d_head else None, **hidden)
    return replace(
        config, steps=steps, model=model, data=replace(config.data, vocab_size=512),
        optim=replace(config.optim, batch_size=128, lr=0.1),
        record=RecordConfig(every=25, snapshot_every=100, log_every=100, val_rows=256),
    )  # fmt: skip


PRESETS |= {
    f"{name}-small": Preset(
        f"in small, for a CPU: {PRESETS[name].description}",
        _small(PRESETS[name].config, COLLAPSE_STEPS if i < 3 else SMALL_STEPS),
    )
    for i, name in enumerate(SERIES_A)
}

PRESETS |= {
    f"{name}-small": Preset(
        f"in small, for a CPU: {PRESETS[name].description.partition(': 384')[0]}",
        _with(
            PRESETS[name].config, {"d_model": 96, "n_ctx": 64, "mlp_hidden": (384,)},
            optim=replace(_CHARACTERS.optim, lr=3e-3, batch_size=32),
        ),
    )
    for name in ("many-eyes", "many-eyes-bare")
}  # fmt: skip


def preset(name: str) -> Preset:
    """The preset of that name, or an error that lists what exists."""
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]
