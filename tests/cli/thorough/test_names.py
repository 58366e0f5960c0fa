"""Folders whose names are beyond the locale, or no text at all: every one is listed, and says what to do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = (b"k\xc3\xb6nig", b"\xff\xfe")


def said(*words: str | bytes, folder: Path, utf8: str) -> str:
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": utf8}
    command = [sys.executable, "-m", "tracer", *words]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **plain}, capture_output=True, timeout=300)
    assert b"Traceback" not in done.stderr and b"codec" not in done.stderr, done.stderr
    return done.stdout.decode("utf-8", "replace") + done.stderr.decode("utf-8", "replace")


@pytest.mark.parametrize("utf8", ["0", "1"])
def test_odd_names_in_the_c_locale(tmp_path: Path, utf8: str) -> None:
    for name in NAMES:
        folder = os.fsencode(tmp_path) + b"/checkpoints/" + name
        os.makedirs(folder)
        with open(folder + b"/run.json", "w") as f:
            f.write("{}")
    listed = said("ls", folder=tmp_path, utf8=utf8)
    assert listed.count("unreadable") == 2 and "is no text (UTF-8): rename it" in listed
    broken = json.loads(said("ls", "--json", folder=tmp_path, utf8=utf8))["broken"]
    assert set(broken) == {"k\xf6nig", "\ufffd\ufffd"}
    assert ("set PYTHONUTF8=1" if utf8 == "0" else "no 'format' number") in broken["k\xf6nig"]
    for name in NAMES:
        assert "damaged: run.json" in said("check", b"checkpoints/" + name, folder=tmp_path, utf8=utf8)
