"""A claim of the tutorials as it stands here: whether it holds, and by what numbers."""

from __future__ import annotations

import re

from dashboard import theme
from tracer.specimens.claims import Judgement
from tracer.specimens.systems import SPECIMENS

VERDICTS = {True: ("✓", "holds", "green"), False: ("✕", "does not hold", "red"), None: ("○", "open", "gray")}
CLOSE = ("≈", "too close to tell", "gray")


SLUGS = re.compile(rf"\b({'|'.join(sorted(SPECIMENS, key=len, reverse=True))})\b(?!-)")


def titled(text: str) -> str:
    """With the titles that stand on the cards, instead of the names of presets."""
    return SLUGS.sub(lambda found: f"“{SPECIMENS[found[0]].title}”", text)


def claimed(one: Judgement) -> str:
    """The claim with its verdict and its evidence, as Markdown on one line."""
    icon, word, colour = CLOSE if one.tested and one.holds is None else VERDICTS[one.holds]
    return f":{colour}-badge[{icon} {word}] &nbsp;{theme.sentence(titled(f'{one.claim.text}: {one.evidence}'))}"
