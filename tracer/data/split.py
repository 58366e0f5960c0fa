"""Which text is for training and which is held out: decided by the text alone, so it never changes between runs."""

from __future__ import annotations

import hashlib


def digest(document: str) -> bytes:
    """sha256 of a document."""
    return hashlib.sha256(document.encode()).digest()


def split(documents: list[str], share: float) -> tuple[list[str], list[str]]:
    """(training, held out): whole documents in the order of their sha256 until `share` of the text is held out.

    Copies of a document count once. Where documents are too few or too long for that, the last `share` of each is
    held out instead.
    """
    unique = {digest(document): document for document in documents}
    budget = share * sum(map(len, unique.values()))
    chosen: set[bytes] = set()
    used = 0
    for name in sorted(unique):
        if used >= 0.95 * budget:
            break
        if used + len(unique[name]) <= budget:
            chosen.add(name)
            used += len(unique[name])
    if used >= budget / 2:
        held_out = [document for name, document in unique.items() if name in chosen]
        return [document for name, document in unique.items() if name not in chosen], held_out
    cuts = [(document, _line_start(document, share)) for document in unique.values()]
    return [d[:cut] for d, cut in cuts if cut > 0], [d[cut:] for d, cut in cuts if cut < len(d)]


def _line_start(document: str, share: float) -> int:
    """The start of the line in which the last `share` of a document begins, or that very place."""
    place = int(len(document) * (1 - share))
    newline = document.rfind("\n", 0, place)
    return newline + 1 if newline >= place / 2 else place
