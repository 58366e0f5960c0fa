"""The answer in a sentence: which pair of sources speaks most for a cell, and what each of the two is in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tracer.analysis.why import OWN, Pass, carried
from tracer.pictures.scales import parse_head

if TYPE_CHECKING:
    import xarray as xr

Side = Literal["query", "key"]


@dataclass(frozen=True)
class Reason:
    """The pair of sources that does most for a cell's score; if the score is below that of other keys, most against."""

    query_source: str
    key_source: str
    query_side: str
    """In words: "this token"."""
    key_side: str
    """In words: "L0H1 wrote the token before"."""
    above: float
    """What the pair adds to the score, less its mean over the other keys that the query sees."""
    total: float
    """The same of all pairs together."""
    share: float
    """Of all that pairs of this sign add, what this pair adds."""

    @property
    def sentence(self) -> str:
        """Why, in one sentence."""
        if not self.share:
            return "Nothing speaks for or against this key: the query sees no other, or they all score the same."
        most = f"The strongest reason {'for' if self.total > 0 else 'against'} this key"
        of = f"{_signed(self.above)} of the {_signed(self.total)} that set its score apart from the mean of other keys"
        way, other = ("for", "against") if self.total > 0 else ("against", "for")
        share = f"Before what speaks {other} it is taken off, this is {self.share:.0%} of what speaks {way} it"
        return f"{most}: query side “{self.query_side}”, key side “{self.key_side}”, {of}. {share}."

    @property
    def brief(self) -> str:
        """The same where there is little room, without its share."""
        if not self.share:
            return "Nothing speaks for or against this key."
        beside = "lead over" if self.total > 0 else "lag behind"
        ends = f"Together {_signed(self.above)} of its {beside} other keys ({_signed(self.total)})."
        return f"Key: {self.key_side}. Query: {self.query_side}. {ends}"


def reason(found: Pass, cell: xr.DataArray) -> Reason:
    """Of `tracer.analysis.why.cell` of a pass."""
    above = cell["above"].to_numpy()
    total = float(above.sum())
    speaking = above * (1 if total > 0 else -1)
    i, j = np.unravel_index(int(speaking.argmax()), above.shape)
    share = float(speaking[i, j] / max(speaking.clip(0).sum(), 1e-30))
    sources = str(cell["query_source"].values[i]), str(cell["key_source"].values[j])
    words = in_words(found, cell, "query", sources[0]), in_words(found, cell, "key", sources[1])
    return Reason(*sources, *words, float(above[i, j]), total, share)


def in_words(found: Pass, cell: xr.DataArray, side: Side, source: str) -> str:
    """What a source is, seen from where it was written: "L0H1 wrote the token before"."""
    if source in PLAIN:
        return PLAIN[source]
    if not source.startswith("L"):
        return (
            f"what {source} wrote here"
            if source.startswith("MLP")
            else f"the output bias of layer {source.removeprefix('bias ')}"
        )
    a = cell.attrs
    at = a["query"] if side == "query" else a["key"]
    into: Literal["q", "k"] = "q" if side == "query" else "k"
    place, parts = carried(found, parse_head(source), a["layer"], a["head"], a["query"], a["key"], into)
    most = max(parts, key=lambda name: parts[name] * np.sign(sum(parts.values())))
    where = _where(at, place)
    if most == "token":
        return f"{source} wrote {where}"
    if most == "position":
        return f"{source} wrote the position of {where}"
    return f"{source} wrote {where if most == OWN else f'what {most} had written at {where}'}"


PLAIN = {"token": "this token", "position": "this position", OWN: "the head's own biases"}


def _where(at: int, place: int) -> str:
    """The token of a position as seen from another."""
    if place == at:
        return "this token"
    if place == at - 1:
        return "the token before"
    return "the first token" if place == 0 else f"the token {at - place} back"


def _signed(value: float) -> str:
    return f"{value:+.2g}".replace("-", "−")
