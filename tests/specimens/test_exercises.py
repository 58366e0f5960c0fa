"""The exercises of the tutorials hold here; their pictures are attention; a check that should fail does."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tracer.presets import PRESETS
from tracer.specimens.tutorials import SPECIMENS

EXERCISES = {name: one.exercise for name, one in SPECIMENS.items() if one.exercise}

EXPECTED = {
    "many-eyes": [
        ("(B, T, C) in and out with 4 heads", "(2, 256, 384) in, (2, 256, 384) out"),
        ("(B, T, C) in and out with 8 heads", "(2, 256, 384) in, (2, 256, 384) out"),
        ("as many parameters as one head of full width: 4 C² + C at C = 384", "6 heads 590,208, one head 590,208"),
        (
            "256 wide with 3 heads is refused, and the nearest that divide are named",
            "“d_model=256 is not divisible by n_heads=3; nearest that divide: 2, 4 (or set d_head yourself)”",
        ),
    ],
    "one-matmul": [
        ("one head is the single-head module to the bit, given its weights", "largest difference 0; "),
        ("4 C² = 2,359,296 parameters whatever the heads", "2,359,296 with 1, 2, 4, 8, 12 heads"),
        (
            "768 wide with 7 heads is an error that names both",
            "“d_model=768 is not divisible by n_heads=7; nearest that divide: 6, 8 (or set d_head yourself)”",
        ),
        (
            "an input longer than the context is an error that names both lengths",
            "“the input has 129 tokens, the context holds n_ctx=128”",
        ),
        ("C = 768 with 12 heads: heads of 64, 2,359,296 parameters a layer", "heads of 64, 2,359,296 parameters"),
    ],
    "post-norm": [
        ("four heads of 2 side by side, then projected: (5, 8) both times", "(5, 8), (5, 8); "),
        ("mean row entropy per head, beside log(5) = 1.61", "; causal rows allow 0.96 at most"),
        (
            "after each sum every row has mean 0 and standard deviation 1, up to eps; nothing is learned",
            "|mean| at most",
        ),
    ],
}


def test_every_exercise_that_is_asked_can_be_run() -> None:
    assert list(EXERCISES) == list(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_asked_holds_by_these_numbers(name: str) -> None:
    done = EXERCISES[name]()
    assert [check.asks for check in done.checks] == [asks for asks, _ in EXPECTED[name]]
    assert [check.holds for check in done.checks] == [True] * len(done.checks)
    assert all(answer in check.answer for check, (_, answer) in zip(done.checks, EXPECTED[name], strict=True))
    n = len(done.strings)
    assert done.pattern.shape == (PRESETS[name].config.model.n_heads, n, n)
    np.testing.assert_allclose(done.pattern.sum(-1), 1, atol=1e-6)
    assert not np.triu(done.pattern, 1).any()


def test_the_entropies_of_five_words_are_those_of_its_pattern() -> None:
    done = EXERCISES["post-norm"]()
    rows = [[sum(-p * math.log(p) for p in row if p) for row in head] for head in done.pattern.tolist()]
    assert done.strings == ("the", "cat", "sat", "on", "mat")
    assert done.checks[1].answer.startswith(", ".join(f"{sum(head) / 5:.2f}" for head in rows))


@pytest.mark.parametrize(
    ("name", "changed", "fails"),
    [
        ("many-eyes", {"attn_out_bias": False}, [2]),  # C parameters less
        ("one-matmul", {"d_head": 32}, [1, 2, 4]),  # half the width, so that any number of heads goes
        ("post-norm", {"norm_gain": True}, [2]),
        ("post-norm", {"norm": "rms"}, [2]),  # the mean stays
    ],
)
def test_a_check_can_fail(name: str, changed: dict, fails: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PRESETS[name]
    other = replace(whole.config, model=replace(whole.config.model, **changed))
    monkeypatch.setitem(PRESETS, name, replace(whole, config=other))
    assert [i for i, check in enumerate(EXERCISES[name]().checks) if not check.holds] == fails


def test_the_single_head_is_another_way_to_the_same_sum() -> None:
    from one_matmul.exercise import single_head  # pyrefly: ignore[missing-import]

    from tracer.config import ModelConfig
    from tracer.model import Transformer

    model = Transformer(ModelConfig(n_layers=1, n_heads=1, d_model=4, n_ctx=2, d_vocab=3)).double()
    attention = model.blocks[0].attn
    with torch.no_grad():
        for weight in attention.parameters():
            weight.copy_(torch.eye(4)[None])
        x = torch.tensor([[[1.0, 0, 0, 0], [0, 2.0, 0, 0]]], dtype=torch.float64)
        weights = [getattr(attention, name)[0] for name in ("W_Q", "W_K", "W_V", "W_O")]
        # row 1 scores its keys 0 and 2 * 2 / sqrt(4) = 2
        far, near = 1 / (1 + math.exp(2)), 1 / (1 + math.exp(-2))
        expected = torch.tensor([[[1, 0, 0, 0], [far, 2 * near, 0, 0]]], dtype=torch.float64)
        assert torch.allclose(single_head(x, *weights), expected, atol=1e-12)
