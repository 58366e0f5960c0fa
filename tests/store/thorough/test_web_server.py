"""Runs on a web server that is really there: Python's own, which lists folders and knows no ranges; also with TLS."""

import contextlib
import datetime
import functools
import ipaddress
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import trainings
from tests.waiting import wait
from tracer.files.disk import Damaged
from tracer.store import NotARun, copies, list_runs, open_run, remote
from tracer.store.snapshots import load_tensors
from tracer.training.loop import resume


class Handler(SimpleHTTPRequestHandler):
    """Python's own, which notes what it was asked for; some paths answer otherwise."""

    asked: list[str]
    pages: dict[str, tuple[int, dict[str, str], bytes]]

    def send_head(self):
        self.asked.append(f"{self.command} {self.path}")
        if self.path not in self.pages:
            return super().send_head()
        status, headers, body = self.pages[self.path]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "text/html", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)
        return None

    def log_message(self, *_):
        pass


class Quiet(ThreadingHTTPServer):
    def handle_error(self, *_):  # a client that does not trust the certificate hangs up
        pass


@contextlib.contextmanager
def serving(folder: Path, certificate: Path | None = None):
    """Its address, what it was asked for, and the pages that it answers otherwise."""
    handler: Any = type("One", (Handler,), {"asked": [], "pages": {}})
    server = Quiet(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http{'s' * bool(certificate)}://127.0.0.1:{server.server_port}", handler.asked, handler.pages
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def web(run, tmp_path, monkeypatch):
    """The folder above `run`, which also has an empty cache."""
    monkeypatch.setenv("MANYEYES_CACHE", str(tmp_path / "cache"))
    with serving(run.dir.parent) as served:
        yield served


def same(one, other, step: int) -> bool:
    mine, theirs = (load_tensors(run.dir / f"snapshots/{step:06d}.safetensors") for run in (one, other))
    return mine.keys() == theirs.keys() and all(bool((mine[name] == theirs[name]).all()) for name in theirs)


def test_weights_are_fetched_once_by_whoever_asks_at_once(run, web, monkeypatch):
    url, asked, _ = web
    there = open_run(f"{url}/r")
    monkeypatch.setattr(remote, "TOGETHER", 256)  # bytes, so that one is still fetching when the other begins
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(there.model, [2] * 4))
    assert same(there, run, 2)
    assert asked.count("GET /r/snapshots/000002.safetensors") == 1


def test_weights_that_are_fetched_during_a_refresh_stay(web, monkeypatch):
    there, listed = open_run(f"{web[0]}/r"), remote._list

    def then_opened(*given):
        found = listed(*given)
        there.model(2)
        return found

    monkeypatch.setattr(remote, "_list", then_opened)
    remote.mirror(f"{web[0]}/r")
    assert (there.dir / "snapshots/000002.safetensors").exists()
    assert "snapshots/000002.safetensors" in copies.note_of(there.dir)["here"]


def test_a_run_on_a_web_server_reads_like_one_in_a_folder(run, web):
    address, asked, _ = web
    there = open_run(f"{address}/r")
    assert there.name == "r" and there.steps == run.steps == [0, 2, 4] and there.status == "finished"
    assert there.trace.identical(run.trace) and there.log() == run.log() and there.samples() == run.samples()
    assert not [one for one in asked if one.startswith("GET") and "safetensors" in one]
    there.model(2)
    assert same(there, run, 2)
    assert {one for one in asked if "GET" in one and "safetensors" in one} == {"GET /r/snapshots/000002.safetensors"}
    assert [one.name for one in list_runs(address)] == ["r"]
    with (run.dir / "log.jsonl").open("a") as f:
        f.write('{"step": 99}\n')
    assert there.refresh().log()[-1] == {"step": 99}


