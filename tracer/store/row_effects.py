"""What rows of a stretch did to a head: rows/<first>-<last>-<head>-<measure>.safetensors, one file an answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.store.sealed_arrays import read_arrays, write_arrays

if TYPE_CHECKING:
    import numpy as np

MOST_BYTES = 1 << 30
TOLD = "told"
NAME = re.compile(r"\d{1,18}-\d{1,18}-L\d{1,4}H\d{1,4}-[a-z_]+")


def rows_path(directory: Path, name: str) -> Path:
    return directory / "rows" / f"{name}.safetensors"


def write_rows(directory: Path, name: str, arrays: dict[str, np.ndarray], told: dict[str, Any]) -> None:
    """`told`: what is no array, JSON alone."""
    write_arrays(rows_path(directory, name), directory, arrays, {TOLD: json.dumps(told)})


def read_rows(directory: Path, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """The arrays and the rest; None where nobody asked. ValueError for a damaged file."""
    found = read_arrays(path := rows_path(directory, name), directory, MOST_BYTES, "ask again")
    if found is None:
        return None
    try:
        told = json.loads(found[1].get(TOLD, ""))
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise ValueError(f"{path} cannot be read (it does not say what it is): remove it and ask again")
    return found[0], told


def rows_there(directory: Path) -> list[str]:
    """The names of the answers, the newest first."""
    found = [path for path in (directory / "rows").glob("*.safetensors") if NAME.fullmatch(path.stem)]
    return [path.stem for path in sorted(found, key=lambda path: -path.stat().st_mtime_ns)]
