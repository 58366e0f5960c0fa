"""What a page says, as text."""

from streamlit.testing.v1 import AppTest


def captions(app: AppTest) -> str:
    return "\n".join(caption.value for caption in app.caption)


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]
