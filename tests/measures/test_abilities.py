"""What can be had of a model, as a table: each reason stands where its cause is, and nowhere else."""

from typing import Any

import pytest

from tracer.config import ModelConfig
from tracer.measures.abilities import ALONE, OF_HEADS, OPENED, of_others, of_ours

PLAIN: dict[str, Any] = {"n_layers": 2, "n_heads": 2, "d_model": 8, "n_ctx": 16}
ALL = ["composition", "composition_curve", "vocabulary", "trigrams", "positions"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"positions": "learned"}, {}),
        ({"positions": "shortformer"}, {}),
        ({"n_layers": 1, "positions": "learned"}, {"composition": ALONE, "composition_curve": ALONE}),
        ({"attn_out": False, "positions": "learned"}, dict.fromkeys(ALL[:4], "attn_out=False")),
        ({"positions": "rotary"}, {"positions": "positions=rotary"}),
        ({"positions": "none"}, {"positions": "positions=none"}),
        ({"unembed_hidden": (4,), "positions": "learned"}, dict.fromkeys(ALL[2:4], "unembed_hidden=(4,)")),
        ({"residual": False, "positions": "learned"}, dict.fromkeys(ALL, "residual=False")),
        ({"sink": "zero", "positions": "learned"}, {"entropy_bound": "sink=zero"}),
        ({"attn_softcap": 30, "positions": "learned"}, {"entropy_bound": "attn_softcap=30"}),
        ({"attention": "sigmoid", "positions": "learned"}, {"entropy_bound": "attention=sigmoid"}),
        ({"attn_gate": True, "positions": "learned"}, {"value_norms": "attn_gate=True"}),
        ({"qk_norm": True, "positions": "learned"}, {"entropy_bound": "qk_norm=True"}),
        ({"smear": "keys", "positions": "learned"}, dict.fromkeys([*ALL[3:], "entropy_bound"], "smear=keys")),
        ({"residual": False, "positions": "shortformer"}, dict.fromkeys(ALL[:4], "residual=False")),
        ({"residual": False, "n_layers": 1, "positions": "learned"}, {
            "composition": ALONE, "composition_curve": ALONE,
        }),
        ({"residual": False, "n_layers": 1, "mlp_hidden": (4,), "positions": "learned"}, {
            "composition": ALONE, "composition_curve": ALONE, "trigrams": "residual=False: the MLP",
        }),
        ({"mlp_hidden": (4,), "positions": "learned"}, {}),
    ],
)  # fmt: skip
def test_what_a_model_of_ours_does_not_allow(change: dict[str, Any], expected: dict[str, str]) -> None:
    found: dict[Any, str] = {**of_ours(ModelConfig(**{**PLAIN, **change}))}
    assert list(found) == [*ALL, *(name for name in expected if name not in ALL)]
    assert {name for name, reason in found.items() if reason} == set(expected)
    assert all(found[name].startswith(start) for name, start in expected.items())


OTHERS: dict[str, Any] = {"n_layers": 2, "no_code": "", "no_stream": "", "no_positions": "", "opened": False}
ALWAYS = {"recipe", "resume", "held_out", "tokenizer", "value_norms", "entropy_bound", "states"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({"no_code": "code"}, {"prompts": "code"}),
        ({"no_stream": "stream"}, {
            "composition_curve": "stream", "positions": "stream", "norm_scales": "norms are left out",
            "attribution": "stream",
        }),
        ({"no_positions": "turned"}, {"positions": "turned"}),
        ({"no_positions": "turned", "no_stream": "stream"}, {
            "composition_curve": "stream", "positions": "stream", "norm_scales": "norms are left out",
            "attribution": "stream",
        }),
        ({"n_layers": 1}, {"composition": ALONE, "composition_curve": ALONE}),
        ({"n_layers": 1, "no_stream": "stream"}, {
            "composition": ALONE, "composition_curve": "stream", "positions": "stream",
            "norm_scales": "norms are left out", "attribution": "stream",
        }),
        ({"opened": True}, {"training": OPENED}),
        ({"no_heads": "none", "no_code": "code", "no_stream": "stream", "n_layers": 0}, {
            name: "none" for name in OF_HEADS if name not in ALWAYS
        }),
    ],
)  # fmt: skip
def test_what_the_model_of_others_does_not_allow(change: dict[str, Any], expected: dict[str, str]) -> None:
    found: dict[Any, str] = {**of_others(**{**OTHERS, **change})}
    assert {name: reason for name, reason in found.items() if reason and name not in ALWAYS} == expected
    assert all(found[name] for name in ALWAYS)
