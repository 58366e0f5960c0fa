"""A process of its own that waits while as many as are allowed are at work."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
from pathlib import Path

from tracer.store import waiting
from tracer.store.waiting import Asked, Ticket

NOT_STARTED, TAKEN_BACK = 127, 130
"""Exit statuses of what could not be run, and of what was stopped before it ran, as a shell gives them."""


def processes(said: str) -> int:
    """How many may be at work at a time, as MANYEYES_PROCESSES says it."""
    if not said.isdecimal() or not int(said):
        raise ValueError(f"MANYEYES_PROCESSES={said!r} must be a whole number, 1 or more: processes at work at a time")
    return int(said)


def allowed(said: str | None) -> int:
    """The same, and 4 where nothing is said or something that is no number: then the server's output says so, since
    pages must not fail for it."""
    try:
        return 4 if said is None else processes(said)
    except ValueError as error:
        logging.getLogger("manyeyes").warning("%s. Until then it is 4.", error)
        return 4


PROCESSES = allowed(os.environ.get("MANYEYES_PROCESSES"))
"""At work at a time; more wait for one of these to end."""


class Process:
    """A command in a process of its own, in the words of Popen; it waits while `PROCESSES` others are at work."""

    slots = threading.BoundedSemaphore(PROCESSES)

    def __init__(self, command: list[str], log: Path, environment: dict[str, str], asked: Asked) -> None:
        """`asked`: what is written down while it waits; OSError or ValueError where it can neither begin nor wait."""
        self.args, self._log, self._environment = command, log, environment
        self._popen: subprocess.Popen[bytes] | None = None
        self.ticket: Ticket | None = None
        self._ended: int | None = None
        self._lock = threading.Lock()
        if begun := self.slots.acquire(blocking=False):
            try:
                self._begin()
            except (OSError, ValueError):  # ValueError: a zero byte
                self.slots.release()
                raise
        else:
            log.write_text(f"Waiting: {PROCESSES} processes started here are at work. MANYEYES_PROCESSES allows more.")
            self.ticket = waiting.keep(asked)
        threading.Thread(target=self._see_through, args=(begun,), daemon=True).start()

    def _begin(self) -> None:
        with self._lock:
            if self._waits():
                with self._log.open("wb") as output:
                    self._popen = subprocess.Popen(
                        self.args, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                        start_new_session=True, env=self._environment,
                    )  # fmt: skip
                if self.ticket is not None:
                    self.ticket.remove()

    def _waits(self) -> bool:
        """Under the lock; what somebody removed from the folder has ended."""
        if self._popen is None and self._ended is None and self.ticket is not None and not self.ticket.there:
            self._end(TAKEN_BACK)
        return self._popen is None and self._ended is None

    def _end(self, status: int) -> None:
        """Before it began."""
        self._ended = status
        if self.ticket is not None:
            self.ticket.remove()

    def _see_through(self, begun: bool) -> None:
        try:
            if not begun:
                self.slots.acquire()
                try:
                    self._begin()
                except (OSError, ValueError) as error:  # with a place in the queue nobody is there to be told
                    self._end(NOT_STARTED)
                    with contextlib.suppress(OSError):
                        self._log.write_text(f"It could not be started: {error}")
            if self._popen is not None:
                self._popen.wait()
        finally:
            self.slots.release()

    @property
    def waits(self) -> bool:
        """Has it neither begun nor ended?"""
        with self._lock:
            return self._waits()

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen else None

    @property
    def returncode(self) -> int | None:
        return self._popen.returncode if self._popen else self._ended

    def poll(self) -> int | None:
        return None if self.waits else self._popen.poll() if self._popen else self._ended

    def wait(self, timeout: float | None = None) -> int | None:
        if self.waits:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._popen.wait(timeout) if self._popen else self._ended

    def send_signal(self, number: int) -> None:
        """One that still waits never begins, and has ended as one that was stopped."""
        with self._lock:
            if self._popen is None:
                self._end(128 + number)
                return
        self._popen.send_signal(number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
