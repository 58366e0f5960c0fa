"""The chunks of a Zarr group inside a run directory: bounded regular files of its own, verified when they are read.

Before anything is decoded, `layout` reads the group's metadata and refuses every format, codec and type but ours.
Then each chunk that is read is 1. a regular file inside the folder, 2. of the checksum (CRC-32C) that ends it, 3. said
by its own header (zstd) to hold as many bytes as the array's chunks do. A chunk that must be there and is not is an
error, not NaN: arrays with checksums write all their chunks. Those of earlier versions have none and are decoded once
more instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import google_crc32c
import numpy as np
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd

from tracer.files.disk import Damaged, read_bytes, read_json
from tracer.store.sign_of_life import trains_elsewhere

MOST_METADATA = 16 << 20
MOST_ARRAYS = 1000
MOST_ROWS = 1 << 24
MOST_CHUNK = 128 << 20
"""Decoded bytes of a chunk: the patterns of one step, of 3,000 heads at 64 positions of five prompts."""
MOST_STRINGS = 16 << 20
NUMBERS = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
           "float16", "float32", "float64")  # fmt: skip
CODECS = (["bytes", "zstd"], ["bytes", "zstd", "crc32c"])
STRING_CODECS = (["vlen-utf8", "zstd"], ["vlen-utf8", "zstd", "crc32c"])
SEPARATORS = ("/", ".")
"""In the name of a chunk: c/0/0 is below a folder an axis, as all were once, c.0.0 is a file of the array's folder."""


@dataclass(frozen=True)
class Chunks:
    """How the chunks of an array are laid out and coded, and what is said of it."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: str
    checked: bool
    """Does each end in a checksum? Then all of them are written, too."""
    dims: tuple[str, ...]
    fill: Any
    """The values of a chunk that was never written."""
    separator: str
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def over_steps(self) -> bool:
        return self.dims[:1] == ("step",)

    @property
    def numpy(self) -> np.dtype[Any]:
        """What a reader gets."""
        return np.dtypes.StringDType() if self.dtype == "string" else np.dtype(self.dtype)

    def key(self, place: tuple[int, ...]) -> str:
        """The name of a chunk below the array's folder."""
        return "c" + "".join(f"{self.separator}{at}" for at in place)

    @property
    def nbytes(self) -> int:
        """Decoded bytes of a chunk; of strings, at most."""
        return MOST_STRINGS if self.dtype == "string" else math.prod(self.chunk) * np.dtype(self.dtype).itemsize


def layout(root: Path) -> tuple[dict[str, Chunks], dict[str, Any]]:
    """The arrays of a group, by name, and what is said of the group; Damaged where they are not of the kind that
    manyeyes writes."""
    path = root / "zarr.json"
    for name in (".zgroup", ".zmetadata", ".zarray"):
        if (root / name).exists():
            raise Damaged(f"{root} is Zarr of format 2, which manyeyes never wrote: it is not read")
    try:
        meta = read_json(path, root.parent, MOST_METADATA)
        arrays = meta["consolidated_metadata"]["metadata"]
        if meta["zarr_format"] != 3 or meta["node_type"] != "group" or len(arrays) > MOST_ARRAYS:
            raise ValueError("it is no group of format 3")
        return {name: _chunks(name, one) for name, one in arrays.items()}, dict(meta["attributes"])
    except Damaged:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Damaged(f"{path} is damaged or not of manyeyes: {error}") from error


def _chunks(name: str, meta: dict[str, Any]) -> Chunks:
    def refuse(what: str) -> ValueError:
        return ValueError(f"array {name!r:.60} has {what}, which manyeyes never writes")

    if not name.isidentifier() or meta["zarr_format"] != 3 or meta["node_type"] != "array":
        raise refuse("an odd name or is no array of format 3")
    dtype, codecs = meta["data_type"], [codec["name"] for codec in meta["codecs"]]
    if dtype != "string" and dtype not in NUMBERS:
        raise refuse(f"type {dtype!r:.60}")
    if codecs not in (STRING_CODECS if dtype == "string" else CODECS) or meta.get("storage_transformers"):
        raise refuse(f"codecs {codecs!r:.100}")
    grid, keys = meta["chunk_grid"], meta["chunk_key_encoding"]
    if grid["name"] != "regular" or keys["name"] != "default" or keys["configuration"]["separator"] not in SEPARATORS:
        raise refuse("another grid of chunks")
    shape, chunk = meta["shape"], grid["configuration"]["chunk_shape"]
    sizes = [*shape, *chunk]
    if len(shape) != len(chunk) or len(shape) > 8 or any(type(n) is not int or n < 0 for n in sizes):
        raise refuse("sizes that cannot be")
    if any(n == 0 < of for n, of in zip(chunk, shape, strict=True)):
        raise refuse("empty chunks")
    dims, attrs, endian = meta["dimension_names"], meta["attributes"], meta["codecs"][0].get("configuration", {})
    if len(dims) != len(shape) or any(type(name) is not str for name in dims) or type(attrs) is not dict:
        raise refuse("no names for its axes or odd attributes")
    if endian.get("endian", "little") != "little":
        raise refuse("another order of bytes")
    fill = meta["fill_value"]
    if fill is None:
        raise refuse("nothing where nothing was written")
    if dtype != "string":
        fill = np.dtype(dtype).type(fill)
    found = Chunks(
        tuple(shape),
        tuple(chunk),
        dtype,
        "crc32c" in codecs,
        tuple(dims),
        fill,
        keys["configuration"]["separator"],
        attrs,
    )
    if max(shape, default=0) > MOST_ROWS or math.prod(chunk) > MOST_CHUNK or found.nbytes > MOST_CHUNK:
        raise Damaged(f"array {name!r} is declared as {shape} in chunks of {chunk}: more than is read")
    if dtype == "string" and (type(fill) is not str or math.prod(shape) > 1 << 20):
        raise refuse("too many strings")
    return found


