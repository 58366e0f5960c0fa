"""Arrays and words about them, in one safetensors file with its checksum: answers that a run keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from tracer.files.disk import refuse_links, regular, write_bytes
from tracer.files.sealed import sealed, verify

if TYPE_CHECKING:
    import numpy as np


def write_arrays(path: Path, root: Path, arrays: dict[str, np.ndarray], said: dict[str, str]) -> None:
    """A reader sees the answer as it was, or as it is."""
    from safetensors.numpy import save

    refuse_links(root)
    write_bytes(path, sealed(save(arrays, said)), root)


def read_arrays(path: Path, root: Path, most: int, then: str) -> tuple[dict[str, np.ndarray], dict[str, str]] | None:
    """What is there, None where nothing is. ValueError, with what to do `then`, for a damaged file, or one of more than
    `most` bytes."""
    if not path.exists():
        return None
    regular(path, root, most)
    try:
        verify(path, root)
        with safe_open(path, framework="numpy") as file:
            return {key: file.get_tensor(key) for key in list(file.keys())}, file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}): remove it and {then}") from error
