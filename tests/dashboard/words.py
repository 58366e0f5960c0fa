"""What a page says, as text, and what it drew with a library."""

import re
from typing import Any

from streamlit.testing.v1 import AppTest

from dashboard.shared.mount import DRAWN


def shown(app: AppTest, key: str) -> Any:
    """The figure, or the columns of the table, of this key."""
    return app.session_state[DRAWN][key][1]


def was_drawn(app: AppTest) -> set[str]:
    """The keys of all that this session drew."""
    return set(app.session_state[DRAWN])


def sparks(app: AppTest) -> list[str]:
    """What each small line is called, with its ends."""
    drawn = r"<div class='spark'><img src='[^']*' height='\d+' alt='([^']*)'"
    return [said for e in app.get("html") for said in re.findall(drawn, e.proto.body)]


def written(app: AppTest) -> str:
    kinds = (app.text, app.caption, app.markdown, app.info, app.warning, app.header, app.subheader, app.code)
    return "\n".join(str(one.value) for kind in kinds for one in kind)


def explained(app: AppTest) -> str:
    """How a tile is read."""
    return next(one for one in app.header if one.value == "All heads on this prompt").proto.help


def captions(app: AppTest) -> str:
    return "\n".join(caption.value for caption in app.caption)


def facts(app: AppTest) -> list[str]:
    """Of Training, what the line of each run says."""
    said = [caption.value for caption in app.caption if " · " in caption.value]
    return [one for one in said if "loss " in one.lower() or one.startswith("Perplexity ")]


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def answer(app: AppTest) -> list[float]:
    """The losses in the answer of Ablate: before, and after where heads are off."""
    (said,) = (one.value for one in app.markdown if "the loss on" in one.value)
    return [float(number) for number in re.findall(r"(?:from|to|is) (\d+\.\d+)", said)]


def strip(app: AppTest) -> str:
    """On Ablate, the table of losses and their changes."""
    (table,) = (e.proto.body for e in app.get("html") if 'class="strip"' in e.proto.body)
    return table


def changes(app: AppTest) -> list[float]:
    """On Ablate, the change in loss on each probe, with what was chosen in place of the heads."""
    said = re.findall(r'class="chosen">.*?<td>(.*?) <small>', strip(app))
    return [float(number.replace("−", "-")) for number in said]