def test_a_refresh_asks_for_what_may_have_changed(run, web):
    """Of a trace without a new row nothing but its steps; of one with new rows no chunk that was full before."""
    address, asked, _ = web
    for path in run.dir.rglob("*"):  # what is no older than two seconds less than the newest is asked for again
        os.utime(path, (100 * (path.name == "run.json"),) * 2)
    there = open_run(f"{address}/r")
    everything = len(asked)
    del asked[:]
    there.refresh()
    assert len(asked) < 20 < everything / 10
    assert {one for one in asked if "zarr" in one} == {f"GET /r/trace.zarr/step/c/{i}" for i in (0, 1)}
    assert {one for one in asked if "safetensors" in one} == set()
    resume(run.dir, steps=12, quiet=True)
    del asked[:]
    there.refresh()
    assert there.trace.identical(run.trace) and len(run.trace["step"]) == 8 and there.steps == run.steps
    patterns = {one.split("c.")[1].split(".")[0] for one in asked if one.startswith("HEAD /r/trace.zarr/pattern/c.")}
    assert patterns == {*map(str, range(3, 9))}  # the last that was there, those after it, and one more to see the end
    (run.dir / "snapshots" / "000002.safetensors").unlink()
    assert 2 not in there.refresh().steps
    meta = json.loads((run.dir / "run.json").read_text())  # another process goes on: it may have taken rows back
    (run.dir / "run.json").write_text(json.dumps({**meta, "pid": -1}))
    del asked[:]
    there.refresh()
    assert "HEAD /r/trace.zarr/pattern/c.0.0.0.0.0.0" in asked


def test_a_live_run_is_followed_and_its_death_seen(tmp_path, monkeypatch):
    """Served from where it trains: no row is seen before its arrays."""
    monkeypatch.setenv("MANYEYES_CACHE", str(tmp_path / "cache"))
    (tmp_path / "runs").mkdir()
    process = trainings.start(tmp_path / "runs" / "far", "--steps", "100000")

    def rows() -> int:
        try:
            return len(open_run(tmp_path / "runs" / "far").trace["step"])
        except (OSError, NotARun):
            return 0

    wait(lambda: rows() or process.poll() is not None)
    with serving(tmp_path / "runs") as (address, _, _):
        there = open_run(f"{address}/far")
        assert there.live and there.status == "training"
        before = len(there.trace["step"])
        wait(lambda: rows() > before)
        there.refresh().trace.load()
        assert len(there.trace["step"]) > before
        process.send_signal(signal.SIGKILL)
        process.wait()
        monkeypatch.setattr("tracer.store.copies.SILENCE", 0.0)  # what a wait of two minutes comes to
        assert there.refresh().status == "interrupted" and not there.live


def test_links_of_a_stranger_lead_nowhere(run, web, tmp_path):
    """Neither up, nor to another machine, nor to code; and what is not of a run is not asked for."""
    address, asked, pages = web
    (tmp_path / "secret").write_text("x")
    with serving(tmp_path) as (other, asked_there, _):
        links = [
            "../secret", "/secret", "..%2fsecret", "%2e%2e/secret", "snapshots/..%2f..%2fsecret", f"{other}/run.json",
            f"//{other.partition('//')[2]}/log.jsonl", "log.jsonl?x=1", "file:///etc/passwd", "javascript:alert(1)",
            "http://[", "evil.py", "evil/", "..\\secret", "run.json", "trace.zarr/", "config.json#x", ".hidden",
        ]  # fmt: skip
        page = "".join(f"<a href='{link}'>log.jsonl</a>" for link in links)
        pages["/r/"] = (200, {}, page.encode())
        pages["/r/run.json"] = (200, {"Content-Type": "text/x-python"}, (run.dir / "run.json").read_bytes())
        there = open_run(f"{address}/r")
        assert there.trace.identical(run.trace) and there.steps == []
        assert {path.name for path in there.dir.iterdir()} == {"run.json", "trace.zarr"}
        assert not [one for one in asked if not one.split()[1].startswith(("/r/run.json", "/r/trace.zarr/"))
                    and one.split()[1] != "/r/"]  # fmt: skip
        pages["/r/run.json"] = (302, {"Location": f"{other}/run.json"}, b"")
        with pytest.raises(OSError, match="leads to http://127.* nothing is followed to another address"):
            there.refresh()
        assert asked_there == []


