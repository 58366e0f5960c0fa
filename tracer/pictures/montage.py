"""Every head in one small image: a PNG that needs no script, in the colours of one theme."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures.colours import palette

LEVELS = 64
CLEAR = LEVELS
"""Index of what is no cell."""


def montage(patterns: ArrayLike, *, dark: bool, gap: int = 2) -> bytes:
    """Causal patterns [layer head query_pos key_pos], a row a layer, a pixel a cell; the future is clear.

    Brightness goes with the root of the share, as in the atlas. A head that is not there (NaN) stays clear.
    """
    p = np.asarray(patterns, np.float32)
    n_layers, n_heads, n, _ = p.shape
    codes = np.rint(np.sqrt(np.clip(np.nan_to_num(p), 0, 1)) * (LEVELS - 1)).astype(np.uint8)
    codes = np.where(np.tril(np.ones((n, n), bool)) & np.isfinite(p), codes, CLEAR)
    padded = np.pad(codes, np.array([(0, 0), (0, 0), (0, gap), (0, gap)]), constant_values=CLEAR)
    image = padded.transpose(0, 2, 1, 3).reshape(n_layers * (n + gap), n_heads * (n + gap))[:-gap, :-gap]
    colours = palette("attention", LEVELS)["dark" if dark else "light"]
    return _png(image.astype(np.uint8), [*colours, "#000000"], clear=CLEAR)


def squares(values: ArrayLike, *, dark: bool) -> bytes:
    """A share of every head [layer head] as a pixel, a row a layer; one that is not there (NaN) stays clear."""
    v = np.asarray(values, np.float32)
    codes = np.where(np.isfinite(v), np.rint(np.clip(np.nan_to_num(v), 0, 1) * (LEVELS - 1)), CLEAR)
    return _png(codes.astype(np.uint8), [*palette("score", LEVELS)["dark" if dark else "light"], "#000000"], CLEAR)


def _png(codes: np.ndarray, colours: list[str], clear: int) -> bytes:
    """Rows of palette indices as a PNG (ISO/IEC 15948), of which one index is transparent."""
    height, width = codes.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), codes], axis=1)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": bytes.fromhex("".join(colour.removeprefix("#") for colour in colours)),
        b"tRNS": bytes(255 * (i != clear) for i in range(len(colours))),
        b"IDAT": zlib.compress(rows.tobytes(), 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks.items()
    )
