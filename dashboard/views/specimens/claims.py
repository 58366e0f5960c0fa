"""A claim of the tutorials as it stands here: whether it holds, and by what numbers."""

from __future__ import annotations

import re

from dashboard import theme
from dashboard.views.specimens.papers import badge
from tracer.specimens.paper_verdicts import ClaimAnswer, told_ends
from tracer.specimens.tutorials import SPECIMENS

SLUGS = re.compile(rf"\b({'|'.join(sorted(SPECIMENS, key=len, reverse=True))})\b(?!-)")


def titled(text: str) -> str:
    """With the titles that stand on the cards, instead of the names of presets."""
    return SLUGS.sub(lambda found: f"“{SPECIMENS[found[0]].title}”", text)


def evidence(one: ClaimAnswer) -> str:
    """The figure, and what it must be or what seeds alone make; why there is none."""
    if one.mean is None:
        return one.why
    claim = one.claim
    against = f"must be {told_ends(claim.within)}" if claim.noise is None else one.why
    return f"{one.mean[0]:.3f} {claim.unit}, {against}"


def claimed(one: ClaimAnswer) -> str:
    """The claim with its verdict and its evidence, as Markdown on one line."""
    return f"{badge(one.verdict)} &nbsp;{theme.sentence(titled(f'{one.claim.text}: {evidence(one)}'))}"
