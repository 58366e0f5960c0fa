"""What takes long of tests/dashboard/test_access.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import tracer
from tests.dashboard.test_access import APP

ASKS = """
import sys
from tracer.huggingface.loading import CannotOpen, load_hf
from tracer.store import Run
for deed in (Run(sys.argv[1]).model, lambda: load_hf("somebody/model")):
    try:
        deed()
    except CannotOpen as error:
        print(error, flush=True)
"""


def test_a_run_is_no_reason_to_ask_the_network(elsewhere: Path, tmp_path: Path) -> None:
    """Of a stranger's run.json, which may name any model of the hub as its weights."""
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    tracer.open_hf(elsewhere / "saved", str(tmp_path / "run"), rows=2)
    path = tmp_path / "run" / "run.json"
    meta = json.loads(path.read_text())
    meta["sources"] = {step: {"path": "somebody/model", "revision": None} for step in meta["sources"]}
    path.write_text(json.dumps(meta))
    with HTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        there = f"http://127.0.0.1:{hub.server_port}"
        done = subprocess.Popen(
            [sys.executable, "-c", ASKS, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(APP.parents[1]), "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": there},
        )  # fmt: skip
        assert done.stdout is not None
        said = done.stdout.readline()
        assert "never a reason to download" in said and asked == []
        done.communicate()
        assert asked  # who opens a model by name does ask
        hub.shutdown()
