"""Another account of this machine at the door: what it gets, what it is told, and where the token is not."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from dashboard import access, accounts
from tests import children
from tests.browsing import served, server_of
from tests.dashboard.test_access import APP, get, opens
from tests.strangers import NOBODY, Stranger, why_not
from tests.waiting import wait

FONT = "/app/static/inter-latin.woff2"
TOLD = re.compile(r"<code>cat (/\S+\.token)</code>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ours")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Iterator[str]:
    """`streamlit run dashboard/app.py`, and no more."""
    with served(APP, folder) as url:
        yield url


@pytest.fixture(scope="module")
def other() -> Iterator[Stranger]:
    with Stranger() as other:
        yield other


def told(other: Stranger, url: str) -> Path:
    """Where the page that refuses another account says that the token is."""
    found = TOLD.search(other.get(url)[1])
    assert found is not None
    return Path(found[1])


@pytest.mark.parametrize(
    "path",
    ["/", "/heads?run=demo-0", "/landing", "/nowhere", FONT, "/static/js/index.js", "/media/1234.png",
     "/_stcore/host-config", "/_stcore/upload_file/a/b", "/_stcore/metrics", "/_stcore/script-health-check",
     "/_stcore/bidi-components/a/b.js", "/component/a/index.html", "/auth/login", "/_stcore/agent", "//_stcore/health",
     "/_stcore/health/"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_another_account_gets_nothing(ours: str, other: Stranger, path: str, method: str) -> None:
    status, rest = other.get(ours, path, method)
    assert status == 401 and "asks for a token" in rest


def test_its_own_account_gets_in_as_it_is(ours: str) -> None:
    assert get(ours).status == get(ours, FONT).status == 200 and opens(ours)


def test_another_account_gets_no_socket(ours: str, other: Stranger) -> None:
    assert not other.opens(ours) and not other.opens(ours, Origin=ours)
    assert other.get(ours, access.HEALTH)[0] == 200  # whether it runs, and no more


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_nobody_names_the_connection_of_somebody_else(ours: str, other: Stranger, name: str) -> None:
    """The server believes X-Forwarded-For of this machine: with the address of our browser in it, it would be ours."""
    at = urlsplit(ours)
    with socket.create_connection((at.hostname or "", at.port or 0)) as browser:
        mine = browser.getsockname()
        for said in (f"127.0.0.1:{mine[1]}", "127.0.0.1", f"[::ffff:127.0.0.1]:{mine[1]}", "8.8.8.8", "", "x:y:z"):
            assert other.get(ours, FONT, **{name: said})[0] == 401
            assert not other.opens(ours, **{name: said})


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_nor_another_kind_of_socket(ours: str, other: Stranger, host: str) -> None:
    """The server's own is of IPv4; one of IPv6 can connect to it, and stands in another table."""
    port = urlsplit(ours).port or 0
    asked = f"GET {FONT} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode()
    assert other.send((host, port), asked)[1].startswith(b"HTTP/1.1 401")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as line:
        line.connect((host, port))
        line.sendall(asked)
        assert line.recv(100).startswith(b"HTTP/1.1 200")


def test_the_owner_alone_finds_the_token_and_with_it_the_other_gets_in(
    ours: str, other: Stranger, folder: Path
) -> None:
    path = told(other, ours)
    assert path == told(other, ours)
    about, token = path.stat(), path.read_text().strip()
    assert (about.st_mode & 0o777, about.st_uid) == (0o600, os.geteuid()) and len(token) == 32
    assert token not in other.get(ours)[1] and token not in (folder / "server.txt").read_text()
    assert str(path) in (folder / "server.txt").read_text()
    status, rest = other.get(ours, "/?token=wrong&run=demo-0")
    assert status == 401 and "That was not the token" in rest and 'name="run" value="demo-0"' in rest
    assert "That was" not in other.get(ours, "/?token=5")[1]  # the held token of a prompt
    status, rest = other.get(ours, f"/heads?run=demo-0&token=5&token={token}")
    assert status == 303 and "location: ?run=demo-0&token=5\r\n" in rest
    cookie = re.search(r"set-cookie: (\S+);", rest)
    assert cookie is not None
    assert other.get(ours, FONT, Cookie=cookie[1])[0] == 200 and other.opens(ours, Cookie=cookie[1])
    assert other.get(ours, FONT, Cookie=f"{cookie[1]}x")[0] == 401
    assert other.get(ours, FONT, Cookie=cookie[1], Origin="https://evil.example")[0] == 403
    path.unlink()  # as what cleans /tmp does
    again = told(other, ours)
    assert again != path and again.read_text().strip() == token


def test_the_token_stays_in_no_address(ours: str, other: Stranger) -> None:
    """Also of who gets in without it: what stands in the address bar, a person sends to others."""
    token = told(other, ours).read_text().strip()
    answer = get(ours, f"/heads?token={token}&token=5&run=demo-0")
    assert answer.status == 303 and answer.headers["Location"] == "?token=5&run=demo-0"
    assert get(ours, "/heads?token=5&run=demo-0").status == 200


def test_no_process_shows_the_token(ours: str, other: Stranger) -> None:
    token = told(other, ours).read_text().strip()
    assert not [one.info for one in psutil.process_iter(["cmdline"]) if token in " ".join(one.info["cmdline"] or [])]
    assert token not in str(server_of(ours).environ())


