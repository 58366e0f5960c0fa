"""Another account of this machine, as a process of its own: what it sends comes from that account's socket."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

NOBODY = 65534
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what is not sent yet is dropped, and the other side is told at once."""


def why_not() -> str:
    """Why this machine cannot show another account; empty where it can."""
    return "" if os.geteuid() == 0 else "only root can become another account: run this test as root"


class Stranger:
    """`send` opens a connection as the account `uid`; it stays open until the next one, or its end if need be."""

    def __init__(self, uid: int = NOBODY) -> None:
        if why := why_not():
            pytest.skip(why)
        self._uid = uid

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.strangers", str(self._uid)], cwd=Path(__file__).parents[1], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def send(self, to: tuple[str, int], request: bytes = b"", then: str = "read") -> tuple[tuple[str, int], bytes]:
        """Where it sent from, and the answer. `then`: read it, or "hold", "close", "reset" or "half" close at once."""
        assert self._process.stdin is not None and self._process.stdout is not None
        asked = {"to": to, "request": request.decode("latin1"), "then": then}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        end, answer = json.loads(self._process.stdout.readline())
        return (end[0], end[1]), answer.encode("latin1")

    def get(self, url: str, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, str]:
        """The status and the rest of an answer, as read until the server closes or upgrades the connection."""
        host, _, port = url.rpartition("//")[2].rpartition(":")
        lines = {"Host": f"{host}:{port}", "Connection": "close", "Content-Length": "0"} | headers
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
        _, answer = self.send((host, int(port)), f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin1"))
        status, _, rest = answer.decode("utf-8", "replace").partition("\r\n")
        return int(status.split()[1]), rest

    def opens(self, url: str, **headers: str) -> bool:
        """Is a socket to the app accepted?"""
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
        return self.get(url, "/_stcore/stream", **upgrade, **headers)[0] == 101


def serve(uid: int) -> None:
    """Become this account, for good, and do what each line of stdin says."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    line: socket.socket | None = None
    for asked in map(json.loads, sys.stdin):
        if line:
            line.close()
        line = socket.socket(socket.AF_INET6 if ":" in asked["to"][0] else socket.AF_INET)
        line.connect(tuple(asked["to"]))
        end = line.getsockname()[:2]
        line.sendall(asked["request"].encode("latin1"))
        answer = _then(line, asked["then"])
        print(json.dumps([end, answer.decode("latin1")]), flush=True)  # noqa: T201 - to the test


def _then(line: socket.socket, then: str) -> bytes:
    answer = b""
    if then == "half":
        line.shutdown(socket.SHUT_WR)
    elif then in ("close", "reset"):
        if then == "reset":
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        line.close()
    elif then == "read":
        while not answer.startswith(b"HTTP/1.1 101") and (part := line.recv(65536)):
            answer += part
    return answer


if __name__ == "__main__":
    serve(int(sys.argv[1]))