def test_what_is_too_large_or_endless_is_not_fetched(run, web):
    address, asked, pages = web
    pages["/r/log.jsonl"] = (200, {"Content-Length": str(257 << 20)}, b"")
    with pytest.raises(Damaged, match="more than the"):
        open_run(f"{address}/r")
    assert not [one for one in asked if one.startswith("GET") and not one.endswith("/")]
    pages["/r/log.jsonl"] = (200, {}, b"")
    for depth in range(40):  # a folder in itself
        pages[f"/r/snapshots/{'a/' * depth}"] = (200, {}, b"<a href='a/'>")
    del asked[:]
    with pytest.raises(OSError, match="has folders more than 12 deep .*deeper than a run has"):
        open_run(f"{address}/r")
    assert max(one.count("/a") for one in asked) < 12


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (403, b"", OSError, "does not list what is in a folder.*autoindex"),
        (404, b"", OSError, "does not list what is in a folder.*copy the run here"),
        (200, b"<h1>Welcome</h1>", OSError, "does not list what is in a folder"),
        (401, b"", OSError, "401 Unauthorized"),
        (503, b"", OSError, "503"),
        (301, b"", OSError, "nothing is followed"),
    ],
)
def test_a_server_that_does_not_list(run, web, status, body, error, words):
    address, _, pages = web
    pages["/r/"] = (status, {"Location": "https://example.org/r/"} if status == 301 else {}, body)
    if status == 401:
        pages["/r/run.json"] = (401, {}, b"")
    with pytest.raises(error, match=words):
        open_run(f"{address}/r")


def test_what_is_not_there(web):
    address, _, pages = web
    with pytest.raises(FileNotFoundError, match="/none"):
        open_run(f"{address}/none")
    pages["/x/"] = (200, {}, b"<a href='y'>")
    with pytest.raises(FileNotFoundError, match="no run.json"):
        open_run(f"{address}/x")


def tracer(*words: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "tracer", *words], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **env})  # fmt: skip


def test_tls_with_a_certificate_of_one_s_own(run, tmp_path, monkeypatch):
    """It is trusted by name of SSL_CERT_FILE only; the folder stands in MANYEYES_RUNS beside another."""
    monkeypatch.setenv("MANYEYES_CACHE", str(tmp_path / "cache"))
    shutil.copytree(run.dir, tmp_path / "here" / "near")
    certificate = certified(tmp_path / "certificate.pem")
    with serving(run.dir.parent, certificate) as (address, _, _):
        runs = {"MANYEYES_RUNS": f"{tmp_path}/here:{address}"}
        told = json.loads(tracer("ls", "--json", **runs, SSL_CERT_FILE=str(certificate)).stdout)
        where = {one["run"]: one["directory"] for one in told["runs"]}
        assert where == {"near": f"{tmp_path}/here/near", "r": f"{address}/r"}
        shutil.rmtree(tmp_path / "cache")
        told = json.loads(tracer("ls", "--json", **runs).stdout)
        assert [one["run"] for one in told["runs"]] == ["near"] and "certificate" in told["broken"][address].lower()
        refused = tracer("sweep", f"{address}/r", SSL_CERT_FILE=str(certificate))
        assert refused.returncode == 2 and "is only read: write to a folder of this machine" in refused.stderr


def certified(path: Path) -> Path:
    """A key and a certificate of 127.0.0.1 that it signed itself, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "here")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now).add_extension(here, critical=False)
        .not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(*form) + made.public_bytes(serialization.Encoding.PEM))
    return path
