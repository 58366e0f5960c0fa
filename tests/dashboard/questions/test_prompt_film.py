"""A prompt at every snapshot: what is filmed unasked, what a film holds, and what is left."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from dashboard.loading import prompt_film
from tests.dashboard.questions.conftest import Write, drawn
from tracer.analysis.head_roles import UNSAID
from tracer.interventions.edits import recording
from tracer.pictures import payload, scrubber
from tracer.pictures.atlas import Roles
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

NAN = float("nan")
HEADS = ("step", "layer", "head")
SIZES = [(5, 5), (4, 7)]


def trace(steps: Iterable[int], **values: Any) -> xr.Dataset:
    return xr.Dataset(values, {"step": list(steps)})


@pytest.mark.parametrize(
    ("n_params", "n_tokens", "n_steps", "cheap"),
    [
        (10**6, 100, 100, True),  # 4e8 bytes of weights
        (10**6 + 1, 100, 100, False),
        (2 * 10**6, 1000, 10, True),  # 4e10 FLOPs
        (2 * 10**6 + 1, 1000, 10, False),
        (10**9, 1, 1, False),
        (10**9, 1, 0, True),
    ],
)
def test_what_costs_little_is_filmed_unasked(
    n_params: int, n_tokens: int, n_steps: int, cheap: bool, write: Write
) -> None:
    run = write("costly", n_params=n_params)
    text = drawn((str(run.dir), "job", (1, 2)), [(n_tokens, n_tokens)], 1)
    steps = list(range(n_steps))
    assert prompt_film.cheap(run, text, steps) is cheap
    assert prompt_film.cheap(run, replace(text, key=(str(run.dir), "job", "kept")), steps) is True


def kept(name: str, step: int = 0, cells: tuple[int, int] = (4, 3)) -> PromptPatterns:
    return drawn(("run", "job", name), SIZES, 3, step, cells)


def test_kept_patterns_as_a_film(write: Write) -> None:
    """Of step 11, when the run had diverged, patterns of another size were kept: it is on the timeline and not filmed.

    The rows recorded nearest to steps 0, 10 and 11 are those of 1, 9 and 9.
    """
    recorded = trace(
        [1, 9, 30], val_loss=("step", [NAN] * 3), train_loss=("step", [3.0, 2.0, 1.0]), mine=("step", [0.0] * 3),
        entropy=(HEADS, np.arange(18.0).reshape(3, 2, 3)),
    )  # fmt: skip
    see = {0: kept("film"), 10: kept("film", 10), 11: kept("film", 11, (3, 3))}
    run = write("filmed", n_params=10**9)
    found = prompt_film.film_of(run, recorded, [0, 10, 11], see[0], see.__getitem__, asked=False)
    frames = {step: scrubber.codes(see[step].thumbs) for step in (0, 10)}
    measures = {"entropy": np.arange(18.0).reshape(3, 2, 3)[[0, 1, 1]]}
    assert found.blob == scrubber.pack(
        [0, 10, 11], frames, np.array([3.0, 2.0, 2.0]), measures, n=(5, 7), factors=(2, 3), causal=[True, True],
        loss_label="training loss", roles=Roles([], np.full((3, 2, 3), UNSAID), np.zeros((3, 2, 3))),
    )  # fmt: skip
    assert (found.reels, found.left) == ([], 0)


@pytest.mark.parametrize(
    ("losses", "label", "drawn_loss"),
    [
        ({"val_loss": [5.0, NAN], "train_loss": [3.0, 2.0]}, "held-out loss", [5, NAN]),
        ({"train_loss": [3.0, 2.0]}, "training loss", [3, 2]),
        ({"train_loss": [NAN, NAN]}, "loss", [NAN, NAN]),
        ({}, "loss", [NAN, NAN]),
    ],
)
def test_the_loss_beside_it(losses: Any, label: str, drawn_loss: list[float], write: Write) -> None:
    recorded = trace([0, 1], **{name: ("step", values) for name, values in losses.items()})
    see = {step: kept(f"loss {losses}", step) for step in (0, 1)}
    found = prompt_film.film_of(write("lost"), recorded, [0, 1], see[0], see.__getitem__, asked=False)
    header, arrays = payload.unpack(found.blob)
    assert header["loss"] == label
    np.testing.assert_array_equal(arrays["loss"], drawn_loss)


@pytest.mark.parametrize("n_steps", [10, 30])
def test_frames_are_as_fine_as_all_of_them_fit(n_steps: int, write: Write) -> None:
    """6 heads of 400 tokens: 160,000 bytes a head and frame are too many for 8 MB, and 40,000 are not."""
    steps = list(range(n_steps))
    see = [drawn(("run", "job", f"fine {n_steps}"), [(400, 300), (100, 20)], 3, step, (210, 4)) for step in steps]
    found = prompt_film.film_of(write("fine"), trace([0]), steps, see[0], see.__getitem__, asked=False)
    header, arrays = payload.unpack(found.blob)
    assert header["cells"] == [2, 3, 105, 4] and header["factors"] == [4, 75] and header["n"] == [400, 300]
    pairs = see[1].thumbs.reshape(2, 3, 105, 2, 4).max(3)
    np.testing.assert_array_equal(arrays["frames"][1], scrubber.codes(pairs))


@pytest.mark.parametrize(("n_steps", "pieces"), [(16, [8, 8]), (9, [8, 1])])
def test_a_film_apart_comes_in_pieces_of_eight(n_steps: int, pieces: list[int], write: Write) -> None:
    steps = list(range(n_steps))
    see = [kept(f"apart {n_steps}", step) for step in steps]
    found = prompt_film.film_of(write("apart"), trace([0]), steps, see[0], see.__getitem__, asked=False, apart=True)
    name = hashlib.sha256(repr((*see[0].look, 7)).encode()).hexdigest()[:16]
    header, arrays = payload.unpack(found.blob)
    assert header["reel"] == name and "frames" not in arrays and found.left == 0
    expected = np.stack([scrubber.codes(one.thumbs) for one in see])
    first = 0
    for blob, n in zip(found.reels, pieces, strict=True):
        header, arrays = payload.unpack(blob)
        assert (header["reel"], header["first"]) == (name, first)
        np.testing.assert_array_equal(arrays["frames"], expected[first : first + n])
        first += n


def test_what_the_model_reads_is_filmed_when_asked(small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cheap here; the second time only what is new is filmed."""
    monkeypatch.setattr(prompt_film, "CHEAP_FLOPS", 0)
    tokens = (0, 5, 6, 5)
    key = (str(small_run.dir.resolve()), small_run.job, tokens)
    shown = drawn(key, [(4, 4), (4, 4)], 4)

    def film(steps: list[int], asked: bool) -> prompt_film.Film:
        def see(step: int) -> PromptPatterns:
            raise AssertionError(f"step {step} was read one by one")

        return prompt_film.film_of(small_run, small_run.trace, steps, shown, see, asked)

    unasked = film([0, 10], False)
    header, arrays = payload.unpack(unasked.blob)
    assert unasked.left == 2 and header["factors"] == [4, 4] and set(arrays["film"]) == {scrubber.NONE}
    torch.set_num_threads(2)
    asked = film([0, 10], True)
    assert torch.get_num_threads() == 1
    for step, frame in zip((0, 10), payload.unpack(asked.blob)[1]["frames"], strict=True):
        with torch.no_grad(), recording("hook_pattern") as seen:
            small_run.model(step)(torch.tensor([tokens]))
        expected = np.stack([pattern[0].numpy() for _, pattern in sorted(seen.items())])
        np.testing.assert_allclose(frame, 255 * np.sqrt(expected), atol=1)
    assert asked.left == 0 and payload.header(asked.blob)["factors"] == [1, 1]
    more = film([0, 10, 20], False)
    assert more.left == 1 and payload.unpack(more.blob)[1]["film"].tolist() == [0, 1, scrubber.NONE]
    monkeypatch.undo()
    assert film([0, 10, 20], False).left == 0
