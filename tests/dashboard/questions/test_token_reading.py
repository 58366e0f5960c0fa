"""Readings of a prompt: which heads there are, the norms of what they read, and the row of one token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dashboard.loading import prompt_attention, token_reading
from tests.dashboard.questions.conftest import Write, drawn
from tracer.interventions.edits import recording
from tracer.pictures import payload, token_view
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

TOKENS = (0, 5, 6, 5, 9)


def read_now(run: Run) -> PromptPatterns:
    return prompt_attention.of_text(run, 20, list(TOKENS), list(map(str, TOKENS)))


def weighted(run: Run) -> np.ndarray:
    """|v W_O| of every head and key, from the explicit values."""
    model: Any = run.model(20)
    with torch.no_grad(), recording("hook_v") as seen:
        model(torch.tensor([TOKENS]))
    parts = []
    for i, block in enumerate(model.blocks):
        v = seen[f"blocks.{i}.attn.hook_v"][0].double().numpy()
        written = np.einsum("khd,hdm->hkm", v, block.attn.W_O.detach().double().numpy())
        parts.append(np.linalg.norm(written, axis=-1))
    return np.stack(parts)


def test_heads_whose_queries_and_keys_are_the_prompt() -> None:
    """The third layer reads other keys, the fourth has other queries; in all but the first the last head is absent."""
    shown = drawn(("there",), [(5, 5), (5, 5), (5, 7), (6, 5)], 3)
    some = shown.thumbs.copy()
    some[0, 0, 1:] = np.nan  # a row is left, and so it exists
    some[0, 1, :, 1:] = np.nan
    found = token_reading.head_exists(drawn(("there",), shown.sizes, 3, thumbs=some))
    assert found.tolist() == [[True] * 3, [True, True, False], [False] * 3, [False] * 3]


def test_how_much_fits_depends_on_what_is_masked() -> None:
    many = [(150, 150)] * 4
    for causal in ([True] * 4, [True, True, False, True]):
        plan = token_reading.plan(drawn(("plan",), many, 12, causal=causal))
        assert plan == token_view.plan(150, 4, 12, causal=all(causal))
    assert token_view.plan(150, 4, 12, causal=True) != token_view.plan(150, 4, 12, causal=False)


def test_norms_are_known_of_a_text_that_our_model_reads(small_run: Run, write: Write) -> None:
    shown = read_now(small_run)
    found = token_reading.norms(small_run, shown)
    assert found is not None
    np.testing.assert_allclose(found, weighted(small_run), rtol=1e-5)
    kept = drawn((str(small_run.dir.resolve()), small_run.job, "text 0"), [(5, 5)] * 2, 4, 20)
    assert token_reading.norms(small_run, kept) is None
    assert token_reading.norms(write("others"), shown) is None


def test_the_row_of_a_token_as_computed(small_run: Run) -> None:
    shown, norms = read_now(small_run), weighted(small_run)
    row = shown.window(1, 2, slice(3, 4), slice(None))[0].astype(float)
    share, read = token_reading.exact(small_run, shown, (1, 2), 3)
    assert read is not None and row[4] == 0
    np.testing.assert_allclose(share, row / row.sum(), atol=1e-12)
    np.testing.assert_allclose(read, row * norms[1, 2] / (row * norms[1, 2]).sum(), rtol=1e-5)
    kept = drawn(("exact", "job", "text 0"), [(5, 5)] * 2, 4)
    share, read = token_reading.exact(small_run, kept, (1, 2), 3)
    assert read is None
    own = kept.window(1, 2, slice(3, 4), slice(None))[0].astype(float)
    np.testing.assert_allclose(share, own / own.sum(), atol=1e-12)


def test_a_message_is_packed_of_its_part_of_the_prompt(small_run: Run) -> None:
    shown, norms = read_now(small_run), weighted(small_run)
    packed = token_reading.token_view(small_run, shown, 0, (1, 2))
    whole = lambda layer, head: shown.window(layer, head, slice(None), slice(None))  # noqa: E731
    expected = token_view.pack(
        whole, shown.strings, there=np.ones((2, 4)), causal=[True, True], norms=norms.astype(np.float32), step=20
    )
    (header, arrays), (known, of_known) = payload.unpack(packed), payload.unpack(expected)
    assert {**header, "version": ""} == {**known, "version": ""}
    for name, values in of_known.items():
        np.testing.assert_allclose(arrays[name], values, rtol=1e-5, err_msg=name)


def test_one_layer_of_a_long_prompt_at_a_time(write: Write) -> None:
    """300 tokens of 2 layers of 20 heads: a message holds 256 of them, of one layer, from where it starts."""
    shown = drawn(("long", "job", "text 0"), [(300, 300)] * 2, 20, 7, causal=[True, False])
    made = token_view.plan(300, 2, 20, causal=False)
    assert not made.whole and made.n < 256 + 1
    page = slice(300 - made.n, 300)
    packed = token_reading.token_view(write("read"), shown, page.start, (1, 0))
    assert packed == token_view.pack(
        lambda layer, head: shown.window(layer, head, page, slice(None)), shown.strings[page],
        there=[[True] * 20, [True] * 19 + [False]], causal=[True, False], start=page.start, layer=1, step=7,
    )  # fmt: skip


@pytest.mark.parametrize("head", [(0, 1), (1, 0)])
def test_a_layer_that_is_asked_for_is_held(head: tuple[int, int], write: Write) -> None:
    shown = drawn(("held", "job", "text 0"), [(300, 300)] * 2, 20, 7, causal=[True, False])
    packed = token_reading.token_view(write("asked"), shown, 0, head)
    assert payload.header(packed)["layers"] == [head[0], head[0] + 1]
