"""What pages import: early, while the first browser still loads the host's scripts, and kept out of collections."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

WANTED = ("dashboard.frame", "tracer.store.schema", "tracer.store.chunk_arrays", "xarray")
"""0.8 s together on a core of 2.3 GHz, which the reader would wait for."""


def _import() -> None:
    for name in WANTED:
        importlib.import_module(name)


_kept = 0
"""How many modules there were when it was last done."""
_IMPORTING = threading.Thread(name="warming", target=_import, daemon=True)


@asynccontextmanager
async def lifespan(_app: object) -> AsyncIterator[None]:
    """Begins with the server, which does not wait for it."""
    if _IMPORTING.ident is None:
        _IMPORTING.start()
    yield


def wait() -> None:
    """Until all is imported: of two threads that import in different orders each may see half a module."""
    if _IMPORTING.ident is not None:
        _IMPORTING.join()


def keep() -> None:
    """Nothing imported is garbage: none is looked for in it.

    Over the objects of torch and Plotly a search took longer than a script, and nothing was sent meanwhile.
    """
    global _kept
    if len(sys.modules) > _kept:
        _kept = len(sys.modules)
        gc.freeze()
