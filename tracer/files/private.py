"""A secret that is to be read by the account of this process only: a file, never an argument, a log or a link."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def keep(secret: str) -> Path:
    """A new file with this line in it that no other account can open (mode 0600), until `forget`."""
    descriptor, name = tempfile.mkstemp(prefix="manyeyes-", suffix=".token")  # new by O_EXCL: nobody's link is followed
    with os.fdopen(descriptor, "w") as f:
        f.write(f"{secret}\n")
    return Path(name)


def forget(path: Path) -> None:
    """Remove it, unless what clears the folder of temporary files has."""
    path.unlink(missing_ok=True)
