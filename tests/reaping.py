"""What tests start ends with them: a process that outlives pytest, however that ends, and clears up after it.

Tests start trainings, servers and browsers, which start processes of their own, some in a session of their own. All of
them inherit one variable of the environment, and whatever carries it is ended.
"""

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import time
import uuid

import psutil

VARIABLE = "MANYEYES_TESTS"


def reap_at_the_end(scratch: str) -> None:
    """Mark what is started from here on; once this process is gone, end what bears the mark, and remove `scratch`."""
    mark = uuid.uuid4().hex
    command = [sys.executable, __file__, mark, scratch]
    reaper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # out of reach of a Ctrl-C
    os.environ[VARIABLE] = mark
    atexit.register(reaper.communicate)  # closes the pipe and waits; a kill -9 closes it, too


def marked(mark: str) -> list[psutil.Process]:
    """Processes that bear the mark and are not dead; of other people's the environment is None."""
    return [
        process
        for process in psutil.process_iter(["environ", "status"])
        if (process.info["environ"] or {}).get(VARIABLE) == mark and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def reap(mark: str, scratch: str) -> None:
    until = time.monotonic() + 30
    while (left := marked(mark)) and time.monotonic() < until:  # again, since what dies may just have started another
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.read()  # until nobody holds the other end
    reap(*sys.argv[1:])
