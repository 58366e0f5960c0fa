"""The film of a prompt as bytes: what fits, what is missing, and that it comes back."""

from __future__ import annotations

import numpy as np
import pytest

from tracer.pictures import atlas, guesses, payload, scrubber
from tracer.pictures.guesses import Guesses

NAN = float("nan")


@pytest.mark.parametrize(
    ("n", "heads", "frames", "expected"),
    [
        (64, 16, 100, 64),  # 6.6 MB
        (64, 144, 20, 32),  # 11.8 MB whole
        (64, 144, 100, 22),
        (512, 144, 20, 52),
        (1, 1, 1, 1),
        (10, 10**9, 1, 1),
    ],
)
def test_resolution(n: int, heads: int, frames: int, expected: int) -> None:
    size = scrubber.resolution(n, heads, frames)
    assert size == expected and (size == 1 or heads * frames * size**2 <= scrubber.BUDGET)


def a_frame(level: float) -> np.ndarray:
    return scrubber.codes(np.full((1, 2, 2, 2), level))


def test_a_film_comes_back() -> None:
    frames = {0: a_frame(0.0), 20: a_frame(0.25)}
    measures = {"induction": [[[0.0, 0.5]], [[NAN, 1.0]], [[0.25, 0.75]]], "entropy": np.full((3, 1, 2), NAN)}
    blob = scrubber.pack([0, 10, 20], frames, [3.0, NAN, 1.0], measures, n=(4, 4), factors=(2, 2), causal=[True])
    header, arrays = payload.unpack(blob)
    assert (header["measures"], header["ranges"]) == (["induction", "entropy"], [[0.0, 1.0], [0.0, 1.0]])
    assert (header["n"], header["factors"], header["causal"]) == ([4, 4], [2, 2], [True])
    assert arrays["film"].tolist() == [0, scrubber.NONE, 1] and arrays["steps"].tolist() == [0, 10, 20]
    np.testing.assert_array_equal(arrays["frames"], np.stack([frames[0], frames[20]]))
    assert arrays["frames"][1].flat[0] == 128  # round(255 * sqrt(0.25))
    np.testing.assert_array_equal(arrays["loss"], np.array([3, NAN, 1], np.float32))
    np.testing.assert_allclose(arrays["measure0"][2] / 65534, [[0.25, 0.75]], atol=1e-5)
    assert arrays["measure0"][1, 0, 0] == payload.MISSING and (arrays["measure1"] == payload.MISSING).all()
    assert header["version"] == payload.header(blob)["version"]


def test_roles_of_each_step_come_with_it() -> None:
    codes = [[[0, 1]], [[254, 255]]]
    lost = [[[0, 0]], [[1, 0]]]
    roles = atlas.Roles(["induction"], codes, lost)
    _, arrays = payload.unpack(scrubber.pack([0, 10], {}, [1.0, 2.0], {}, n=(4, 4), roles=roles))
    assert arrays["roles"].dtype == arrays["lost"].dtype == np.uint8
    assert arrays["roles"].tolist() == codes and arrays["lost"].tolist() == lost


def test_guesses_of_each_frame_come_with_it() -> None:
    frames = {step: a_frame(0.5) for step in (0, 20, 30)}
    said = {
        0: Guesses(["b", " a"], [0.5, 0.25], 2.0),
        10: Guesses(["x", "y"], [1, 0], 0.0),
        30: Guesses(["c", "b"], [1, 0], NAN),
    }
    header, arrays = payload.unpack(scrubber.pack([0, 10, 20, 30], frames, [1.0] * 4, {}, n=(2, 2), guesses=said))
    assert header["words"] == sorted(guesses.words_of(["b", " a", "c"])), "of step 10 there is no frame"
    words = [[header["words"][i] for i in row] for row in arrays["guessed"][[0, 2]]]
    assert words == [guesses.words_of(["b", " a"]), ["c", "b"]] and (arrays["guessed"][1] == scrubber.NONE).all()
    np.testing.assert_array_equal(arrays["shares"], [[0.5, 0.25], [0, 0], [1, 0]])
    np.testing.assert_array_equal(arrays["losses"], [2, NAN, NAN])


def test_guesses_of_one_token_are_without_a_loss() -> None:
    words = ["<b>", "a"]
    cue = guesses.picture(Guesses(words, [0.75, 0.001], NAN), Guesses(words, np.array([NAN, 0.5]), 1.0)).cue
    assert cue["words"] == ["<b>", "a"] and cue["shares"] == [0.75, 0.001]
    assert cue["before"] == [None, 0.5] and (cue["loss"], cue["was"]) == (None, 1.0)


def test_events_are_marked() -> None:
    blob = scrubber.pack([0, 10], {}, [1.0, 2.0], {}, n=(4, 4))
    event = scrubber.Event(5, 3, 8, "L0H1: previous token", "L0H1 turns to the token before")
    (sent,) = scrubber.picture(blob, step=0, events=[event]).cue["events"]
    assert sent == {"step": 5, "low": 3, "high": 8, "label": event.label, "says": event.says}


def test_a_timeline_without_a_film() -> None:
    _, arrays = payload.unpack(scrubber.pack([0, 10], {}, [1.0, 2.0], {}, n=(4, 4)))
    assert "frames" not in arrays and (arrays["film"] == scrubber.NONE).all()


@pytest.mark.parametrize(
    ("frames", "loss", "message"),
    [
        ({0: a_frame(0), 1: scrubber.codes(np.zeros((1, 2, 3, 3)))}, [1.0, 1.0], "frames differ in shape"),
        ({}, [1.0], "'loss' has 1 rows, there are 2 steps"),
    ],
)
def test_what_does_not_fit_together(frames: dict[int, np.ndarray], loss: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scrubber.pack([0, 1], frames, loss, {}, n=(4, 4))


def test_a_head_that_does_not_exist_is_dark() -> None:
    assert scrubber.codes(np.array([[[[NAN]], [[1.0]]]])).ravel().tolist() == [0, 255]


def test_a_film_in_pieces() -> None:
    frames = {step: a_frame(step / 100) for step in range(0, 100, 10)}
    header, arrays = payload.unpack(scrubber.pack(list(frames), frames, [1.0] * 10, {}, n=(2, 2), reel="a"))
    assert "frames" not in arrays and arrays["film"].tolist() == list(range(10))
    assert (header["reel"], header["every"], header["cells"]) == ("a", scrubber.REEL, [1, 2, 2, 2])
    header, arrays = payload.unpack(scrubber.reel([frames[80], frames[90]], 8, "a"))
    assert (header["reel"], header["first"]) == ("a", 8)
    np.testing.assert_array_equal(arrays["frames"], np.stack([frames[80], frames[90]]))
