"""The scripts and styles of every part, sent to a page once: an element of a part then says only which part it is.

Streamlit sends an element's script along whenever its data change; only what did not change at all is sent as a hash.
"""

from __future__ import annotations

import functools
import zlib

from dashboard.components.host import Part
from tracer.pictures import sources

_PART = Part("all_parts", sources.opener())


@functools.cache
def _packed() -> bytes:
    return zlib.compress(sources.all_parts().encode(), 9)


def all_parts() -> None:
    """Mount it once on a page, where it stays: before the pages' own elements."""
    _PART(key="all_parts", data=_packed())