class ChunkFiles:
    """The files of a group, each verified when it is read."""

    def __init__(self, root: Path, staged: Callable[[Path], Path | None] = lambda path: None) -> None:
        self.root = root
        self.arrays: dict[str, Chunks] = {}
        self.attrs: dict[str, Any] = {}
        self.committed = 0
        """Rows whose step is written."""
        self._staged = staged
        """Where a file lies that has not its name yet."""

    def lay_out(self) -> None:
        """Read what arrays there are."""
        self.arrays, self.attrs = layout(self.root)

    def read(self, key: str) -> bytes | None:
        """The content of a file, verified; None where there is none and need not be."""
        try:
            return self._verified(key)
        except Damaged as error:
            if host := trains_elsewhere(self.root.parent / "lock"):
                raise Damaged(
                    f"{error}; the run trains on {host}: copy it once more, this part was on its way"
                ) from error
            raise

    def chunk(self, name: str, place: tuple[int, ...]) -> np.ndarray | None:
        """The values of a chunk, whole; None where none was written and none need be."""
        chunks = self.arrays[name]
        content = self.read(f"{name}/{chunks.key(place)}")
        if content is None:
            return None
        decoded = decode(content, chunks)
        if chunks.dtype == "string":
            return np.array(VLenUTF8().decode(decoded), chunks.numpy).reshape(chunks.chunk)
        return np.frombuffer(decoded, chunks.numpy).reshape(chunks.chunk)

    def _verified(self, key: str) -> bytes | None:
        path, (name, _, rest) = self.root / key, key.partition("/")
        chunks = self.arrays.get(name) if rest[:1] == "c" else None
        path = self._staged(path) or path
        try:
            content = read_bytes(path, self.root.parent, 2 * MOST_CHUNK if chunks else MOST_METADATA)
        except (FileNotFoundError, NotADirectoryError):
            if chunks is not None and self._must_be(name, chunks, rest):
                raise Damaged(f"{path} is missing: a part of what was recorded is lost") from None
            return None
        except OSError as error:
            raise Damaged(f"{path} cannot be read: {error.strerror}") from error
        if chunks is not None:
            _verify(path, content, chunks)
        return content

    def _must_be(self, name: str, chunks: Chunks, rest: str) -> bool:
        if not chunks.checked or not all(chunks.shape):
            return False
        place = rest.replace("/", ".").split(".")[1:]
        if name == "step" and place == ["0"]:  # written when the arrays are laid out
            return True
        return not chunks.over_steps or int(place[0]) * chunks.chunk[0] < self.committed


def _verify(path: Path, content: bytes, chunks: Chunks) -> None:
    body = content
    if chunks.checked:
        body = content[:-4]
        if len(content) < 4 or google_crc32c.value(body).to_bytes(4, "little") != content[-4:]:
            raise Damaged(f"{path} is damaged: its checksum is not that of its content")
    size = content_size(body)
    if size is None or size > chunks.nbytes or (chunks.dtype != "string" and size != chunks.nbytes):
        raise Damaged(f"{path} is damaged: it is not {chunks.nbytes:,} bytes that zstd compressed")
    if chunks.checked and chunks.dtype != "string":
        return
    try:  # no checksum says that this will go well
        decoded = decode(content, chunks)
    except RuntimeError as error:
        raise Damaged(f"{path} is damaged: {error}") from error
    if chunks.dtype == "string" and int.from_bytes(decoded[:4], "little") != math.prod(chunks.chunk):
        raise Damaged(f"{path} is damaged: it does not hold as many strings as it must")


def decode(content: bytes, chunks: Chunks) -> bytes:
    """What zstd compressed, before the checksum."""
    return cast(Any, Zstd()).decode(content[:-4] if chunks.checked else content)


def content_size(frame: bytes) -> int | None:
    """Decoded bytes that a zstd frame says it holds (RFC 8878, 3.1.1.1); None when it is no frame or does not say."""
    if len(frame) < 6 or frame[:4] != b"\x28\xb5\x2f\xfd":
        return None
    flag, single, dictionary = frame[4] >> 6, frame[4] >> 5 & 1, (0, 1, 2, 4)[frame[4] & 3]
    width = (single, 2, 4, 8)[flag]
    start = 5 + (1 - single) + dictionary
    field = frame[start : start + width]
    if not width or len(field) < width:
        return None
    return int.from_bytes(field, "little") + 256 * (flag == 1)
