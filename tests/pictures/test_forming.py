"""The film that goes round, and the small image of every head: read back."""

import struct
import zlib

import numpy as np
import pytest

from tracer.pictures import forming
from tracer.pictures.montage import CLEAR, LEVELS, montage, squares
from tracer.pictures.payload import unpack


def test_a_film_comes_back() -> None:
    patterns = np.tril(np.full((3, 2, 4, 4), 0.25))
    head, arrays = unpack(forming.pack([0, 5, 9], patterns, np.array([[0.1, 0.2]] * 3), ["a: x", "b: y"]))
    assert (head["steps"], head["labels"], head["scores"]) == ([0, 5, 9], ["a: x", "b: y"], [[0.1] * 3, [0.2] * 3])
    np.testing.assert_allclose((arrays["cells"] / 255.0) ** 2, patterns, atol=0.02)


@pytest.mark.parametrize("shape", [(2, 2, 4, 4), (3, 1, 4, 4), (3, 2, 4, 3)])
def test_what_does_not_fit_together(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="3 steps of 2 heads"):
        forming.pack([0, 1, 2], np.zeros(shape), np.zeros(shape[:2]), ["a", "b"])


def chunks_of(image: bytes) -> dict[bytes, bytes]:
    chunks, at = {}, 8
    while at < len(image):
        (n,) = struct.unpack_from(">I", image, at)
        chunks[image[at + 4 : at + 8]] = image[at + 8 : at + 8 + n]
        assert zlib.crc32(image[at + 4 : at + 8 + n]) == struct.unpack_from(">I", image, at + 8 + n)[0]
        at += 12 + n
    return chunks


def test_a_score_of_every_head_is_a_square() -> None:
    chunks = chunks_of(squares([[0.0, 1.0], [0.5, np.nan], [-0.2, 1.5]], dark=False))
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(3, 3)
    assert struct.unpack_from(">II", chunks[b"IHDR"]) == (2, 3)
    assert rows[:, 1:].tolist() == [[0, LEVELS - 1], [round(0.5 * (LEVELS - 1)), CLEAR], [0, LEVELS - 1]]


@pytest.mark.parametrize("dark", [False, True])
def test_every_head_in_one_image(dark: bool) -> None:
    patterns = np.stack([np.eye(3), np.tril(np.ones((3, 3)) / 4)])[None]
    patterns = np.concatenate([patterns, np.full_like(patterns, np.nan)])
    chunks = chunks_of(montage(patterns, dark=dark, gap=1))
    wide, high, bits, kind = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert (wide, high, bits, kind) == (7, 7, 8, 3) and len(chunks[b"PLTE"]) == 3 * (LEVELS + 1)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(7, 8)
    half, none = round(0.5 * (LEVELS - 1)), CLEAR
    assert rows[2].tolist() == [0, 0, 0, LEVELS - 1, none, half, half, half] and set(rows[4:, 1:].flat) == {none}
    assert chunks[b"tRNS"][none] == 0 and chunks[b"tRNS"][0] == 255
