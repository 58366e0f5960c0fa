"""A config is checked once, says what is wrong with which numbers, and survives JSON."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from tracer.config import DataConfig, InitConfig, ModelConfig, OptimConfig, RecordConfig, TrainConfig
from tracer.config.fields import from_dict, to_dict

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ModelConfig(d_model=256, n_heads=3), ["d_model=256", "n_heads=3", "nearest that divide: 2, 4 "]),
        (lambda: ModelConfig(d_model=4, n_heads=8), ["d_model=4", "n_heads=8", "nearest that divide: 4 "]),
        (lambda: ModelConfig(d_model=7, n_heads=2), ["d_model=7", "n_heads=2", "nearest that divide: 1, 7 "]),
        (lambda: ModelConfig(n_heads=0), ["n_heads=0", "at least 1"]),
        (lambda: ModelConfig(n_layers=0), ["n_layers=0", "at least 1"]),
        (lambda: ModelConfig(d_head=0), ["d_head=0", "at least 1"]),
        (lambda: ModelConfig(d_vocab=0), ["d_vocab=0", "at least 1"]),
        (lambda: ModelConfig(mlp_hidden=(8, 0)), ["mlp_hidden=(8, 0)", "at least 1"]),
        (
            lambda: ModelConfig(d_model=16, n_heads=4, d_head=16, attn_out=False),
            ["without W_O", "4 * 16 = 64", "d_model=16"],
        ),
        (lambda: ModelConfig(attn_out=False, attn_out_bias=True), ["attn_out_bias=True", "attn_out=True"]),
        (
            lambda: ModelConfig(tie_embeddings=True, unembed_hidden=(9,)),
            ["tie_embeddings=True", "unembed_hidden=(9,)"],
        ),
        (lambda: ModelConfig(d_model=12, n_heads=4, positions="rotary"), ["rotary", "d_head=3", "even"]),
        (lambda: ModelConfig(attention="sigmoid", sink="zero"), ["attention=sigmoid", "sink=zero"]),
        (
            lambda: TrainConfig(model=ModelConfig(attention="sigmoid"), clamp=("L0H1 previous",)),
            ["clamp 'L0H1 previous'", "attention=sigmoid"],
        ),
        (lambda: ModelConfig(attn_softcap=0), ["attn_softcap=0", "None leaves scores alone"]),
        (lambda: ModelConfig(dropout=1.0), ["dropout=1.0", "below 1"]),
        (lambda: OptimConfig(batch_size=10, accumulate=4), ["batch_size=10", "accumulate=4"]),
        (lambda: OptimConfig(accumulate=0), ["accumulate=0", "at least 1"]),
        (lambda: OptimConfig(lr=0.0), ["lr=0.0", "positive"]),
        (lambda: DataConfig(mix="markov"), ["mix='markov'", "mix_share=0.0", "both or neither"]),
        (lambda: DataConfig(mix="markov", mix_share=1.5), ["mix_share=1.5", "between 0 and 1"]),
        (lambda: DataConfig(val_share=1.0), ["val_share=1.0"]),
        (lambda: DataConfig(period_min=9, period_max=8), ["period_min=9", "period_max=8"]),
        (lambda: RecordConfig(snapshot_every=0), ["record.snapshot_every=0"]),
        (lambda: TrainConfig(steps=0), ["steps=0"]),
        (lambda: TrainConfig(seed=-1), ["seed=-1"]),
        (lambda: from_dict(ModelConfig, {"n_head": 4}), ["ModelConfig has no field n_head", "n_heads", "d_model"]),
        (
            lambda: from_dict(TrainConfig, {"model": {"heads": 1, "a": 2}}),
            ["ModelConfig has no field a, heads", "n_heads"],
        ),
        (lambda: OptimConfig(lr=float("nan")), ["lr=nan", "positive and finite"]),
        (lambda: OptimConfig(clip=-1.0), ["clip=-1.0", "positive"]),
        (lambda: OptimConfig(warmup=-5), ["warmup=-5", "not be negative"]),
        (lambda: DataConfig(max_mb=0.0), ["max_mb=0.0", "positive"]),
        (lambda: DataConfig(max_mb=float("inf")), ["max_mb=inf", "positive and finite"]),
        (lambda: RecordConfig(snapshot_mb=float("inf")), ["record.snapshot_mb=inf", "not be negative or infinite"]),
        (lambda: OptimConfig(beta2=float("inf")), ["beta2=inf", "not be negative or infinite"]),
        (lambda: InitConfig(attn=-1), ["init.attn=-1", "not be negative or infinite"]),
        (lambda: InitConfig(embed=float("nan")), ["init.embed=nan", "not be negative or infinite"]),
        (lambda: ModelConfig(norm_eps=float("nan")), ["norm_eps=nan", "not be negative or infinite"]),
        (lambda: RecordConfig(pattern_ctx=0), ["record.pattern_ctx=0", "at least 1"]),
        (lambda: RecordConfig(text_prompts=-1), ["record.text_prompts=-1", "not be negative"]),
        (lambda: TrainConfig(seed=2**32), ["seed=4294967296", "below 2**32"]),
        (lambda: from_dict(TrainConfig, {"model": {"d_model": 10}}), ["d_model=10", "n_heads=4", "2, 5"]),
    ],
)
def test_an_error_names_the_numbers(make: Callable[[], Any], says: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        make()
    for part in says:
        assert part in str(error.value)


def test_an_unknown_word_lists_the_known_ones() -> None:
    wrong = {
        'ModelConfig(norm="batch")': "norm='batch' is not one of none, rms, layer",
        'ModelConfig(norm_position="mid")': "norm_position='mid' is not one of pre, post",
        'DataConfig(), ModelConfig(norm="RMS")': "norm='RMS' is not one of none, rms, layer",
        'ModelConfig(activation="tanh")': "activation='tanh' is not one of relu, gelu",
        'ModelConfig(attn_scale="")': "attn_scale='' is not one of d_head, d_model, none",
        'InitConfig(mlp="xavier")': "mlp='xavier' is not one of fan_in, linear",
        'OptimConfig(name="lion")': "name='lion' is not one of sgd, adamw, muon",
        'OptimConfig(precision="fp16")': "precision='fp16' is not one of auto, no, bf16",
        'TrainConfig(device="tpu")': "device='tpu' is not one of auto, cpu, cuda",
        'from_dict(TrainConfig, {"model": {"init": {"pos": "big"}}})': "pos='big' is not one of fan_in, linear",
    }
    # in a process of its own: here the tests' run-time type checks would speak first
    code = "import sys\nfrom tracer.config import *\nfrom tracer.config.fields import *\nfor text in sys.argv[1:]:\n"
    code += "    try: eval(text)\n    except ValueError as error: print(error)\n"
    done = subprocess.run([sys.executable, "-c", code, *wrong], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == list(wrong.values())


@pytest.mark.parametrize(
    ("fields", "width", "scale"),
    [
        ({"d_model": 768, "n_heads": 12}, 64, 1 / 8),
        ({"d_model": 256, "n_heads": 4, "d_head": 256}, 256, 1 / 16),
        ({"d_model": 256, "n_heads": 4, "attn_scale": "d_model"}, 64, 1 / 16),
        ({"d_model": 256, "n_heads": 4, "attn_scale": "none"}, 64, 1.0),
    ],
)
def test_head_width_and_scale(fields: dict[str, Any], width: int, scale: float) -> None:
    config = ModelConfig(**fields)
    assert (config.head_width, config.scale) == (width, scale)


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        TrainConfig(
            run="a/b",
            seed=7,
            model=ModelConfig(
                mlp_hidden=(8, 9), unembed_hidden=(3,), d_head=5, init=InitConfig(pos=0.2, attn="linear")
            ),
            data=DataConfig(corpus="markov", mix="repeated-random", mix_share=0.25),
            optim=OptimConfig(name="muon", adam_lr=2e-3, clip=None),
            record=RecordConfig(every=3),
        ),
    ],
)
def test_json_round_trip(config: TrainConfig) -> None:
    back = from_dict(TrainConfig, json.loads(json.dumps(to_dict(config))))
    assert back == config
    assert isinstance(back.model.mlp_hidden, tuple)
    assert hash(back) == hash(config)


def test_a_missing_field_takes_its_default() -> None:
    assert from_dict(TrainConfig, {"model": {"n_layers": 3}}) == TrainConfig(model=ModelConfig(n_layers=3))


def test_a_config_cannot_change() -> None:
    with pytest.raises(FrozenInstanceError):
        TrainConfig().steps = 3  # pyrefly: ignore[read-only]
