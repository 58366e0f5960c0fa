"""What a page says, as text, and what it drew with a library."""

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
    return [
        body.split("alt='")[1].split("'")[0] for e in app.get("html") if "class='spark'><img" in (body := e.proto.body)
    ]


def written(app: AppTest) -> str:
    kinds = (app.text, app.caption, app.markdown, app.info, app.warning, app.header, app.subheader, app.code)
    return "\n".join(str(one.value) for kind in kinds for one in kind)


def captions(app: AppTest) -> str:
    return "\n".join(caption.value for caption in app.caption)


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]
