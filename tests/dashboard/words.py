"""What a page says, as text."""

from streamlit.testing.v1 import AppTest


def written(app: AppTest) -> str:
    kinds = (app.text, app.caption, app.markdown, app.info, app.warning, app.header, app.subheader, app.code)
    return "\n".join(str(one.value) for kind in kinds for one in kind)


def captions(app: AppTest) -> str:
    return "\n".join(caption.value for caption in app.caption)


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]
