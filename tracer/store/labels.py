"""What a person says of a run when it begins: settings of their own, tags and a note, to find and compare runs by.

Settings and tags stand in run.json, bounded as its schema is; the note is the one that a dashboard shows and edits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracer.named_code import kind_of
from tracer.store.choosing import flat
from tracer.store.housekeeping import LONGEST_NOTE, note, write_note
from tracer.store.run import Run
from tracer.store.schema import LONGEST_NAME, LONGEST_TAG, LONGEST_TEXT, MOST_SETTINGS, MOST_TAGS


@dataclass(frozen=True)
class Labels:
    """They were checked; `facts` are those of run.json."""

    facts: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    @classmethod
    def of(cls, settings: Any = None, note: str = "", tags: str | Iterable[str] = ()) -> Labels:
        """`settings`: a mapping, or an object of attributes such as argparse's; nested ones get dotted names.

        ValueError for what is too long or too many, and for tags of several words.
        """
        if settings is not None and not isinstance(settings, Mapping) and not hasattr(settings, "__dict__"):
            raise ValueError(
                f"settings={settings!r:.60} is {kind_of(settings)}: give a mapping, {{'lr': 3e-3}}, or an "
                f"object of attributes such as argparse's"
            )
        given = {} if settings is None else settings if isinstance(settings, Mapping) else vars(settings)
        kept = {str(name): _plain(value) for name, value in flat(given).items()}
        words = list(dict.fromkeys((tags,) if isinstance(tags, str) else tags))
        if len(kept) > MOST_SETTINGS or any(len(name) > LONGEST_NAME for name in kept):
            raise ValueError(
                f"settings: {len(kept)} of them; at most {MOST_SETTINGS} are kept, with names of at most "
                f"{LONGEST_NAME} characters"
            )
        if len(words) > MOST_TAGS or any(len(tag) > LONGEST_TAG or len(tag.split()) != 1 for tag in words):
            raise ValueError(
                f"tags={words!r:.200}: a tag is one word of at most {LONGEST_TAG} characters, and a run has at most "
                f"{MOST_TAGS}"
            )
        if len(note) > LONGEST_NOTE:
            raise ValueError(f"note: it has {len(note):,} characters, and at most {LONGEST_NOTE:,} are kept")
        return cls(({"settings": kept} if kept else {}) | ({"tags": words} if words else {}), note)

    def write_note(self, directory: Path) -> None:
        """Beside a run that has none: what a person wrote since stays."""
        if self.note and not note(run := Run(directory)):
            write_note(run, self.note)


def _plain(value: Any) -> Any:
    """As JSON has it: numbers, texts, truth values, nothing, lists of these; of anything else its text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, list | tuple) and len(value) <= MOST_SETTINGS:
        return [str(one)[:LONGEST_TEXT] if isinstance(one, list | tuple) else _plain(one) for one in value]
    if getattr(value, "ndim", None) == 0 and (item := getattr(value, "item", None)):  # of numpy or torch
        value = item()
    finite = isinstance(value, int | float) and abs(value) < 1e300 and math.isfinite(value)
    return value if finite else str(value)[:LONGEST_TEXT]
