"""Patterns that a run kept of its own prompts: which steps and prompts there are, their sizes, windows and blocks."""

from __future__ import annotations

import numpy as np
import pytest

from dashboard.loading import recorded_prompts
from tests.dashboard.questions.conftest import Write, layer
from tracer.pictures.prompt_patterns import Pool
from tracer.store import Run

NAN = float("nan")
AXES = ("prompt", "layer", "head", "query_pos", "key_pos")
STEPS = [0, 1, 2, 3]
SIZES = [(98, 98), (97, 104)]
"""Queries and keys of the long prompt: the second layer is cross attention."""
WORDS = [[f"w{i}" for i in range(98)], ["a", "b", "c"]]
LAYERS = [layer("first", 3), layer("second (of two)", 2, causal=False, kind="cross")]


def kept() -> np.ndarray:
    """[step prompt layer head query_pos key_pos] of two prompts; the second layer has two heads, and broke at step 3.

    At step 1 nothing was kept, which its first cell says.
    """
    draw = np.random.default_rng(0)
    patterns = np.full((4, 2, 2, 3, 100, 106), NAN, np.float16)
    for at, (n_query, n_key) in enumerate(SIZES):
        shape = (4, 3 - at, n_query, n_key)
        patterns[:, 0, at, : 3 - at, :n_query, :n_key] = draw.uniform(0.01, 1, shape)
        patterns[:, 1, at, : 3 - at, :3, :3] = draw.uniform(0.01, 1, (4, 3 - at, 3, 3))
    patterns[1, :, 0, 0, 0, 0] = NAN
    patterns[3, :, 1] = NAN
    return patterns


def made(write: Write, name: str, strings: list[list[str]] | None = WORDS) -> Run:
    attrs = {} if strings is None else {"strings": strings}
    coords = {
        "prompt": (("prompt",), ["long", "short"], {}),
        "prompt_tokens": (("prompt", "query_pos"), np.zeros((2, 100), np.int64), attrs),
    }
    return write(name, STEPS, {"pattern": (AXES, kept())}, coords, layers=LAYERS)


def in_blocks(pattern: np.ndarray, size: int, pool: str) -> np.ndarray:
    """The oracle: block after block of the last two axes."""
    (n_query, n_key), of = pattern.shape[-2:], getattr(np, pool)
    step_q, step_k = (next(f for f in range(1, n + 1) if size * f >= n) for n in (n_query, n_key))
    return np.stack([
        np.stack([
            of(pattern[..., q : q + step_q, k : k + step_k].astype(float), axis=(-2, -1))
            for k in range(0, n_key, step_k)
        ], -1) for q in range(0, n_query, step_q)
    ], -2)  # fmt: skip


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (6, 4), (3, 3)])
def test_blocks_hold_their_largest_or_mean_value(pool: Pool, shape: tuple[int, ...]) -> None:
    pattern = np.random.default_rng(1).random(shape)
    found = recorded_prompts.pooled(pattern, 3, pool)
    np.testing.assert_allclose(found, in_blocks(pattern, 3, pool))


def test_what_was_kept_and_when(write: Write) -> None:
    run = made(write, "keeper")
    found = recorded_prompts.prompts(run)
    assert (found.names, found.strings, found.steps) == (["long", "short"], WORDS, [0, 2, 3])
    recorded_prompts._known(run)[2] = False  # what is known of a step is not read again
    recorded_prompts.prompts.clear()
    assert recorded_prompts.prompts(run).steps == [0, 3]


def test_a_run_that_kept_none(write: Write) -> None:
    loss = {"train_loss": ((), np.ones(1))}
    nothing = loss | {"pattern": (AXES, np.zeros((1, 0, 2, 3, 4, 4), np.float16))}
    no_rows = {"pattern": (AXES, np.zeros((0, 1, 2, 3, 4, 4), np.float16))}
    prompt = {"prompt": (("prompt",), ["long"], {})}
    for run in (write("none", [0], loss), write("no prompts", [0], nothing), write("no rows", [], no_rows, prompt)):
        assert recorded_prompts.prompts(run) == recorded_prompts.Prompts([], [], [])


def test_tokens_without_words_are_numbered(write: Write) -> None:
    numbers = [[str(i) for i in range(100)]] * 2
    assert recorded_prompts.prompts(made(write, "wordless", None)).strings == numbers
    bare = write("tokenless", STEPS, {"pattern": (AXES, kept())}, {"prompt": (("prompt",), ["long", "short"], {})})
    assert recorded_prompts.prompts(bare).strings == numbers


def test_every_head_on_a_kept_prompt(write: Write) -> None:
    run, patterns = made(write, "whole"), kept()
    shown = recorded_prompts.of_prompt(run, 2, "long")
    assert shown.key == (str(run.dir.resolve()), run.job, "long") and shown.step == 2 and shown.strings == WORDS[0]
    assert shown.causal == [True, False] and shown.sizes == SIZES
    assert shown.names == ["first", "second (of two) (cross)"]
    for at, (n_query, n_key) in enumerate(SIZES):
        own = patterns[2, 0, at, 1, :n_query, :n_key].astype(np.float32)
        np.testing.assert_array_equal(shown.window(at, 1, slice(None), slice(None)), own)
        np.testing.assert_array_equal(shown.window(at, 1, slice(90, None), slice(3, 7)), own[90:, 3:7])
        for pool in ("max", "mean"):
            np.testing.assert_allclose(shown.overview(at, 1, 50, pool), in_blocks(own, 50, pool), rtol=1e-5)
    expected = np.full((2, 3, 49, 52), NAN)
    for at, head in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)):
        whole = np.nan_to_num(patterns[2, 0, at, head, :98, :104].astype(float))
        expected[at, head] = in_blocks(whole, 96, "max")
    np.testing.assert_allclose(shown.thumbs, expected)


def test_a_layer_that_broke_counts_as_the_prompt_is_long(write: Write) -> None:
    shown = recorded_prompts.of_prompt(made(write, "broken"), 3, "short")
    assert shown.sizes == [(3, 3), (3, 3)] and shown.strings == ["a", "b", "c"]
    np.testing.assert_array_equal(np.isnan(shown.thumbs).all(axis=(2, 3)), [[False] * 3, [True] * 3])
    assert np.isnan(shown.window(1, 0, slice(None), slice(None))).all()


def test_our_own_models_are_causal(small_run: Run) -> None:
    shown = recorded_prompts.of_prompt(small_run, 10, "repeat 0")
    assert shown.causal == [True, True] and shown.sizes == [(49, 49)] * 2 and shown.names == []
