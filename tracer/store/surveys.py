"""What heads do over a corpus: surveys/<step>-<hash of the rows>.safetensors, one file a survey, written whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracer.store.sealed_arrays import read_arrays, write_arrays

if TYPE_CHECKING:
    import numpy as np

MOST_BYTES = 4 << 30
"""Of one survey: 1 MB a head allows for 4,096 heads."""


def survey_path(directory: Path, name: str) -> Path:
    return directory / "surveys" / f"{name}.safetensors"


def write_survey(directory: Path, name: str, arrays: dict[str, np.ndarray], corpus: str, measures: str = "{}") -> None:
    """A reader sees the survey as it was, or as it is. `corpus`: what was read, in words; `measures`: what is said of
    a user's, as JSON."""
    write_arrays(survey_path(directory, name), directory, arrays, {"corpus": corpus, "measures": measures})


def read_survey(directory: Path, name: str) -> tuple[dict[str, np.ndarray], str, str] | None:
    """The arrays, the corpus in words and what is said of measures, or None where this was not surveyed.

    ValueError for a damaged file.
    """
    found = read_arrays(survey_path(directory, name), directory, MOST_BYTES, "survey again")
    if found is None:
        return None
    arrays, said = found
    return arrays, said.get("corpus", ""), said.get("measures", "{}")


def take_back_surveys(directory: Path, step: int) -> None:
    """Remove those of a step."""
    for path in (directory / "surveys").glob(f"{step}-*.safetensors"):
        path.unlink()


def newest_survey(directory: Path, step: int) -> str | None:
    """The name of the survey of this step that was written last."""
    found = sorted((directory / "surveys").glob(f"{step}-*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1].stem if found else None
