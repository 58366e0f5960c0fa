"""Pictures of heads for a browser: packed arrays, colours, and one script and style a part, for any host.

A host (a page of the dashboard, a notebook, a file) mounts a part with its bytes and a cue; nothing here knows which.
"""

from tracer.pictures.assets import Source, source

__all__ = ["Source", "source"]
