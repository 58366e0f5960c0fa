"""A run's tokenizer.json, which may be a stranger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.files.disk import checksum

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_ADDED = 20_000
"""Added tokens: each is searched for by itself, which took gigabytes for a million of them."""


def read_tokenizer(content: bytes, digest: str | None) -> Tokenizer:
    """ValueError where it is none, or not the one that was written."""
    from pydantic_core import from_json
    from tokenizers import Tokenizer

    from tracer.data.tokenizer import refuse_growth

    if digest is not None and checksum(content) != digest:
        raise ValueError("its checksum is not the one in run.json")
    told = from_json(content)
    added = told.get("added_tokens") or [] if isinstance(told, dict) else None
    if not isinstance(added, list):
        raise ValueError("it is no tokenizer")
    if len(added) > MOST_ADDED:
        raise ValueError(f"it adds {len(added):,} tokens, more than the {MOST_ADDED:,} that are read")
    refuse_growth(told)
    try:
        found = Tokenizer.from_buffer(content)
    except BaseException as error:  # tokenizers raises nothing narrower, and panics are no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise ValueError(str(error)[:300]) from error
    found.no_padding()  # to 2e11 tokens, say, which ends the process
    found.no_truncation()  # which would cut a prompt in silence
    return found
