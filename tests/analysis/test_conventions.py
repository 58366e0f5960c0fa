"""Four ways to count induction, against transformer-lens itself and on a head whose answers are known."""

from typing import Literal

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from transformer_lens.head_detector import detect_head

from tracer.analysis.conventions import CONVENTIONS, conventions_of, induction_conventions
from tracer.config import ModelConfig
from tracer.interventions.edits import recording
from tracer.model import Transformer

L, ROWS = 6, 3
WORDS = ["<bos>", *"abcdefghijklmnop"]


def repeated() -> Tensor:
    rng = np.random.default_rng(0)
    block = torch.from_numpy(np.stack([rng.choice(np.arange(1, 17), L, replace=False) for _ in range(ROWS)]))
    return torch.cat([torch.zeros(ROWS, 1, dtype=torch.long), block, block], 1)


def build() -> Transformer:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=2 * L + 2, d_vocab=17))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "W_Q" in name or "W_K" in name:
                weight.mul_(8)  # far from even
    model.tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<bos>"))
    model.tokenizer.pre_tokenizer = Whitespace()
    return model.eval()


@pytest.mark.parametrize("measure", ["mul", "abs"])
def test_they_are_what_transformer_lens_says(measure: Literal["mul", "abs"]) -> None:
    model, tokens = build(), repeated()
    texts = [" ".join(WORDS[i] for i in row[1:]) for row in tokens.tolist()]
    assert torch.equal(torch.cat([model.to_tokens(text) for text in texts]), tokens)
    each = [detect_head(model, text, "induction_head", error_measure=measure) for text in texts]
    theirs = torch.stack(each).mean(0)
    ours = induction_conventions(model, tokens)[f"detect_head_{measure}"].values
    np.testing.assert_allclose(ours, theirs, atol=6e-4)  # "abs" is rounded to three digits there
    assert np.ptp(ours) > 0.02


def test_ours_and_arena_are_sums_by_hand() -> None:
    model, tokens = build(), repeated()
    with torch.no_grad(), recording("hook_pattern") as seen:
        model(tokens)
    found = induction_conventions(model, tokens)
    for layer in range(2):
        pattern = seen[f"blocks.{layer}.attn.hook_pattern"].double()
        for head in range(4):
            second = [pattern[i, head, q, q - L + 1].item() for i in range(ROWS) for q in range(L + 1, 2 * L + 1)]
            whole = [pattern[i, head, q, q - L + 1].item() for i in range(ROWS) for q in range(L - 1, 2 * L + 1)]
            assert found["ours"].values[layer, head] == pytest.approx(np.mean(second), abs=1e-6)
            assert found["arena_diagonal"].values[layer, head] == pytest.approx(np.mean(whole), abs=1e-6)
    assert found["ours"].attrs["source"] == CONVENTIONS["ours"].source


def test_the_best_head_there_is() -> None:
    """All weight on the token after the earlier copy; on the start token where there is none."""
    tokens, n = repeated(), 2 * L + 1
    pattern = torch.zeros(ROWS, 1, n, n, dtype=torch.float64)
    pattern[:, :, : L + 1, 0] = 1
    for q in range(L + 1, n):
        pattern[:, :, q, q - L + 1] = 1
    found = {name: scores.unique().item() for name, scores in conventions_of(pattern, tokens).items()}
    assert found == pytest.approx({
        "ours": 1, "detect_head_mul": L / n, "detect_head_abs": L / n, "arena_diagonal": (L + 1) / (L + 2),
    })  # fmt: skip
    pattern[:, :, L - 1] = torch.eye(n, dtype=torch.float64)[L - 1]  # that row rests on itself instead
    assert conventions_of(pattern, tokens)["arena_diagonal"].unique().item() == pytest.approx(L / (L + 2))


@pytest.mark.parametrize("tokens", [torch.arange(13)[None], torch.zeros(1, 12, dtype=torch.long), torch.zeros(1, 3)])
def test_rows_that_do_not_repeat_are_refused(tokens: Tensor) -> None:
    with pytest.raises(ValueError, match="twice: ARENA's diagonal"):
        induction_conventions(build(), tokens.long())
