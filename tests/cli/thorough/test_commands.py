"""What takes long of tests/cli/test_commands.py."""

import json
import os
import pty
import re
import socket
import subprocess
import sys
import tty
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests import children
from tests.forked import ROOT, tracer
from tests.waiting import wait
from tracer.store import open_run


def test_seeds_from_a_file_and_json(tmp_path):
    """Trains what run.json says with other seeds, each in a process; says what there is as JSON."""
    small = ["--model.d-model", "16", "--optim.batch-size", "4", "--record.val-rows", "2", "--device", "cpu"]
    done = tracer("train", "induction", "--run", "toy", "--steps", "2", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    command = ["train", "--config", "checkpoints/toy/run.json", "--seeds", "1", "2", "--set", "optim.lr=0.5",
               "--set", "optim.warmup=1"]  # fmt: skip
    done = tracer(*command, "--track", "tensorboard", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads(tracer("ls", "--json", cwd=tmp_path).stdout)
    assert listed["broken"] == {} and [one["run"] for one in listed["runs"]] == [
        "induction-lr-0.5-warmup-1-2", "induction-lr-0.5-warmup-1-1", "toy",
    ]  # fmt: skip
    found = json.loads(tracer("ls", "--find", "lr=0.5 seed=1", "--json", cwd=tmp_path).stdout)
    assert [one["run"] for one in found["runs"]] == ["induction-lr-0.5-warmup-1-1"]
    assert "none of 3 runs" in tracer("ls", "--find", "seed=9", cwd=tmp_path).stdout
    newest = listed["runs"][0]
    assert newest == {
        "run": "induction-lr-0.5-warmup-1-2", "directory": "checkpoints/induction-lr-0.5-warmup-1-2", "kind": "trained",
        "preset": "induction", "author": newest["author"], "status": "finished", "step": 2, "planned": 2,
        "snapshots": 2, "n_params": open_run(tmp_path / "checkpoints" / "toy").meta["n_params"],
        "created": newest["created"], "settings": {}, "tags": [], "note": "", "asked": {},
    }  # fmt: skip
    assert found["runs"][0]["asked"] == {"lr": [0.5], "seed": [1]}
    configs = [open_run(tmp_path / one["directory"]).config for one in listed["runs"]]
    assert [(one.seed, one.optim.lr, one.optim.warmup, one.model.d_model) for one in configs] == [
        (2, 0.5, 1, 16), (1, 0.5, 1, 16), (0, configs[2].optim.lr, configs[2].optim.warmup, 16),
    ]  # fmt: skip
    assert list((tmp_path / newest["directory"] / "tensorboard").iterdir())
    again = tracer(*command, cwd=tmp_path)
    assert again.returncode == 0 and again.stdout.count("is finished already") == 2
    said = json.loads(tracer("diagnose", "toy", "--json", cwd=tmp_path).stdout)
    assert said["run"] == "toy" and said["looked_for"] and all("title" in one for one in said["findings"])
    swept = json.loads(tracer("sweep", "toy", "--modes", "zero", "--json", cwd=tmp_path).stdout)
    assert swept["steps"] == [0, 2] and swept["modes"] == ["zero"] and (tmp_path / swept["effects"]).is_dir()


def test_view_beside_a_dashboard_of_ones_own(tmp_path, free_port):
    """`python -m` puts the working directory first, and there lie folders of our names that are not ours."""
    for name in ("dashboard", "streamlit"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('theirs')")
    proxy = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}  # one that knows no localhost
    started = children.start(
        [sys.executable, "-m", "tracer", "view", ".", "--port", str(free_port)], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": str(ROOT), **proxy},
    )  # fmt: skip
    assert started.stdout is not None and started.stdout.readline() == f"manyeyes: http://localhost:{free_port}/\n"
    with urllib.request.urlopen(f"http://localhost:{free_port}/app/static/inter-latin.woff2") as font:
        assert font.read(4) == b"wOF2"
    (server,) = psutil.Process(started.pid).children()
    assert os.getpgid(server.pid) != os.getpgid(started.pid), "a Ctrl-C that stops a training would end it"
    started.terminate()
    started.wait()
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", free_port)) != 0  # the server ended with it


@pytest.mark.parametrize("terminal", [True, False])
def test_a_token_is_shown_to_its_owner_only(tmp_path, free_port, terminal):
    """In the terminal, or in a file of theirs: a log, a list of processes and the browser's command line show none."""
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\nprintf "%s\\n" "$*" > opened.part && mv opened.part opened')
    browser.chmod(0o700)
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    with open(ours, "rb", 0) as reader, open(tmp_path / "log", "w+b") as log, open(theirs, "wb", 0) as writer:
        started = children.start(
            [sys.executable, "-m", "tracer", "view", ".", "--token", "--browser", "--port", str(free_port)],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=writer if terminal else log,
            env={**os.environ, "PYTHONPATH": str(ROOT), "BROWSER": f"{browser} %s"},
        )  # fmt: skip
        wait((tmp_path / "opened").exists)
        said = reader.read(4096).decode() if terminal else (tmp_path / "log").read_text()
    place = f"http://localhost:{free_port}/"
    assert (tmp_path / "opened").read_text() == f"{place}\n"
    if terminal:
        found = re.search(rf"manyeyes: {place}\?token=(\S+)\n", said)
        assert found is not None
        token, file = found[1], None
    else:
        found = re.search(rf"manyeyes: {place} asks for the token in (\S+)\n", said)
        assert found is not None
        file = Path(found[1])
        token = file.read_text().strip()
        assert file.stat().st_mode & 0o777 == 0o600 and token not in said
    assert not [one for one in psutil.process_iter(["cmdline"]) if token in " ".join(one.info["cmdline"] or [])]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(place)
    asked = urllib.request.Request(place, headers={"Cookie": f"manyeyes-{free_port}={token}"})
    with urllib.request.urlopen(asked) as page:
        assert page.status == 200
    started.terminate()
    started.wait()
    assert file is None or not file.exists()


def test_an_address_that_does_not_answer_ends_in_words(tmp_path):
    done = tracer("view", "http://127.0.0.1:9/run", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr
    assert "http://127.0.0.1:9/run cannot be read: Cannot connect to host" in done.stdout + done.stderr
