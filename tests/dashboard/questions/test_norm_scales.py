"""What norms divide by on average, of our models and of others', from the stream that enters them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dashboard.loading import ablation, norm_scales
from tests.dashboard.conftest import gpt
from tests.dashboard.questions.conftest import Write, rebuildable
from tracer.interventions.edits import recording
from tracer.store import Run

PATHS = ("transformer.h.0.attn", "transformer.h.1.attn")
TEXT = [[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3], [2, 3, 8, 4, 6, -1, -1, -1]]
LOSS = {"val_loss": ((), np.ones(1))}


def kept(*names: str) -> dict[str, Any]:
    tokens = np.array(TEXT[: len(names)], np.int64)
    return {"prompt": (("prompt",), list(names), {}), "prompt_tokens": (("prompt", "query_pos"), tokens, {})}


def test_it_is_read_on_held_out_text(small_run: Run, write: Write) -> None:
    text = ablation.batches(small_run).text
    assert text is not None and text.shape == (4, 65)
    torch.testing.assert_close(norm_scales.reading(small_run, 20), text[:, :64])
    watched = rebuildable(write, "texts", gpt(), PATHS, [0], LOSS, kept("text 0", "repeat 0", "text 1"), n_ctx=48)
    assert norm_scales.reading(watched, 0).tolist() == [TEXT[0][:5], TEXT[2][:5]], "as long as the shortest is"
    none = rebuildable(write, "no text", gpt(), PATHS, [0], LOSS, kept("repeat 0"), n_ctx=48)
    torch.testing.assert_close(norm_scales.reading(none, 0), ablation.batches(none).repeat.tokens)


def test_norms_of_ours_divide_by_the_root_mean_square(small_run: Run) -> None:
    with torch.no_grad(), recording("hook_resid_pre", "blocks.1.hook_resid_post") as seen:
        small_run.model(20)(norm_scales.reading(small_run, 20))
    entered = {"blocks.0.ln1": "blocks.0.hook_resid_pre", "blocks.1.ln1": "blocks.1.hook_resid_pre",
               "ln_final": "blocks.1.hook_resid_post"}  # fmt: skip
    found = norm_scales.norms(small_run, 20)
    assert set(found) == set(entered)
    vectors = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    for name, hook in entered.items():
        norm, scale = found[name]
        roots = np.sqrt((seen[hook].double().numpy() ** 2).mean(-1) + 1e-6)
        np.testing.assert_allclose(scale, roots.mean(), rtol=1e-6)
        assert norm.gain is not None
        through = norm_scales.through(small_run, 20, name, vectors)
        np.testing.assert_allclose(through, vectors.numpy() / roots.mean() * norm.gain.numpy(), rtol=1e-5)
    assert norm_scales.through(small_run, 20, "blocks.1.ln2", vectors) is vectors


def test_norms_of_others_divide_by_the_standard_deviation(write: Write) -> None:
    run = rebuildable(write, "gpt", gpt(), PATHS, [0], LOSS, kept("text 0", "text 1"), n_ctx=48)
    model: Any = run.model(2)
    blocks, entered = model.model.transformer, []
    for norm in (blocks.h[0].ln_1, blocks.h[1].ln_1, blocks.ln_f):
        norm.register_forward_pre_hook(lambda _, given: entered.append(given[0].detach().double().numpy()))
    with torch.no_grad():
        model.model(torch.tensor(TEXT[:2]))
    found = norm_scales.norms(run, 2)
    assert list(found) == ["blocks.0.ln1", "blocks.1.ln1", "ln_final"]
    for (norm, scale), x in zip(found.values(), entered, strict=True):
        assert norm.centre
        np.testing.assert_allclose(scale, np.sqrt(x.var(-1) + 1e-5).mean(), rtol=1e-5)


def test_a_model_without_norms_in_front_has_the_last_alone(write: Write) -> None:
    from transformers import Olmo2Config, Olmo2ForCausalLM

    torch.manual_seed(0)
    config = Olmo2Config(
        vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=48, pad_token_id=1,
    )  # fmt: skip
    run = rebuildable(
        write, "olmo", Olmo2ForCausalLM(config), ["model.layers.0.self_attn"], [0], LOSS, kept("text 0", "text 1"),
        n_ctx=48,
    )  # fmt: skip
    assert list(norm_scales.norms(run, 0)) == ["ln_final"]
