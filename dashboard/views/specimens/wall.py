"""Every specimen and paper at a glance: a head before and after, what it shows in a sentence, and the verdict."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Sequence
from html import escape

import streamlit as st

from dashboard import theme
from dashboard.views.specimens import data as reading
from dashboard.views.specimens.fold import told_for
from dashboard.views.specimens.papers import BADGES, anchor, several
from dashboard.views.specimens.specimen_card import StoryPlace
from tracer.specimens.paper_results import PaperResults
from tracer.specimens.system_figures import Outcome
from tracer.store import Run

STYLE = """<style>
.wall { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(17rem, 45%), 1fr)); gap: .9rem; }
.wall + .wall { margin-top: .9rem; }
.wall a { display: flex; flex-direction: column; gap: .5rem; padding: .9rem 1rem; border-radius: .5rem; min-width: 0;
  border: 1px solid color-mix(in srgb, currentColor 16%, transparent); color: inherit; text-decoration: none; }
.wall a:hover, .wall a:focus-visible { border-color: currentColor; }
.wall div { display: flex; align-items: end; gap: .7rem; min-height: 6.2rem; font-size: .75rem; line-height: 1.5; }
.wall img { display: block; height: 5rem; max-width: 100%; image-rendering: pixelated; }
.wall figure { margin: 0; min-width: 0; } .wall :is(figcaption, i) { font-style: normal; opacity: .72; }
.wall i:last-child { margin-left: auto; } .wall i:not(:last-child) { align-self: center; }
.wall em { font-style: normal; padding: .1rem .35rem; border-radius: .25rem; margin-right: .4rem;
  background: color-mix(in srgb, currentColor 8%, transparent); }
.wall b { font-weight: 600; font-size: .93rem; line-height: 1.35; }
.wall span { margin-top: auto; font-size: .8rem; line-height: 1.5; font-variant-numeric: tabular-nums; }
@media (max-width: 640px) { .wall { gap: .6rem; } .wall a { padding: .7rem; } .wall div { gap: .3rem; }
  .wall i:last-child { display: none; } .wall img { height: 4.2rem; } }
</style>"""


def draw_wall(places: Sequence[StoryPlace], papers: Sequence[PaperResults]) -> None:
    """A card each, which leads to the whole of it below; images only, so that nothing of it needs a script."""
    systems = [_card(place.specimen.name, _heads(place.run), _finding(place), _came(place)) for place in places]
    told = [_card(anchor(paper), "", paper.title, _counted(paper)) for paper in papers]
    walls = [f"<div class='wall'>{''.join(cards)}</div>" for cards in (systems, told) if cards]
    with st.container(key="specimen-wall"):
        st.html(STYLE + "".join(walls))


def _card(name: str, heads: str, finding: str, came: str) -> str:
    return f"<a href='#{escape(name)}'>{heads}<b>{escape(finding)}</b><span>{came}</span></a>"


def _finding(place: StoryPlace) -> str:
    return place.specimen.finding or place.specimen.title


def _heads(run: Run | None) -> str:
    """One head before training and after; nothing of what was not trained."""
    found = None if run is None else reading.most_changed(run, theme.is_dark())
    if found is None:
        return ""
    images = [
        f"<figure><img alt='{found.label} at step {step:,}' "
        f"src='data:image/png;base64,{base64.b64encode(image).decode()}'><figcaption>{step:,}</figcaption></figure>"
        for step, image in found.images
    ]
    return f"<div>{'<i>→</i>'.join(images)}<i>{found.label}</i></div>"


def _came(place: StoryPlace) -> str:
    """The verdict of its own claim, and what came out."""
    own, found = told_for(place.specimen.name, place.readings), place.outcomes.get(place.specimen.name)
    verdict = "" if own is None else f"<em>{BADGES[own.verdict][0]} {own.verdict}</em>"
    came = "exercise" if place.run is None and place.specimen.exercise else "" if found is None else _figures(found)
    return verdict + escape(came)


def _figures(one: Outcome) -> str:
    if not math.isfinite(one.loss):
        return f"{one.status} at step {one.step:,}"
    return f"entropy {one.entropy_start:.2f} → {one.entropy_end:.2f} · loss {one.loss:.2f}"


def _counted(paper: PaperResults) -> str:
    """How many of its claims hold, and how many do not."""
    verdicts = Counter(claim["verdict"] for claim in paper.told["claims"])
    return "".join(f"<em>{BADGES[one][0]} {n} {several(one, n)}</em>" for one, n in verdicts.items())
