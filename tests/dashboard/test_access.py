"""Who gets in: requests and sockets of a stranger against a real server, here, open to others, and read-only."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from streamlit.testing.v1 import AppTest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from dashboard import access, jobs, loading, work_queue
from tests.browsing import served
from tests.dashboard.words import labels
from tests.tiers import quick
from tests.waiting import wait
from tracer.store import Run, is_trained_by, waiting
from tracer.store.layout import Lock
from tracer.store.waiting import Asked

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
Open = Callable[..., AppTest]


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes


def get(url: str, path: str = "/", **headers: str) -> Answer:
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as response:
            return Answer(response.status, response.headers, response.read())


def opens(url: str, Host: str = "", **headers: str) -> bool:
    """Is a socket to the app accepted?"""
    parts = urlsplit(url)
    line = socket.create_connection((parts.hostname, parts.port))
    try:
        with connect(f"ws://{Host or parts.netloc}/_stcore/stream", sock=line, additional_headers=headers):
            return True
    except InvalidStatus as refused:
        assert refused.response.status_code == 403
        return False
    finally:
        line.close()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`streamlit run dashboard/app.py`, as docs/dashboard.md says."""
    with served(APP, tmp_path_factory.mktemp("here")) as url:
        yield url


@pytest.fixture(scope="module")
def open_to_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The same on all interfaces, and the token: what it prints is no terminal here, so it names a file."""
    folder = tmp_path_factory.mktemp("others")
    with served(APP, folder, "--server.address", "0.0.0.0") as url:
        printed = re.search(r"asks for the token in (\S+)", (folder / "server.txt").read_text())
        assert printed is not None
        yield url, Path(printed[1]).read_text().strip()


def test_it_listens_on_this_machine_only(here: str) -> None:
    port = urlsplit(here).port
    for address, is_open in (("127.0.0.1", True), ("127.0.0.2", False)):  # of all interfaces it would be both
        with socket.socket() as s:
            assert (s.connect_ex((address, port)) == 0) == is_open


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1", 200), ("localhost", 200), ("LOCALHOST", 200), ("[::1]", 200), ("evil.example", 403),
     ("localhost.evil.example", 403), ("127.0.0.1@evil.example", 403), ("", 403)],
)  # fmt: skip
def test_a_name_that_leads_here_is_not_ours(here: str, host: str, status: int) -> None:
    port = urlsplit(here).port
    asked = f"{host}:{port}" if host else ""
    assert get(here, Host=asked).status == status
    if host and "@" not in host:
        assert opens(here, Host=asked) == (status == 200)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://localhost:1", "null", "http://127.0.0.1", "http://["]
)
def test_another_page_gets_no_answer(here: str, origin: str) -> None:
    assert get(here, Origin=origin).status == 403
    assert not opens(here, Origin=origin)


def test_our_page_gets_one(here: str) -> None:
    assert get(here, Origin=here).status == 200 and opens(here, Origin=here)


def test_what_the_browser_is_told(here: str) -> None:
    for path in ("/", "/app/static/inter-latin.woff2", "/_stcore/health"):
        answer = get(here, path)
        assert answer.status == 200 and answer.headers["X-Frame-Options"] == "DENY"
        parts = [part.split() for part in answer.headers["Content-Security-Policy"].split(";")]
        policy = {name: " ".join(values) for name, *values in parts}
        assert policy["frame-ancestors"] == policy["object-src"] == "'none'"
        assert "unsafe" not in policy["script-src"] and "http" not in " ".join(policy.values())


def test_others_are_asked_for_the_token(open_to_others: tuple[str, str]) -> None:
    url, token = open_to_others
    refused = get(url, "/heads?run=a%22b")
    assert refused.status == 401 and b'name="run" value="a&quot;b"' in refused.body
    assert get(url, "/app/static/inter-latin.woff2").status == 401 and not opens(url)
    assert get(url, "/?token=" + token[:-1]).status == 401
    assert get(url, "/_stcore/health").body == b"ok"  # nothing else
    for path in ("/heads", "//evil.example/heads"):
        let_in = get(url, f"{path}?token={token}&run=demo-0")
        assert let_in.status == 303 and let_in.headers["Location"] == "?run=demo-0"
        cookie = let_in.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie
    known = {"Cookie": cookie.partition(";")[0]}
    assert get(url, "/", **known).status == 200 and opens(url, **known)
    assert get(url, "/", Host="my-machine:8501", **known).status == 200  # by any name: the token is what counts
    assert get(url, "/", Origin="https://evil.example", **known).status == 403
    assert not opens(url, Origin="https://evil.example", **known)


# Read-only: what a page of somebody else's server must not do.


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYEYES_READ_ONLY", "1")


def test_listening_elsewhere_is_read_only_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None: ...

    for told, address, expected in (
        ({}, "localhost", False), ({}, "0.0.0.0", True), ({}, None, True),
        ({"MANYEYES_READ_ONLY": "0"}, "0.0.0.0", False), ({"MANYEYES_READ_ONLY": "1"}, "localhost", True),
    ):  # fmt: skip
        monkeypatch.setattr(os, "environ", dict(told))
        guard = access.Guard(nothing, address)
        assert (access.read_only(), "HF_HUB_OFFLINE" in os.environ) == (expected, expected)
        assert bool(guard.token) == (address != "localhost") == bool(guard.file)
        if guard.file:
            guard.file.unlink()
    monkeypatch.setattr(os, "environ", {"MANYEYES_TOKEN": "ours"})
    assert access.Guard(nothing, "localhost").token == "ours" and not os.environ  # no process started here knows it
    monkeypatch.setattr(os, "environ", {"MANYEYES_TOKEN": "κλειδί"})
    with pytest.raises(ValueError, match="ASCII"):
        access.Guard(nothing, "localhost")


def test_nothing_is_started_or_stopped(read_only: None, none_left: None, workplace: Path, small_run: Run) -> None:
    for deed in (
        lambda: jobs.train("induction", "new", 0, 10), lambda: jobs.resume(small_run), lambda: jobs.sweep(small_run),
        lambda: jobs.fork(small_run, 10, "new", 20), lambda: jobs.open_model("gpt2", [], "new"),
        lambda: jobs.reproduce(["base"]), lambda: jobs.stop(small_run),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            deed()
    assert jobs.started() == []


@pytest.mark.parametrize("page", quick(["runs", "heads", "ablate", "specimens", "training"], ("runs", "heads")))
def test_no_page_offers_to(page: str, read_only: None, open_page: Open, copy_run: Callable[..., Run]) -> None:
    copy_run("other", status="stopped")
    app = open_page(page, **({} if page in ("runs", "specimens") else {"run": "tiny"}))
    forbidden = ("Train", "Fork", "Resume", "Stop", "Measure 4", "Train it", "Train all")
    assert [word for word in labels(app) if word.startswith(forbidden)] == []
    assert not [box for box in app.text_input if "path" in box.label.lower() or "hub" in box.label.lower()]


def test_no_path_is_taken_and_none_is_told_apart(
    read_only: None, workplace: Path, small_run: Run, tmp_path: Path
) -> None:
    shutil.copytree(small_run.dir, tmp_path / "elsewhere")
    said = set()
    outside = map(str, (tmp_path / "elsewhere", tmp_path / "nothing", workplace))
    for name in (*outside, "..", "checkpoints/..", "checkpoints/../.."):
        with pytest.raises(ValueError, match="read-only") as refused:
            loading.run(name)
        said.add(str(refused.value).replace(repr(name), "NAME"))
    assert len(said) == 1
    assert loading.run("tiny").name == "tiny" and loading.run("checkpoints/tiny").name == "tiny"


# Whoever may start processes.


@pytest.mark.parametrize("said", ["", "0", "-1", "x", "2.5"])
def test_how_many_processes_is_a_number(said: str) -> None:
    with pytest.raises(ValueError, match="MANYEYES_PROCESSES"):
        work_queue.processes(said)


def test_a_number_of_processes_that_is_none_stops_no_page() -> None:
    code = "from dashboard import work_queue; print(work_queue.PROCESSES)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "MANYEYES_PROCESSES": "x"}, cwd=APP.parents[1],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "4\n" and "MANYEYES_PROCESSES='x' must be a whole number" in done.stderr, done.stderr


def test_a_queued_process_that_cannot_be_started_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    held = [
        work_queue.Process.slots.acquire(timeout=300) for _ in range(work_queue.PROCESSES)
    ]  # other tests' may be ending
    try:
        queued = work_queue.Process([str(tmp_path / "no-such-program")], log, {}, Asked(command="train", name="queued"))
        assert all(held) and queued.poll() is None and len(waiting.waiting()) == 1
    finally:
        for _ in held:
            work_queue.Process.slots.release()
    wait(lambda: queued.poll() is not None)
    one = jobs.Started("queued", tmp_path / "run", log, queued)
    wait(lambda: "could not be started" in one.tail())
    assert one.failed and not one.alive and queued.pid is None and waiting.waiting() == []


def test_more_than_so_many_wait(none_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    limit = work_queue.PROCESSES
    many = [jobs.train("induction", f"toy-{i}", 0, 100_000) for i in range(limit + 2)]
    assert [one.process.pid is None for one in many] == [False] * limit + [True, True]
    assert all(one.alive for one in many) and "Waiting: 4 processes" in many[-1].tail()
    assert [one.asked and one.asked.name for one in waiting.waiting()] == [f"toy-{limit}", f"toy-{limit + 1}"]
    assert jobs.not_begun() == []  # of others
    with pytest.raises(ValueError, match="already holds a run"):
        jobs.train("induction", many[-1].name, 0, 10)
    jobs.cancel(many[-1])  # it never begins
    many[0].process.kill()
    wait(lambda: many[limit].process.pid is not None)
    assert not many[-1].alive and not many[-1].failed and many[-1].process.pid is None and waiting.waiting() == []
    for one in many:
        one.process.kill()
        wait(lambda one=one: not one.alive)


def test_only_the_process_that_trains_a_run_is_stopped(copy_run: Callable[..., Run]) -> None:
    """A run.json names whatever its author likes: 0 and -1 are everybody, and any number may be a stranger's."""
    run = copy_run("other", status="training", host=socket.gethostname())
    path = run.dir / "run.json"
    code = (  # what runs in the background of a script has Ctrl-C ignored, unless it says otherwise as trainings do
        "import sys, pathlib, signal, tracer.store.layout as x; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "held = x.Lock(pathlib.Path(sys.argv[1])); print(1, flush=True)"
    )
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    trainer = subprocess.Popen(
        [sys.executable, "-c", f"{code}; input()", str(run.dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(APP.parents[1])},
    )  # fmt: skip
    try:
        assert trainer.stdout is not None and trainer.stdout.readline() == b"1\n" and run.live
        unreadable, unproven = "says what cannot be: pid=", "nothing is stopped"
        impossible, strangers = (-1, 0, 2**40, True), (1, os.getpid(), sleeper.pid)
        for pid, why in [*((pid, unreadable) for pid in impossible), *((pid, unproven) for pid in strangers)]:
            path.write_text(json.dumps({**json.loads(path.read_text()), "pid": pid}))
            with pytest.raises(ValueError, match=why):
                jobs.stop(run)
        assert sleeper.poll() is None and trainer.poll() is None
        path.write_text(json.dumps({**json.loads(path.read_text()), "pid": trainer.pid}))
        jobs.stop(run)
        assert trainer.wait(60) != 0
    finally:
        for process in (sleeper, trainer):
            process.kill()
            process.communicate()


def test_a_lock_that_was_let_go_proves_nothing(tmp_path: Path) -> None:
    Lock(tmp_path).release()
    assert not is_trained_by(tmp_path, os.getppid())


def test_runs_of_several_folders(small_run: Run, tmp_path: Path) -> None:
    for folder, name in (("a", "first"), ("b", "second"), ("b", "first")):
        shutil.copytree(small_run.dir, tmp_path / folder / name)
    code = (
        "from tracer.store import *; print(sorted(str(r.dir) for r in list_runs()), broken_runs(), resolve('second'), "
        "resolve('new'), open_run('first').dir, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True,
        env={**os.environ, "PYTHONPATH": str(APP.parents[1]), "MANYEYES_RUNS": os.pathsep.join(["a", "b"])},
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "['a/first', 'b/second']", "{'b/first': 'a/first has the same name: rename one of the two'}", "b/second",
        "a/new", "a/first",
    ]  # fmt: skip
