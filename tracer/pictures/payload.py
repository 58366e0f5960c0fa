"""Arrays to bytes for the browser: u32 header length (little endian), JSON header, deflated arrays one after the other.

Pure numpy, so that a page can cache the result and a test can read it back.
"""

import hashlib
import json
import struct
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MISSING = 65535
"""The uint16 code of a value that was not measured (NaN)."""

_SYMBOLS = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}


def pack(header: Mapping[str, Any], **arrays: NDArray[Any]) -> bytes:
    """One blob from a JSON header and named arrays; the header gains their layout and a version, a hash of it all."""
    arrays = {name: np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for name, a in arrays.items()}
    body = b"".join(a.tobytes() for a in arrays.values())
    layout = [{"name": n, "dtype": a.dtype.name, "shape": list(a.shape)} for n, a in arrays.items()]
    head = json.dumps({**header, "arrays": layout}, separators=(",", ":"), allow_nan=False)
    version = hashlib.blake2b(head.encode() + body, digest_size=8).hexdigest()
    encoded = json.dumps({**header, "arrays": layout, "version": version}, separators=(",", ":")).encode()
    return struct.pack("<I", len(encoded)) + encoded + zlib.compress(body, 6)


def unpack(blob: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Inverse of pack, as the browser does it."""
    (n,) = struct.unpack_from("<I", blob)
    head = header(blob)
    body, at, arrays = zlib.decompress(blob[4 + n :]), 0, {}
    for spec in head["arrays"]:
        dtype, count = np.dtype(spec["dtype"]), int(np.prod(spec["shape"]))
        arrays[spec["name"]] = np.frombuffer(body, dtype, count, at).reshape(spec["shape"])
        at += count * dtype.itemsize
    return head, arrays


def header(blob: bytes) -> dict[str, Any]:
    """The header alone, without inflating what follows."""
    (n,) = struct.unpack_from("<I", blob)
    return json.loads(blob[4 : 4 + n])


def quantise_sqrt(shares: ArrayLike, levels: int = 255) -> NDArray[np.uint8]:
    """round(levels * sqrt(p)) spread over 0..255: fine where shares are small; error about sqrt(p) / levels.

    Fewer levels deflate better; 39 are more than an eye tells apart in a thumbnail.
    """
    p = np.clip(np.nan_to_num(np.asarray(shares, np.float32)), 0, 1)
    return np.rint(np.rint(np.sqrt(p) * levels) * (255 / levels)).astype(np.uint8)


def quantise_linear(values: ArrayLike, lo: float, hi: float) -> NDArray[np.uint16]:
    """round((x - lo) / (hi - lo) * 65534), clipped; NaN becomes MISSING. Error at most (hi - lo) / 131068."""
    x = np.asarray(values, np.float64)
    code = np.rint(np.clip((x - lo) / (hi - lo), 0, 1) * (MISSING - 1))
    return np.where(np.isnan(x), MISSING, code).astype(np.uint16)


def quantise_pattern(
    pattern: ArrayLike, queries: Sequence[str], keys: Sequence[str], of: str = ""
) -> NDArray[np.uint16]:
    """Shares [query_pos key_pos] to 1/131068, none where they are NaN; `of`: whose, as an error names it."""
    p = np.asarray(pattern, np.float64)
    if p.shape != (len(queries), len(keys)):
        raise ValueError(
            f"{of}pattern has shape {p.shape}, there are {len(queries)} query tokens and {len(keys)} key tokens"
        )
    return quantise_linear(np.nan_to_num(p), 0, 1)


def ends(values: ArrayLike) -> tuple[float, float]:
    """The range of what was measured, never empty."""
    v = np.asarray(values, np.float64)
    if not np.isfinite(v).any():
        return 0.0, 1.0
    lo, hi = float(np.nanmin(v)), float(np.nanmax(v))
    return lo, hi if hi > lo else lo + 1.0


def max_pool(patterns: ArrayLike, pool_to: int) -> tuple[NDArray[np.float32], int]:
    """Largest share in each f x f block, f the smallest that fits pool_to; the last may be short of tokens."""
    a = np.asarray(patterns, np.float32)
    size = a.shape[-1]
    factor = -(-size // pool_to)
    if factor == 1:
        return a, 1
    firsts = np.arange(0, size, factor)
    return np.maximum.reduceat(np.maximum.reduceat(a, firsts, axis=-2), firsts, axis=-1), factor


def visible(token: str, longest: int = 40) -> str:
    """A token on one line: '·' space, '⏎' newline, control and direction characters as ‹U+202E›; cut at `longest`."""

    def glyph(c: str) -> str:
        if c in _SYMBOLS:
            return _SYMBOLS[c]
        joiner = c in "\u200c\u200d" and len(token) > 1  # these hold an emoji or a word together
        hidden = unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        return f"‹U+{ord(c):04X}›" if hidden and not joiner else c

    shown = "".join(map(glyph, token[: longest + 1]))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
