"""What heads do over a corpus: surveys/<step>-<hash of the rows>.safetensors, one file a survey, written whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from tracer.files.disk import refuse_links, regular, write_bytes
from tracer.files.sealed import sealed, verify

if TYPE_CHECKING:
    import numpy as np

MOST_BYTES = 4 << 30
"""Of one survey: 1 MB a head allows for 4,096 heads."""


def survey_path(directory: Path, name: str) -> Path:
    return directory / "surveys" / f"{name}.safetensors"


def write_survey(directory: Path, name: str, arrays: dict[str, np.ndarray], corpus: str, measures: str = "{}") -> None:
    """A reader sees the survey as it was, or as it is. `corpus`: what was read, in words; `measures`: what is said of
    a user's, as JSON."""
    from safetensors.numpy import save

    refuse_links(directory)
    write_bytes(survey_path(directory, name), sealed(save(arrays, {"corpus": corpus, "measures": measures})), directory)


def read_survey(directory: Path, name: str) -> tuple[dict[str, np.ndarray], str, str] | None:
    """The arrays, the corpus in words and what is said of measures, or None where this was not surveyed.

    ValueError for a damaged file.
    """
    path = survey_path(directory, name)
    if not path.exists():
        return None
    regular(path, directory, MOST_BYTES)
    try:
        verify(path, directory)
        with safe_open(path, framework="numpy") as file:
            arrays = {key: file.get_tensor(key) for key in list(file.keys())}
            said = file.metadata() or {}
            return arrays, said.get("corpus", ""), said.get("measures", "{}")
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}): remove it and survey again") from error


def take_back_surveys(directory: Path, step: int) -> None:
    """Remove those of a step."""
    for path in (directory / "surveys").glob(f"{step}-*.safetensors"):
        path.unlink()


def newest_survey(directory: Path, step: int) -> str | None:
    """The name of the survey of this step that was written last."""
    found = sorted((directory / "surveys").glob(f"{step}-*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1].stem if found else None
