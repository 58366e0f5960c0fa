"""What `tracer.watch(model, run=...)` returns where this version of torch lacks what a recorder stands on."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any


class NotRecording:
    """Takes every call that a `LoopRecorder` takes, and does nothing: a training goes on without its recorder."""

    def __init__(self, run: str | Path, error: ImportError) -> None:
        text = (
            f"manyeyes records nothing in {run}, and the training goes on: {error}. Most likely torch is newer than "
            f"the versions that this manyeyes knows: install one of those, or a newer manyeyes"
        )
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        except RuntimeWarning:  # where warnings are errors
            sys.stderr.write(f"{text}\n")
        self.off, self.steps, self.last, self.should_stop = text, 0, dict[str, float](), False
        self.max_logits, self.max_logits_unseen = None, text

    def __enter__(self) -> NotRecording:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def step(self, *_: Any, at: int | None = None, **__: Any) -> None:
        self.steps = self.steps + 1 if at is None else at

    def evaluated(self, *_: Any, **__: Any) -> None: ...

    def log(self, *_: Any, **__: Any) -> None: ...

    def check(self, *_: Any, **__: Any) -> None: ...

    def clamp(self, *_: Any, **__: Any) -> None:
        """Unlike what is left unrecorded, a clamp that is not held would make another training."""
        raise ValueError(f"no clamp can be held: {self.off}")

    def close(self, *_: Any, **__: Any) -> None: ...
