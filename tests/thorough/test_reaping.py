"""Nothing outlives the tests: not what a process started in a session of its own, not after kill -9."""

import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests import children
from tests.waiting import wait

TESTS = """
import signal, subprocess, sys, time
from tests.reaping import reap_at_the_end
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
reap_at_the_end(sys.argv[1])
child = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)"
subprocess.run([sys.executable, "-c", child])
if sys.argv[2] != "end":
    time.sleep(600)
"""


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("end", ["end", "SIGINT", "SIGKILL"])
def test_what_tests_started_ends_with_them(end: str, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    tests = children.start([sys.executable, "-c", TESTS, str(tmp_path / "scratch"), end], stdout=-1, text=True)
    assert tests.stdout is not None
    detached = int(tests.stdout.readline())
    if end != "end":
        assert not gone(detached)
        tests.send_signal(signal.Signals[end])
    wait(lambda: gone(detached) and not (tmp_path / "scratch").exists())
    tests.wait()
