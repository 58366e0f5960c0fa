"""What is kept free before pictures and widgets are there: of keys that exist, in rules that a browser reads."""

import re
from pathlib import Path

import pytest

from dashboard import rooms

FOLDER = Path(rooms.__file__).parent
CODE = "\n".join(path.read_text("utf-8") for path in FOLDER.rglob("*.py") if path.name != "rooms.py")


@pytest.mark.parametrize("key", rooms.ROOMS)
def test_a_room_is_of_a_picture(key):
    stem = key.split("_")[0]
    assert f'"{key}"' in CODE or f'f"{stem}_{{' in CODE  # the rest of a few is a name


@pytest.mark.parametrize("name", [name for names in rooms.WIDGETS.values() for name in names])
def test_a_room_is_of_a_widget(name):
    assert f"{name}_box" in CODE


def test_the_rules():
    wide, narrow = rooms.css().split("@media (max-width: 640px)")
    assert ".st-key-me-atlas { --room: 414px; }" in wide and ".st-key-me-atlas { --room: 320px; }" in narrow
    assert re.search(r":is\([^)]*\.st-key-step_box[^)]*\) \{ --skeleton: 64px; \}", wide)
