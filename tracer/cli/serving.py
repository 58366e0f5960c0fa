"""The dashboard as a process of its own, and the command that opens it: `manyeyes`, or `tracer view`."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import tracer
from tracer.cli import own_pages
from tracer.cli.output import say
from tracer.config import Clamp
from tracer.files import private
from tracer.named_code import MEASURES, ROLES, RULES, TESTS, allow_clamps, remember, remembered

APP = Path(tracer.__file__).resolve().parent.parent / "dashboard" / "app.py"
"""Beside this very package: a folder named dashboard in the working directory is somebody's own."""
FIRST_PORT = 8501
SERVER_SECONDS = 60
HERE = ("localhost", "127.0.0.1", "::1")
ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)]
"""Signals that end a program; the last two are a closed terminal and Ctrl-\\, which tell its own session only."""


def view(
    runs: tuple[str, ...] = (), /, host: str = "localhost", port: int | None = None,
    read_only: bool = False, browser: bool = True, build: tuple[str, ...] = (), token: bool = False,
    layout: str | None = None, pages: str | None = None, clamp: tuple[str, ...] = (),
    measures: tuple[str, ...] = (), tests: tuple[str, ...] = (), roles: tuple[str, ...] = (),
    rules: tuple[str, ...] = (),
) -> int:  # fmt: skip
    """Serve the dashboard until Ctrl-C; `tracer.cli.view_command` says what each word means."""
    from tracer.huggingface import building
    from tracer.store import PLACES, copies
    from tracer.store.following import follow, update

    building.allow(*build, layout=layout)
    allow_clamps(*(one.code for one in map(Clamp.parse, clamp) if one.code))
    _allow(measures, tests, roles, rules)
    if pages:
        own_pages.files(pages)
    roots, run = _where(runs)
    for url, why in update([] if runs else [place for place in PLACES if copies.is_url(place)]).items():
        say(f"{url} is shown as it was last fetched: {why}")
    chosen = os.environ.get("MANYEYES_TOKEN", "")
    made = secrets.token_urlsafe(24) if not chosen and (token or host not in HERE) else ""
    settings = {
        "MANYEYES_RUNS": os.pathsep.join(map(str, roots)), "MANYEYES_TOKEN": chosen or made,
        "MANYEYES_READ_ONLY": str(int(read_only)), own_pages.SETTING: str(Path(pages).resolve()) if pages else "",
    }  # fmt: skip
    with dashboard(host, port, settings) as (server, at), contextlib.ExitStack() as stack:
        query = {"run": run} if run else {}
        url = address(host, at, **query)
        if not (chosen or made):
            say(f"manyeyes: {url}")
        elif sys.stdout.isatty():
            say(f"manyeyes: {address(host, at, token=chosen or made, **query)}")
        else:  # others may read what a log holds
            path = private.keep(chosen or made)
            stack.callback(private.forget, path)
            say(f"manyeyes: {url} asks for the token in {path}")
        say("Ctrl-C ends it.")
        if browser:
            webbrowser.open(url)  # the browser's command line is read by all: the token is typed, or the link clicked
        for url in filter(copies.is_url, runs or PLACES):
            follow(url)
        with contextlib.suppress(KeyboardInterrupt):
            return server.wait()
    return 0


def _allow(
    measures: tuple[str, ...], tests: tuple[str, ...], roles: tuple[str, ...], rules: tuple[str, ...] = ()
) -> None:
    """Measures, tests of a verdict, roles of heads and rules of Health, for the server. ValueError for what is none."""
    if measures:
        from tracer.analysis.survey_measures import OwnSums

        OwnSums((*remembered(MEASURES), *measures), say)
        remember(MEASURES, *measures)
    if tests:
        from tracer.ablate.own_tests import given_tests

        given_tests(tests)
        remember(TESTS, *tests)
    if roles:
        from tracer.analysis.head_roles import given_roles

        given_roles(roles)
        remember(ROLES, *roles)
    if rules:
        from tracer.diagnosis.own_rules import given_rules

        given_rules((*remembered(RULES), *rules))
        remember(RULES, *rules)


def _where(names: tuple[str, ...]) -> tuple[list[Path], str]:
    """The folders of runs to show, none for those that are shown by default, and the run to begin with."""
    from tracer.store import copies, remote, resolve

    roots, first = [], ""
    for name in names:
        directory = remote.fetch(name) if copies.is_url(name) else resolve(name)
        if (directory / "run.json").is_file():
            first, directory = first or directory.name, directory.parent
        elif not directory.is_dir():
            raise ValueError(f"{directory} is neither a run nor a folder of runs; `tracer ls` lists the runs here")
        if os.pathsep in str(directory):
            raise ValueError(
                f"{directory} cannot be shown: a {os.pathsep!r} parts two folders; rename it, or go into it"
            )
        if directory not in roots:
            roots.append(directory)
    return roots, first


@contextlib.contextmanager
def dashboard(
    host: str = "localhost", port: int | None = None, settings: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The dashboard's process and port, once it answers; it ends with the block. `settings`: of its environment."""
    if not APP.is_file():
        raise ValueError(f"the dashboard is not installed beside tracer: there is no {APP}")
    if port and not _is_free(host, port):
        raise OSError(f"port {port} is in use; without --port the first free one is taken")
    port = port or _free_port(host)
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "streamlit", "run", str(APP), "--server.headless", "true", "--server.port",
         str(port), "--server.address", host, "--logger.hideWelcomeMessage", "true"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, **{name: value for name, value in (settings or {}).items() if value}},
        start_new_session=True,  # out of reach of a Ctrl-C that only stops the training
    )  # fmt: skip
    # else these would leave the server behind; nohup has one of them ignored
    before = {number: old for number in ENDS if (old := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        began = time.monotonic()
        while not _answers(host, port):
            if server.poll() is not None or time.monotonic() - began > SERVER_SECONDS:
                raise OSError(f"the dashboard did not start on port {port}; try `streamlit run {APP}` to see why")
            time.sleep(0.1)
        yield server, port
    finally:
        server.terminate()
        for number, old in before.items():
            signal.signal(number, old)
        server.wait()


def address(host: str, port: int, **query: str) -> str:
    """What to open in a browser: of all interfaces, this machine's own name."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?{urlencode(query)}" if query else "")


def _answers(host: str, port: int) -> bool:
    name = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows this machine
        with direct.open(f"http://{name}:{port}/_stcore/health", timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _is_free(host: str, port: int) -> bool:
    """Whether no program listens there, on any address of that name: another one's answer would be taken for ours."""
    for family, _, _, _, at in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            socket.create_server(at, family=family).close()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
    return True


def _free_port(host: str) -> int:
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        if _is_free(host, port):
            return port
    raise OSError(f"no free port between {FIRST_PORT} and {FIRST_PORT + 99}; give one with --port")
