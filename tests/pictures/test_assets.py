"""The parts as a page of the dashboard takes them: all scripts and styles at once, then an element for each."""

import importlib
import inspect
import re

import pytest

from tracer.pictures import assets

NAMES = sorted(assets.folders())


def test_a_folder_with_a_script_of_its_name_is_a_part() -> None:
    assert {"atlas", "pattern", "cue", "saver"} <= set(NAMES)


OURS = [name for name, folder in assets.folders().items() if folder.parent == assets.HERE]


def test_there_are_pictures() -> None:
    assert {"atlas", "pattern", "token_view"} <= set(OURS)


@pytest.mark.parametrize("name", OURS)
def test_a_folder_says_all_of_its_picture(name: str) -> None:
    module = importlib.import_module(f"tracer.pictures.{name}")
    assert module.picture.__annotations__["return"] == "Picture"
    assert f'Picture("{name}", ' in inspect.getsource(module)


def test_all_parts_hold_every_part_once() -> None:
    code = assets.all_parts()
    assert re.findall(r'^"(\w+)": \(\(\) => \{ let entry;$', code, re.M) == NAMES
    assert code.count("const PALETTES =") == code.count("async function live(") == code.count("export default") == 1
    for name in NAMES:
        assert assets.entry(name) in code


@pytest.mark.parametrize("name", NAMES)
def test_an_element_says_its_name_and_nothing_else(name: str) -> None:
    one, other = assets.element(name), assets.element("atlas")
    assert one.html == f'<div class="part {name}"></div>' and (one.css, one.js) == ("", other.js)
    assert len(one.js) < 200 and "\n" in one.js  # Streamlit takes a single line for a path


def test_a_part_alone_brings_what_it_needs() -> None:
    alone = assets.source("atlas")
    assert alone.js == assets.common() + assets.script("atlas")
    assert alone.css == assets.text("shared.css") + assets.style("atlas")
    assert assets.style("pulse") == ""
