"""The head finder's language: a line such as "induction > 0.5 and layer 1" and the heads that it names.

    plain = names | measure comparison number | ("top" | "bottom") count measure
    names = name { [","] name }           any of them: L1H2, L0, layer 1

Joined and compared as `tracer.asked_line` says.

The top and bottom of the induction score are by what it is above its control, where that is known, and the top names
none whose score is not above it: what positions alone give a head makes it no induction head.
A measure is its name, its label, its abbreviation, or what only one of them begins with. Case does not matter.
Source: ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from tracer.asked_line import COMPARISONS, SIGN, LineReader
from tracer.measures import MEASURES, Measure
from tracer.measures.aliases import Head
from tracer.measures.strongest import above_control
from tracer.pictures.scales import parse_head

Line = Mapping[str, np.ndarray]
"""Every measure of the heads now, [layer head]; nan where it is unknown."""

HELP = (
    "Heads and layers by name: `L1H2`, `L0H1 L1H2`, `layer 1`.  \n"
    "By a measure: `induction > 0.5`, `entropy <= 1.2`, `prev >= .4`.  \n"
    "The strongest: `top 3 induction`, `bottom 2 entropy`.  \n"
    "Join them: `layer 1 and not induction > 0.5`, `top 3 prev or L1H2`."
)
WORDS = ("and", "or", "not", "top", "bottom", "layer")
_TOKEN = re.compile(
    r"(?P<head>l\s*\d+\s*[h.]\s*\d+)(?!\w)|(?P<layer>l\s*\d+)(?!\w)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?!\w)"
    r"|(?P<compare>" + SIGN + r")|(?P<join>[,&])|(?P<word>[a-z_][\w/-]*)|(?P<other>\S)",
)


@dataclass(frozen=True)
class HeadMatches:
    """What a line names."""

    heads: tuple[Head, ...]
    """Those that fit, the strongest first where a measure was asked for."""
    measure: str | None
    """The first measure of the line."""
    nearest: Head | None
    """Where none fits, the head that misses by least; None where nothing is near."""
    note: str = ""
    """Why there may be fewer than were asked for."""


@dataclass(frozen=True)
class _Set:
    """Which heads fit, and by how much each of the others misses (0 where it fits), [layer head]."""

    fits: np.ndarray
    miss: np.ndarray

    def __and__(self, other: _Set) -> _Set:
        return _Set(self.fits & other.fits, np.maximum(self.miss, other.miss))

    def __or__(self, other: _Set) -> _Set:
        return _Set(self.fits | other.fits, np.minimum(self.miss, other.miss))

    def __invert__(self) -> _Set:
        return _certain(~self.fits)


def find(line: str, values: Line, there: np.ndarray, known: Mapping[str, Measure] = MEASURES) -> HeadMatches:
    """The heads that a line names; ValueError says which word is not understood. `known`: what each measure is."""
    reader = _HeadsAsked(line, values, there, known)
    found = reader.line()
    fits = found.fits & there
    order = np.argsort(-reader.rank, axis=None, kind="stable")  # nan, the unknown, comes last
    heads = [(int(i) // there.shape[1], int(i) % there.shape[1]) for i in order if fits.flat[i]]
    miss = np.where(there & np.isfinite(found.miss), found.miss, np.inf)
    nearest = None
    if not heads and np.isfinite(miss).any():
        layer, head = np.unravel_index(int(miss.argmin()), miss.shape)
        nearest = int(layer), int(head)
    return HeadMatches(tuple(heads), reader.measure, nearest, reader.note)


class _HeadsAsked(LineReader[_Set]):
    """Of heads."""

    def __init__(self, line: str, values: Line, there: np.ndarray, known: Mapping[str, Measure]) -> None:
        text = line.casefold().replace("−", "-").replace("≥", ">=").replace("≤", "<=")
        super().__init__([(str(m.lastgroup), m[0]) for m in _TOKEN.finditer(text)])
        self.values, self.there = values, there
        self.known = {name: known[name] for name in values}
        self.measure: str | None = None
        self.note = ""
        self.rank = np.zeros(there.shape)

    def plain(self) -> _Set:
        kind, text = self.next
        if kind in ("head", "layer") or text == "layer":
            return self.names()
        if text in ("top", "bottom"):
            return self.extreme()
        if kind == "word":
            return self.comparison()
        raise ValueError(f"{self.shown()} is not expected here. Write something like: induction > 0.5 or L1H2")

    def names(self) -> _Set:
        fits = np.zeros_like(self.there)
        while True:
            kind, text = self.next
            if kind == "head":
                layer, head = parse_head(text)
                self.exists(layer, head)
                fits[layer, head] = True
            elif kind == "layer" or text == "layer":
                if text == "layer":
                    self.at += 1
                    kind, text = self.next
                    if kind != "number" or not text.isdigit():
                        raise ValueError(f"{self.shown()} is not a layer: write layer 0 to {len(fits) - 1}")
                layer = int(text.lstrip("l "))
                self.exists(layer)
                fits[layer] = True
            self.at += 1
            comma = self.next[1] == "," and self.tokens[self.at + 1 : self.at + 2]
            kind, text = comma[0] if comma else self.next
            if kind not in ("head", "layer") and text != "layer":
                return _certain(fits & self.there)
            self.at += bool(comma)

    def exists(self, layer: int, head: int | None = None) -> None:
        n_layers, n_heads = self.there.shape
        name = f"L{layer}" if head is None else f"L{layer}H{head}"
        if layer >= n_layers or (head is not None and (head >= n_heads or not self.there[layer, head])):
            heads = f"H0 to H{n_heads - 1}" if head is None or layer >= n_layers else _heads(self.there[layer])
            raise ValueError(f"There is no {name}: layers are L0 to L{n_layers - 1}, heads {heads}.")

    def comparison(self) -> _Set:
        name = self.named()
        kind, sign = self.next
        if kind != "compare":
            raise ValueError(f"What about {self.known[name].label.lower()}? Compare it, as in: {_short(name)} > 0.5")
        self.at += 1
        kind, text = self.next
        if kind != "number":
            raise ValueError(f"{self.shown()} is not a number: {_short(name)} {sign} needs one after it")
        self.at += 1
        given, limit, way = self.values[name], float(text), -1 if sign[0] == "<" else 1
        self.ranked(name, way)
        fits = COMPARISONS[sign](given, limit) & ~np.isnan(given)  # nan fits nothing
        finite = given[np.isfinite(given)]
        span = float(np.ptp(finite)) if finite.size and np.ptp(finite) else 1.0
        miss = np.where(fits, 0.0, np.abs(given - limit) / span)
        return _Set(fits, np.where(np.isfinite(miss), miss, np.inf))

    def extreme(self) -> _Set:
        end = self.next[1]
        way = 1 if end == "top" else -1
        self.at += 1
        kind, text = self.next
        if kind != "number" or not text.isdigit() or not int(text):
            raise ValueError(f"{self.shown()} is not a number of heads: write something like top 3 induction")
        self.at += 1
        if self.next[0] != "word" or self.next[1] in WORDS:
            raise ValueError(f"{end} {text} of what? {_offered(self.values)}")
        name = self.named()
        self.ranked(name, way)
        given = np.where(self.there, way * self.ranks(name), np.nan)
        if name == "induction" and way > 0 and "induction_control" in self.values:
            given[~(given > 0)] = np.nan
            if not np.isfinite(given).any():
                self.note = "None stands out: no head's induction score is above its control."
        order = [int(i) for i in np.argsort(-given, axis=None, kind="stable") if np.isfinite(given.flat[i])]
        fits = np.zeros_like(self.there)
        fits.flat[order[: int(text)]] = True
        return _certain(fits)

    def ranked(self, name: str, way: int) -> None:
        """The first measure of a line says in which order heads are named."""
        if self.measure is None:
            by = self.ranks(name)
            self.measure, self.rank = name, np.where(np.isnan(by), -np.inf, way * by)

    def ranks(self, name: str) -> np.ndarray:
        """By what the heads are ranked: the measure, of the induction score what is above its control."""
        values = self.values[name]
        return above_control(values, self.values.get("induction_control")) if name == "induction" else values

    def named(self) -> str:
        """The measure that the next words name."""
        words = []
        while self.next[0] == "word" and self.next[1] not in WORDS:
            words.append(self.next[1])
            self.at += 1
        if not words:
            raise ValueError(f"{self.shown()} is not a measure. {_offered(self.values)}")
        return _measure(" ".join(words), self.known)


def _certain(fits: np.ndarray) -> _Set:
    """A set that no head is near to: it belongs or not."""
    return _Set(fits, np.where(fits, 0.0, np.inf))


def _measure(text: str, offered: Mapping[str, Measure]) -> str:
    """The measure of that name, or the only one whose name begins so."""
    wanted = _plain(text)
    names = {name: [_plain(n) for n in (name, one.label, one.short)] for name, one in offered.items()}
    for fit in (str.__eq__, str.startswith):
        found = [name for name, known in names.items() if any(fit(one, wanted) for one in known)]
        if len(found) == 1:
            return found[0]
        if found:
            raise ValueError(f"“{text}” could be {' or '.join(map(_said, found))}: write more of it")
    near = get_close_matches(wanted, [one for known in names.values() for one in known], 1)
    meant = [name for name, known in names.items() if near and near[0] in known]
    hint = f" Did you mean {_said(meant[0])}?" if meant else ""
    raise ValueError(f"“{text}” is not a measure.{hint} {_offered(list(offered))}")


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text.casefold()).strip()


def _said(name: str) -> str:
    return name.replace("_", " ")


def _short(name: str) -> str:
    return _said(name).split()[0]


def _offered(names: Sequence[str] | Line) -> str:
    return f"Measures: {', '.join(map(_said, names))}."


def _heads(row: np.ndarray) -> str:
    return f"H0 to H{int(np.flatnonzero(row).max(initial=0))}"
