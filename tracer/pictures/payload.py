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
    header = json.loads(blob[4 : 4 + n])
    body, at, arrays = zlib.decompress(blob[4 + n :]), 0, {}
    for spec in header["arrays"]:
        dtype, count = np.dtype(spec["dtype"]), int(np.prod(spec["shape"]))
        arrays[spec["name"]] = np.frombuffer(body, dtype, count, at).reshape(spec["shape"])
        at += count * dtype.itemsize
    return header, arrays


def version(blob: bytes) -> str:
    """The hash of what a blob holds, without inflating it."""
    (n,) = struct.unpack_from("<I", blob)
    return json.loads(blob[4 : 4 + n])["version"]


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


def max_pool(patterns: ArrayLike, pool_to: int) -> tuple[NDArray[np.float32], int]:
    """Largest share in each f x f block, f the smallest that fits pool_to; zero-padded, so no row is lost."""
    a = np.asarray(patterns, np.float32)
    size = a.shape[-1]
    factor = -(-size // pool_to)
    if factor == 1:
        return a, 1
    n = -(-size // factor)
    pad = n * factor - size
    a = np.pad(a, [(0, 0)] * (a.ndim - 2) + [(0, pad), (0, pad)])
    return a.reshape(*a.shape[:-2], n, factor, n, factor).max(axis=(-3, -1)), factor


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


def atlas(patterns: ArrayLike, measures: Mapping[str, ArrayLike], *, pool_to: int = 96) -> bytes:
    """Every head's causal pattern [layer head query_pos key_pos] as a thumbnail, with its measures [layer head]."""
    p = np.asarray(patterns)
    if p.ndim != 4 or p.shape[2] != p.shape[3]:
        raise ValueError(f"patterns must be [layer head query_pos key_pos], got shape {p.shape}")
    thumbs, _ = max_pool(p, pool_to)
    return atlas_thumbs(thumbs, measures, n=p.shape[2])


def atlas_thumbs(
    thumbs: ArrayLike,
    measures: Mapping[str, ArrayLike],
    *,
    n: int | tuple[int, int],
    causal: bool | Sequence[bool] = True,
    layer_names: Sequence[str] | None = None,
) -> bytes:
    """atlas() of patterns of n x n tokens (or queries x keys) that are max-pooled already, [layer head rows cols].

    A head whose thumbnail is all NaN does not exist: layers may differ in their number of heads.
    """
    t = np.asarray(thumbs, np.float32)
    if t.ndim != 4:
        raise ValueError(f"thumbs must be [layer head rows cols], got shape {t.shape}")
    masked = [causal] * len(t) if isinstance(causal, bool) else list(causal)
    for name, values in measures.items():
        if np.shape(values) != t.shape[:2]:
            raise ValueError(f"measure {name!r} has shape {np.shape(values)}, there are {t.shape[:2]} heads")
    for name, given in (("causal", masked), ("layer_names", layer_names)):
        if given is not None and len(given) != len(t):
            raise ValueError(f"{name} has {len(given)} entries, there are {len(t)} layers")
    n_query, n_key = (n, n) if isinstance(n, int) else n
    factors = [-(-n_query // t.shape[2]), -(-n_key // t.shape[3])]
    values = np.array([np.asarray(v, np.float32) for v in measures.values()], np.float32).reshape(-1, *t.shape[:2])
    header = {"measures": list(measures), "causal": [bool(c) for c in masked], "factors": factors,
              "layers": [visible(name, 120) for name in layer_names or []]}  # fmt: skip
    there = np.asarray(~np.isnan(t).all(axis=(2, 3)), np.uint8)
    return pack(header, thumbs=quantise_sqrt(t, levels=39), values=values, there=there)


def pattern(
    pattern: ArrayLike,
    tokens: Sequence[str],
    *,
    key_tokens: Sequence[str] | None = None,
    label: str = "",
    causal: bool = True,
    query_start: int = 0,
    key_start: int = 0,
) -> bytes:
    """A window of one head's pattern [query_pos key_pos] to 1/131068, with the tokens of both axes.

    Row i is query `query_start` + i, column j key `key_start` + j; without `key_tokens` both axes are the same tokens.
    """
    p = np.asarray(pattern)
    keys = tokens if key_tokens is None else key_tokens
    if p.shape != (len(tokens), len(keys)):
        raise ValueError(
            f"pattern has shape {p.shape}, there are {len(tokens)} query tokens and {len(keys)} key tokens"
        )
    if key_tokens is None and query_start != key_start:
        raise ValueError(f"query_start={query_start} and key_start={key_start} differ; pass key_tokens as well")
    same = query_start == key_start and list(tokens) == list(keys)
    header = {
        "label": label,
        "causal": causal,
        "starts": [query_start, key_start],
        "tokens": [visible(t) for t in tokens],
        "breaks": _breaks(tokens),
        "keys": None if same else [visible(t) for t in keys],
        "key_breaks": [] if same else _breaks(keys),
    }
    return pack(header, shares=quantise_linear(np.nan_to_num(np.asarray(p, np.float64)), 0, 1))


def _breaks(tokens: Sequence[str]) -> list[int]:
    return [i for i, t in enumerate(tokens) if "\n" in t]


def overview(
    pooled: ArrayLike,
    *,
    n_query: int,
    n_key: int,
    factor_q: int,
    factor_k: int,
    label: str = "",
    causal: bool = True,
    pool: str = "max",
) -> bytes:
    """A whole pattern of n_query x n_key tokens as blocks of factor_q x factor_k, each its largest or its mean share.

    Means are small (1 / n_key where attention is even), so they are coded and coloured up to the largest of them.
    """
    p = np.asarray(pooled, np.float32)
    blocks = (-(-n_query // factor_q), -(-n_key // factor_k))
    if p.shape != blocks:
        raise ValueError(
            f"pooled has shape {p.shape}; {n_query} x {n_key} tokens in blocks of {factor_q} x {factor_k} make {blocks}"
        )
    if pool not in ("max", "mean"):
        raise ValueError(f"pool={pool!r}; known: 'max', 'mean'")
    top = float(np.nanmax(p, initial=0)) or 1.0 if pool == "mean" else 1.0
    header = {"label": label, "causal": causal, "pool": pool, "sizes": [n_query, n_key],
              "factors": [factor_q, factor_k], "top": top}  # fmt: skip
    return pack(header, blocks=quantise_sqrt(p / top))


def curves(
    steps: ArrayLike,
    values: ArrayLike,
    labels: Sequence[str],
    *,
    groups: Sequence[int] | None = None,
    group_names: Sequence[str] | None = None,
    log_y: bool = False,
    bridge: bool = True,
) -> bytes:
    """Lines [line step] over steps; NaN is a step without a measurement: bridged by a straight line, or a break."""
    x, y = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if y.shape != (len(labels), x.size):
        raise ValueError(f"values have shape {y.shape}; there are {len(labels)} labels and {x.size} steps")
    if len(set(labels)) != len(labels):
        raise ValueError("curve labels repeat; a click could not tell them apart")
    y = np.where(np.isfinite(y) & ((y > 0) | (not log_y)), y, np.nan)
    y = np.log10(y) if log_y else y
    lo, hi = (float(np.nanmin(y)), float(np.nanmax(y))) if np.isfinite(y).any() else (0.0, 1.0)
    hi = hi if hi > lo else lo + (abs(lo) or 1.0) * 1e-3
    header = {
        "labels": list(labels),
        "groups": list(groups) if groups is not None else list(range(len(labels))),
        "group_names": list(group_names or []),
        "log_y": log_y,
        "bridge": bridge,
        "lo": lo,
        "hi": hi,
    }
    return pack(header, steps=x, lines=quantise_linear(y, lo, hi))


def head_curves(steps: ArrayLike, values: ArrayLike, **options: Any) -> bytes:
    """curves() of a measure [step layer head]: one line a head, coloured by layer."""
    y = np.asarray(values, np.float64)
    n_steps, n_layers, n_heads = y.shape
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    return curves(
        steps,
        y.reshape(n_steps, -1).T,
        [f"L{layer}H{head}" for layer, head in heads],
        groups=[layer for layer, _ in heads],
        group_names=[f"layer {layer}" for layer in range(n_layers)],
        **options,
    )
