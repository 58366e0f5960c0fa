"""Every specimen and paper at a glance: a head before and after, what it shows in a sentence, and the verdict."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from html import escape

import streamlit as st

from dashboard import theme
from dashboard.views.specimens import data as reading
from dashboard.views.specimens.fold import told_for
from dashboard.views.specimens.papers import BADGES, anchor
from dashboard.views.specimens.specimen_card import StoryPlace
from dashboard.views.specimens.thumbnail import thumbnail
from tracer.pictures.colours import LINES
from tracer.pictures.montage import montage
from tracer.specimens.paper_results import PaperResults
from tracer.specimens.paper_tables import counted
from tracer.specimens.system_figures import Outcome

STYLE = """<style>
.wall { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(17rem, 45%), 1fr)); gap: .9rem; }
h2.wall-of { font-size: 1rem; font-weight: 600; margin: 0 0 .7rem; padding: 0; }
.wall + .wall-of { margin-top: 1.6rem; }
.wall a { display: flex; flex-direction: column; gap: .5rem; padding: .9rem 1rem; border-radius: .5rem; min-width: 0;
  border: 1px solid color-mix(in srgb, currentColor 16%, transparent); color: inherit; text-decoration: none; }
.wall a:hover, .wall a:focus-visible { border-color: currentColor; }
.wall div { display: flex; align-items: end; gap: .7rem; min-height: 6.2rem; font-size: .75rem; line-height: 1.5; }
.wall img { display: block; height: 5rem; max-width: 100%; image-rendering: pixelated; }
.wall figure { margin: 0; min-width: 0; } .wall :is(figcaption, i) { font-style: normal; opacity: .72; }
.wall i:last-child { margin-left: auto; } .wall i:not(:last-child) { align-self: center; }
.wall em { font-style: normal; padding: .1rem .35rem; border-radius: .25rem; margin-right: .5rem; display: inline-block;
  background: color-mix(in srgb, currentColor 9%, transparent); }
.wall b { font-weight: 600; font-size: .93rem; line-height: 1.35; }
.wall span { margin-top: auto; font-size: .8rem; line-height: 1.5; font-variant-numeric: tabular-nums; }
@media (max-width: 640px) { .wall { gap: .6rem; } .wall a { padding: .7rem; } .wall div { gap: .3rem; }
  .wall i:last-child { display: none; } .wall img { height: 4.2rem; } }
</style>"""
BROKEN = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 60 60'><path d='M1 1V59H59Z' style='fill:none;"
    "stroke:{ink};stroke-width:1.2;stroke-dasharray:3 3'/></svg>"
)
"""Where a run broke before a second pattern was kept."""


def draw_wall(places: Sequence[StoryPlace], papers: Sequence[PaperResults]) -> None:
    """A card each, which leads to the whole of it below; images only, so that nothing of it needs a script."""
    systems = [
        _card(place.specimen.name, _heads(place), place.specimen.finding or place.specimen.title, _came(place))
        for place in places
    ]
    told = [
        _card(anchor(paper), _curves(paper), paper.title, "".join(_chip(*one) for one in counted(paper.told)))
        for paper in papers
    ]
    walls = [
        f"<h2 class='wall-of'>{title}</h2><div class='wall'>{''.join(cards)}</div>"
        for title, cards in (("Tutorials", systems), ("Papers", told)) if cards
    ]  # fmt: skip
    with st.container(key="specimen-wall"):
        st.html(STYLE + "".join(walls))


def _card(name: str, heads: str, finding: str, came: str) -> str:
    return f"<a href='#{escape(name)}'>{heads}<b>{escape(finding)}</b><span>{came}</span></a>"


def _heads(place: StoryPlace) -> str:
    """One head before training and after, or two heads of an exercise; nothing of what can be shown by neither."""
    run = place.run
    if run is None:
        return _untrained(place.specimen.name) if place.specimen.exercise else ""
    found = reading.most_changed(run, theme.is_dark())
    if found is None:
        return ""
    images = [_image("png", image, f"{found.label} at step {step:,}", f"{step:,}") for step, image in found.images]
    if len(images) == 1 and run.status == "diverged":
        images.append(_image("svg+xml", BROKEN.format(ink=theme.ink().muted).encode(), "diverged", "diverged"))
    return f"<div>{'<i>→</i>'.join(images)}<i>{found.label}</i></div>"


def _untrained(name: str) -> str:
    """The first two heads on the exercise's input."""
    patterns, images = reading.ran(name).patterns, []
    for head in range(min(2, len(patterns))):
        label = theme.head_label(0, head)
        image = montage(patterns[None, head : head + 1], dark=theme.is_dark())
        images.append(_image("png", image, f"{label}, untrained", label))
    return f"<div>{''.join(images)}</div>"


def _curves(paper: PaperResults) -> str:
    """What a paper is known by, in small; nothing of one without a chart."""
    chart = paper.told.get("chart")
    if not chart or not any(x for x, _ in chart["curves"].values()):
        return ""
    image = thumbnail(chart, LINES[theme.mode()], theme.ink().muted)
    return f"<div>{_image('svg+xml', image, escape(chart['text'], quote=True), escape(chart['y']))}</div>"


def _image(kind: str, image: bytes, alt: str, below: str) -> str:
    source = f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
    return f"<figure><img alt='{alt}' src='{source}'><figcaption>{below}</figcaption></figure>"


def verdict_of(place: StoryPlace) -> str | None:
    """What its card says of its own claim, or of the checks of an exercise; None of one that says nothing of either."""
    name = place.specimen.name
    if name in place.outcomes:
        own = told_for(name, place.readings)
        return None if own is None else own.verdict
    return reading.ran(name).came[0] if place.run is None and place.specimen.exercise else None


def _came(place: StoryPlace) -> str:
    """The verdict of its own claim, and the numbers that it is about."""
    name, found, verdict = place.specimen.name, place.outcomes.get(place.specimen.name), verdict_of(place)
    if found is None:
        return "" if verdict is None else _chip(*reading.ran(name).came)
    own = told_for(name, place.readings)
    if own is None or verdict is None:
        return escape(_loss(found))
    others = [place.outcomes[one].loss for one in own.claim.needs if one != name and one in place.outcomes]
    if not math.isfinite(found.loss):
        came = _loss(found)
    elif others:
        came = f"loss {theme.fmt(others[0], 'loss')} → {theme.fmt(found.loss, 'loss')}"
    else:
        came = _entropy(found)
    return _chip(verdict, verdict) + escape(came)


def _entropy(one: Outcome) -> str:
    return f"entropy {theme.fmt(one.entropy_start, 'entropy')} → {theme.fmt(one.entropy_end, 'entropy')}"


def _loss(one: Outcome) -> str:
    """At the end, or how it broke."""
    ended = f"loss {theme.fmt(one.loss, 'loss')}"
    return ended if math.isfinite(one.loss) else f"{one.status} at step {one.step:,}"


def _chip(verdict: str, words: str) -> str:
    icon, colour = BADGES.get(verdict, ("○", "gray"))
    ink = f" style='color:{theme.VERDICT_INKS[colour][theme.mode()]}'" if colour in theme.VERDICT_INKS else ""
    return f"<em{ink}>{icon} {escape(words)}</em>"
