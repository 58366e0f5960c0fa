"""run.json of an earlier format in the words of today's: nothing else knows that there were others."""

from __future__ import annotations

from typing import Any

from tracer.store.layout import FORMAT


def upgraded(meta: dict[str, Any]) -> dict[str, Any]:
    """Of format 1, which runs of `tracer train` had, or 2, that of all others; neither has been looked at yet. Format 3
    has today's words; its traces have a folder an axis of chunks, and go on so.

    The loss of counting tokens stood by itself before there were others to compare with.
    """
    found = {**meta, "format": FORMAT}
    if meta["format"] == 1:
        found = {"kind": "trained", "bos": 0} | found
    counting, known = found.pop("unigram_loss", None), found.get("references", {})
    if counting is not None and isinstance(known, dict):
        found["references"] = {"unigram": counting} | known
    return found
