"""A real server is killed while trainings wait: the next one says which, begins none by itself, and starts them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.WidgetStates_pb2 import WidgetState

from tests.browsing import ROOT, served, server_of
from tests.person import Person, Seen, ids
from tests.waiting import wait

APP = ROOT / "dashboard/app.py"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, whose trainings end with the test."""
    yield tmp_path
    for one in trainings(tmp_path):
        one.kill()


def trainings(folder: Path) -> list[psutil.Process]:
    """Those that were started here, whether their server lives or not."""
    found = []
    for one in psutil.process_iter(["cmdline", "cwd"]):
        if one.info["cwd"] == str(folder) and "--run" in (one.info["cmdline"] or []):
            found.append(one)
    return found


def named(folder: Path) -> list[str]:
    return sorted(one.info["cmdline"][one.info["cmdline"].index("--run") + 1] for one in trainings(folder))


def words(seen: Seen) -> str:
    return " ".join(str(Delta.FromString(bits).new_element) for bits in seen.values())


def press(person: Person, label: str) -> Seen:
    before, _ = person.visit("runs", "")
    form = [
        WidgetState(id=ids(before, "selectbox")["Preset"], string_value="demo"),
        WidgetState(id=ids(before, "text_input")["Name"], string_value=""),
        WidgetState(id=ids(before, "button")[label], trigger_value=True),
    ]
    seen, raised = person.visit("runs", "", *form)
    assert raised == []
    return seen


def kill(url: str) -> None:
    server = server_of(url)
    os.kill(server.pid, signal.SIGKILL)
    server.wait()


def lost(seen: Seen) -> list[str]:
    """Names of what was lost, in the order of the page."""
    return re.findall(r"tracer train demo --run checkpoints/(\S+)", words(seen))


def test_a_killed_server_loses_nothing_that_waited(folder: Path) -> None:
    one_at_a_time = {"MANYEYES_PROCESSES": "1"}
    with served(APP, folder, **one_at_a_time) as url, Person(url) as person:
        for _ in range(4):
            seen = press(person, "Train")
        assert words(seen).count("It begins when one of the 1 processes at work here ends") == 3
        wait(lambda: named(folder) == ["checkpoints/demo-0"])
        with served(APP, folder, **one_at_a_time) as beside, Person(beside) as other:
            seen, raised = other.visit("runs", "")
            assert raised == [] and lost(seen) == ["demo-0-2", "demo-0-3", "demo-0-4"]
            assert words(seen).count("It waits in another dashboard.") == 3 and "Start" not in ids(seen, "button")
            press(other, "Remove")  # the last of them
            seen, _ = person.visit("runs", "")
            assert words(seen).count("It begins when one of the 1 processes at work here ends") == 2
            kill(url)
            seen, raised = other.visit("runs", "")
            assert raised == [] and lost(seen) == ["demo-0-2", "demo-0-3"]
            assert words(seen).count("The dashboard in which it waited has ended.") == 2
    assert named(folder) == ["checkpoints/demo-0"]  # what had begun goes on, and nothing else has begun
    with served(APP, folder, **one_at_a_time) as url, Person(url) as person:
        seen = press(person, "Start all in order")
        assert lost(seen) == [] and "2 waited" not in words(seen)
        wait(lambda: named(folder) == ["checkpoints/demo-0", "checkpoints/demo-0-2"])
        for one in trainings(folder):
            one.kill()
        wait(lambda: named(folder) == ["checkpoints/demo-0-3"])
        wait(lambda: os.listdir(folder / "checkpoints" / ".waiting") == [])
        kill(url)
    with served(APP, folder, **one_at_a_time) as url, Person(url) as person:
        assert lost(person.visit("runs", "")[0]) == []
