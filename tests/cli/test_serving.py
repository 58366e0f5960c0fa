"""How the dashboard's process is started and ended, and what is refused before it is."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracer.cli import serving


def test_a_port_of_another_server_is_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.2", 0)) as theirs:
        port = theirs.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} is in use"), serving.dashboard("127.0.0.2", port):
            pass
        monkeypatch.setattr(serving, "FIRST_PORT", port)
        assert serving._free_port("127.0.0.2") > port == serving._free_port("127.0.0.1")


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that only waits for its end, and signals as they are at the start of a program."""
    (tmp_path / "python").write_text("#!/bin/sh\nexec sleep 1000")
    (tmp_path / "python").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(serving, "_answers", lambda host, port: True)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in serving.ENDS}
    yield
    for number, old in before.items():
        signal.signal(number, old)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_no_way_to_end_the_program_leaves_the_server(idle: None, number: int) -> None:
    with pytest.raises(SystemExit) as ended, serving.dashboard() as (server, _):
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number and server.returncode == -signal.SIGTERM
    assert signal.getsignal(number) == signal.SIG_DFL


def test_what_nohup_started_outlives_its_terminal(idle: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with serving.dashboard() as (server, _):
        os.kill(os.getpid(), signal.SIGHUP)
        assert server.poll() is None


def test_a_folder_that_would_be_read_as_two_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / f"a{os.pathsep}b"
    folder.mkdir()
    with pytest.raises(ValueError, match="cannot be shown: a ':' parts two folders"):
        serving._where((str(folder),))