def test_its_file_ends_with_the_server(tmp_path: Path, other: Stranger) -> None:
    with served(APP, tmp_path) as url:
        path = told(other, url)
        assert path.exists()
    assert not path.exists()


def test_what_is_said_at_the_door_of_everybody(tmp_path: Path, other: Stranger) -> None:
    """Told MANYEYES_TOKEN on localhost, it asks its own account, too, and has no file to name."""
    with served(APP, tmp_path, MANYEYES_TOKEN="ours") as url:
        for status, page in ((lambda a: (a.status, a.body.decode()))(get(url)), other.get(url)):
            assert status == 401 and "cat /" not in page and "Ask whoever started it" in page
        assert other.get(url, FONT, Cookie=f"manyeyes-{urlsplit(url).port}=ours")[0] == 200


def test_a_terminal_is_shown_the_token_itself(tmp_path: Path, free_port: int) -> None:
    reader, writer = pty.openpty()
    children.start(
        [sys.executable, "-m", "streamlit", "run", str(APP), "--server.headless", "true", "--server.address", "0.0.0.0",
         "--server.port", str(free_port), "--server.fileWatcherType", "none"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=writer, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    os.close(writer)
    said = b""
    with open(reader, "rb", 0) as terminal:
        while not (found := re.search(rb"asks for this token: (\S{32})\s", said)):
            said += terminal.read(4096)
        url = f"http://127.0.0.1:{free_port}"
        wait(lambda: _listens(free_port))
        assert get(url, FONT, Cookie=f"manyeyes-{free_port}={found[1].decode()}").status == 200
    assert not list(tmp_path.glob("*.token"))


# The same without Streamlit, for what no answer shows.

WAYS = pytest.mark.parametrize("way", accounts.WAYS)


@WAYS
@pytest.mark.parametrize(("then", "account"), [("hold", NOBODY), ("half", NOBODY), ("close", None), ("reset", None)])
def test_who_has_hung_up_is_nobody(other: Stranger, way: accounts.Ask, then: str, account: int | None) -> None:
    """The kernel says account 0 of a closed socket, whose request is still there to be read: root's, it would seem."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = server.getsockname()
        end, _ = other.send(at, b"GET / HTTP/1.1\r\n\r\n", then)
        line, _ = server.accept()
        with line:
            assert line.recv(100).startswith(b"GET") or then == "reset"
            assert way(end, at) == account
            assert _passes(end, at, way) is False


@contextmanager
def account(uid: int) -> Iterator[None]:
    """What this process opens meanwhile is that account's."""
    if why := why_not():
        pytest.skip(why)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@WAYS
@pytest.mark.parametrize("there", ["127.0.0.1", "::1"])
@pytest.mark.parametrize(("own", "let_in"), [(0, {0}), (1001, {0, 1001}), (NOBODY, {0, NOBODY})])
def test_the_own_account_and_root_pass(way: accounts.Ask, there: str, own: int, let_in: set[int]) -> None:
    family = socket.AF_INET6 if ":" in there else socket.AF_INET
    passed = set[int]()
    with socket.create_server((there, 0), family=family) as server:
        at = server.getsockname()[:2]
        for uid in (0, 1001, 1002, NOBODY):
            with account(uid):
                line = socket.create_connection(at)
            with line, account(own):
                assert accounts.asking(there) is not None
                if _passes(line.getsockname()[:2], at, way):
                    passed.add(uid)
    assert passed == let_in


def test_what_does_not_answer_lets_nobody_in() -> None:
    """A stranger can take all descriptors of the server, so that no table can be opened."""

    def busy(*_: object) -> int | None:
        raise OSError(24, "Too many open files")

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as line:
        assert _passes(line.getsockname(), server.getsockname(), accounts.by_netlink)
        assert not _passes(line.getsockname(), server.getsockname(), busy)
        assert not _passes(line.getsockname(), server.getsockname(), accounts.by_netlink, forwarded="for=127.0.0.1")


def test_where_the_system_tells_nobodys_account_all_of_the_machine_get_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS does: `manyeyes --token` and MANYEYES_TOKEN ask there."""
    monkeypatch.setattr(accounts, "WAYS", (lambda *_: None,))
    assert access.Guard(_nothing, "127.0.0.1").whose is None
    assert _passes(("127.0.0.1", 1), ("127.0.0.1", 2), None)


def _listens(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


async def _nothing(*_: object) -> None: ...


def _passes(end: accounts.Address, to: accounts.Address, way: accounts.Ask | None, **headers: str) -> bool:
    """Does a request on this connection reach the app behind a guard that asks this way?"""
    reached = []

    async def app(scope: object, receive: object, send: object) -> None:
        reached.append(scope)

    async def receive() -> dict[str, str]:
        return {"type": "http.request"}

    guard = access.Guard(app, "127.0.0.1")
    guard.whose = way
    named = [(b"host", b"localhost"), *((n.encode(), v.encode()) for n, v in headers.items())]
    scope = {"type": "http", "path": "/", "raw_path": b"/", "query_string": b"", "headers": named, "client": end,
             "server": to, "method": "GET", "scheme": "http", "root_path": ""}  # fmt: skip
    try:
        with ThreadPoolExecutor(1) as aside:  # a browser of another test runs a loop in this thread
            aside.submit(asyncio.run, guard(scope, receive, _nothing)).result()
    finally:
        if guard.file:
            guard.file.unlink()
    return bool(reached)
