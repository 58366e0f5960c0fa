"""The tensors that a run holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracer.files.disk import BrokenSnapshot
from tracer.files.sealed import verify
from tracer.store.layout import steps_in
from tracer.store.remote import bring


def load_tensors(path: Path) -> dict[str, Any]:
    """Tensors of a safetensors file of a run, or an error that says which other snapshots can be read instead."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        verify(bring(path), path.parent.parent)
        return load_file(str(path))
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        raise broken(path, error) from error


def broken(path: Path, error: Exception) -> BrokenSnapshot:
    others = [s for s in steps_in(path.parent) if s != int(path.stem)]
    hint = f"other steps here: {', '.join(map(str, others[-5:]))}" if others else "there is no other beside it"
    return BrokenSnapshot(f"{path} cannot be read ({error}): it is cut off or damaged; {hint}")
