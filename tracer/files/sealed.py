"""Tensors as safetensors whose header holds a checksum of what they are."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.files.disk import checksum, read_json, regular

if TYPE_CHECKING:
    from torch import Tensor

CHECKSUM = "crc32"
"""Its name in the header's `__metadata__`."""
MOST_HEADER = 100_000_000
"""Bytes, as in safetensors itself."""
MOST_TENSORS = 1 << 40
MOST_INDEX = 64 << 20


def pack(tensors: dict[str, Tensor]) -> bytes:
    """A safetensors file, with its checksum."""
    from safetensors.torch import save

    return sealed(save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def sealed(content: bytes) -> bytes:
    """A safetensors file with its checksum in the header, beside what is there."""
    plain = memoryview(content)
    header, start = _header(plain)
    header["__metadata__"] = {**header.get("__metadata__", {}), CHECKSUM: _digest(header, plain[start:])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, plain[start:]))


def _header(content: Any) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors begin; ValueError where there is none."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(bytes(content[8 : 8 + size])) if 2 <= size <= min(MOST_HEADER, len(content) - 8) else None
    if not isinstance(header, dict):
        raise ValueError("its header is not that of a safetensors file")
    return header, 8 + size


def _digest(header: dict[str, Any], tensors: Any) -> str:
    """Of names, types and shapes, and of every number."""
    told = {name: entry for name, entry in header.items() if name != "__metadata__"}
    return checksum(json.dumps(told, sort_keys=True).encode(), tensors)


def verify(path: Path, root: Path) -> bool:
    """Is the file what was written? ValueError where it is not; False where it has no checksum to tell by."""
    if not regular(path, root, MOST_TENSORS):
        raise ValueError("it is empty")
    with (
        path.open("rb") as f,
        mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as content,
    ):
        try:
            header, start = _header(content)
        except RecursionError as error:
            raise ValueError("its header is not that of a safetensors file") from error
        noted = (header.get("__metadata__") or {}).get(CHECKSUM)
        with content[start:] as tensors:
            if noted is not None and noted != _digest(header, tensors):
                raise ValueError("its checksum is not that of its content")
    return noted is not None


def shapes(path: Path, root: Path | None) -> dict[str, tuple[int, ...]]:
    """Of each tensor, from the header alone; ValueError where it is none."""
    from safetensors import SafetensorError, safe_open

    regular(path, root, MOST_TENSORS)
    try:
        with safe_open(str(path), framework="pt") as f:
            return {name: tuple(f.get_slice(name).get_shape()) for name in f.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is no safetensors file, or is cut off: {error}") from error


def weight_files(index: Path) -> list[Path]:
    """The files beside a Hugging Face index that it names; ValueError where one is no safetensors by its name.

    Such a file (`x.bin`) would be unpickled, and can run code.
    """
    told = read_json(index, None, MOST_INDEX)
    named = told.get("weight_map") if isinstance(told, dict) else None
    if not isinstance(named, dict) or not named or not all(isinstance(name, str) for name in named.values()):
        raise ValueError(f"{index} does not say which file each tensor is in")
    names = sorted(set(named.values()))
    if wrong := [name for name in names if not name.endswith(".safetensors") or Path(name).name != name]:
        raise ValueError(
            f"{index} names {wrong[0]!r:.100}, which is no safetensors file beside it: pickled weights are not opened, "
            f"since they can run code"
        )
    return [index.with_name(name) for name in names]
