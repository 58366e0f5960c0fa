"""Every head on a text that the model reads now, and what is packed of it for the pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dashboard.loading import prompt_attention
from tests.dashboard.questions.conftest import drawn
from tracer.interventions.edits import recording
from tracer.pictures import payload
from tracer.store import Run


@pytest.mark.parametrize(("n", "cache"), [(256, "_look"), (257, "_long_look")])
def test_a_text_is_read_once(long_toy: Any, n: int, cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the long ones, which take much memory, few are kept."""
    run, tokens = Run(long_toy), [(7 * i) % 60 for i in range(n)]
    read: list[int] = []
    compute: Callable[..., Any] = prompt_attention._compute
    monkeypatch.setattr(prompt_attention, "_compute", lambda *asked: read.append(1) or compute(*asked))
    shown = prompt_attention.of_text(run, 2, tokens, list(map(str, tokens)))
    found, _ = getattr(prompt_attention, cache)(run, 2, tuple(tokens), ())
    assert read == [1] and np.isnan(found.logits).all(), "logits are not kept"
    with torch.no_grad(), recording("blocks.1.attn.hook_pattern") as seen:
        run.model(2)(torch.tensor([tokens]))
    expected = seen["blocks.1.attn.hook_pattern"][0, 2].numpy()
    np.testing.assert_allclose(shown.window(1, 2, slice(None), slice(None)), expected, atol=1e-6)
    assert shown.key == (str(run.dir.resolve()), run.job, tuple(tokens)) and shown.step == 2
    assert shown.strings == list(map(str, tokens)) and shown.names == [] and shown.sizes == [(n, n)] * 2


def test_the_atlas_has_the_largest_size_and_all_measures() -> None:
    shown = drawn(("atlas",), [(9, 9), (12, 7), (3, 16)], 2, causal=[True, False, True], names=["a", "b b", "c"])
    measures = {"entropy": np.arange(6.0).reshape(3, 2)}
    header, arrays = payload.unpack(prompt_attention.atlas(shown, "one", measures))
    assert (header["factors"], header["causal"]) == ([3, 4], [True, False, True])
    assert header["layers"] == ["a", "b·b", "c"] and header["measures"] == ["entropy"]
    np.testing.assert_array_equal(arrays["values"][0], measures["entropy"])
    assert arrays["there"].tolist() == [[1, 1], [1, 0], [1, 0]]
    again = payload.header(prompt_attention.atlas(shown, "two", {}))
    assert again["measures"] == [], "other measures have another stamp"
    nameless = drawn(("nameless",), [(4, 4), (4, 4)], 2)
    assert payload.header(prompt_attention.atlas(nameless, "", {}))["layers"] == []


def test_the_overview_has_at_most_512_blocks_a_side() -> None:
    shown = drawn(("overview",), [(4, 4), (1030, 514)], 3, causal=[True, False])
    header, arrays = payload.unpack(prompt_attention.overview(shown, (1, 0), "mean", "L1H0"))
    assert (header["sizes"], header["factors"]) == ([1030, 514], [3, 2])
    assert (header["label"], header["causal"], header["pool"]) == ("L1H0", False, "mean")
    whole = shown.window(1, 0, slice(None), slice(None)).astype(float)
    expected = [[whole[i : i + 3, j : j + 2].mean() for j in range(0, 514, 2)] for i in range(0, 1030, 3)]
    np.testing.assert_allclose((arrays["blocks"] / 255) ** 2 * header["top"], expected, atol=0.005)
    small = payload.header(prompt_attention.overview(shown, (0, 1), "max", "L0H1"))
    assert (small["sizes"], small["factors"], small["causal"]) == ([4, 4], [1, 1], True)
