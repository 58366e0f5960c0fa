"""The head atlas: layers x heads, one thumbnail a head, coloured by a measure; hover names, click or arrows select, and
a switch on each head takes it out of the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tracer.measures.aliases import Head
from tracer.pictures import payload
from tracer.pictures.picture import Picture, as_head
from tracer.pictures.scales import Scale

WIDTH = 530
"""Pixels of a row of heads where two pictures stand side by side."""


Scored = Literal["", "anew", "recorded"]
LABELLED = 72
"""Pixels of a tile from which on it has a label, a role and a switch of its own."""
FOOT, PAIRED = 18, 126
"""Pixels of the line below a pattern that says the head's role, and of a tile from which on its number stands there."""
SLIM = {18: 120, 9: 60}
"""Pixels of a slim atlas of at most so many heads, on a wide page, and below of more."""
SLIM_MANY = 140


class Roles(NamedTuple):
    """By what each head is called."""

    labels: Sequence[str]
    codes: ArrayLike
    """[layer head]: the place of a label, from 1 on; 0 none, 254 not known, 255 nothing is said."""
    lost: ArrayLike
    """[layer head]: the place of the label that a head had before and has no more; 0 none."""
    details: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """By a label, which measure says more of a head, and the word after its number."""
    measures: Mapping[str, str] = MappingProxyType({})
    """By a label, which measure is the role's own score; empty where no such score was recorded."""


class Pick(NamedTuple):
    """What is chosen in an atlas with switches."""

    head: Head | None
    off: tuple[Head, ...]
    """By layer, then by head."""


def picture(
    blob: bytes | None,
    *,
    selected: Head | None = None,
    measure: str | None = None,
    scales: Mapping[str, Scale] | None = None,
    max_cell: int = 176,
    order: str = "index",
    lit: Collection[Head] | None = None,
    off: Collection[Head] = (),
    switches: bool = False,
    roles: Roles | None = None,
    scored: Scored = "",
    slim: bool = False,
) -> Picture:
    """`pack(...)`, drawn; picks a head, or with `switches` a `Pick`. Heads that are `off` are hatched.

    `measure` names the one that colours the heads (the first by default); `scales` says how each is printed. With
    `order` "measure" the strongest head of each layer comes first. Heads that are not in `lit` are dimmed. With
    `roles`, which stand below patterns that are large enough, the number of a head is its role's. `scored`: with heads
    off, these are computed anew, with what a head lost, or as recorded with all heads on, and muted. `slim`: heads one
    after the other, in a row or two of cards; of many heads the patterns alone, and in words what is known of the
    selected one.
    """
    cue: dict[str, Any] = {
        "measure": measure,
        "scales": {name: scale.payload() for name, scale in (scales or {}).items()},
        "max_cell": max_cell,
        "order": order,
        "lit": sorted(lit) if lit is not None else None,
    }
    layers, heads = payload.header(blob)["arrays"][0]["shape"][:2] if blob else (0, 1)
    cell = min(max_cell, WIDTH // heads)
    foot = 0 if roles is None or cell < LABELLED else FOOT + 14 * (cell < PAIRED)
    height = 90 + layers * (cell + 32 + foot)
    if slim:
        cue["slim"] = True
        height = min((high for most, high in SLIM.items() if layers * heads <= most), default=SLIM_MANY)
    if scored:
        cue["scored"] = scored
    if roles is not None:
        codes = {"codes": np.asarray(roles.codes).tolist(), "lost": np.asarray(roles.lost).tolist()}
        details = {label: list(of) for label, of in roles.details.items()}
        cue["roles"] = {"labels": list(roles.labels), "details": details, "measures": dict(roles.measures), **codes}
    gone = [list(head) for head in sorted(off)]
    if not switches:
        return Picture("atlas", cue | ({"off": gone} if gone else {}), blob, selected, as_head, height)
    return Picture("atlas", cue, blob, {"head": selected and list(selected), "off": gone}, _as_pick, height)


def without_switches(cue: Mapping[str, Any]) -> Mapping[str, Any]:
    """The cue of a file, which has no model: heads that are off stay hatched, and nothing can be switched."""
    value = cue.get("value")
    return cue if not isinstance(value, dict) else {**cue, "value": value["head"], "off": value["off"]}


def _as_pick(picked: Any) -> Pick:
    head = picked["head"]
    return Pick(None if head is None else as_head(head), tuple(sorted(map(as_head, picked["off"]))))


def pack(patterns: ArrayLike, measures: Mapping[str, ArrayLike], *, pool_to: int = 96) -> bytes:
    """Every head's causal pattern [layer head query_pos key_pos] as a thumbnail, with its measures [layer head]."""
    p = np.asarray(patterns)
    if p.ndim != 4 or p.shape[2] != p.shape[3]:
        raise ValueError(f"patterns must be [layer head query_pos key_pos], got shape {p.shape}")
    thumbs, _ = payload.max_pool(p, pool_to)
    return pack_thumbs(thumbs, measures, n=p.shape[2])


def pack_thumbs(
    thumbs: ArrayLike,
    measures: Mapping[str, ArrayLike],
    *,
    n: int | tuple[int, int],
    causal: bool | Sequence[bool] = True,
    layer_names: Sequence[str] | None = None,
) -> bytes:
    """pack() of patterns of n x n tokens (or queries x keys) that are max-pooled already, [layer head rows cols].

    A head whose thumbnail is all NaN does not exist: layers may differ in their number of heads.
    """
    t = np.asarray(thumbs, np.float32)
    if t.ndim != 4:
        raise ValueError(f"thumbs must be [layer head rows cols], got shape {t.shape}")
    masked = [causal] * len(t) if isinstance(causal, bool) else list(causal)
    for name, values in measures.items():
        if np.shape(values) != t.shape[:2]:
            raise ValueError(f"measure {name!r} has shape {np.shape(values)}, there are {t.shape[:2]} heads")
    for name, given in (("causal", masked), ("layer_names", layer_names)):
        if given is not None and len(given) != len(t):
            raise ValueError(f"{name} has {len(given)} entries, there are {len(t)} layers")
    n_query, n_key = (n, n) if isinstance(n, int) else n
    factors = [-(-n_query // t.shape[2]), -(-n_key // t.shape[3])]
    values = np.array([np.asarray(v, np.float32) for v in measures.values()], np.float32).reshape(-1, *t.shape[:2])
    header = {"measures": list(measures), "causal": [bool(c) for c in masked], "factors": factors,
              "layers": [payload.visible(name, 120) for name in layer_names or []]}  # fmt: skip
    there = np.asarray(~np.isnan(t).all(axis=(2, 3)), np.uint8)
    return payload.pack(header, thumbs=payload.quantise_sqrt(t, levels=39), values=values, there=there)
