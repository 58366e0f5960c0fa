"""Runs elsewhere: on a real S3-compatible server, and over SFTP."""

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests import children, forked, trainings
from tests.waiting import wait
from tracer.files.disk import Damaged
from tracer.store import NotARun, copies, following, housekeeping, list_runs, open_run
from tracer.store.snapshots import load_tensors

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """moto's S3 server, a process of its own; its address, once it says it."""
    told = tmp_path_factory.mktemp("s3") / "log.txt"
    with told.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=log, stderr=log, env={**os.environ, **KEYS},
        )  # fmt: skip
    wait(lambda: "Running on http://" in told.read_text() or process.poll() is not None, 60)
    yield told, "http" + told.read_text().split("Running on http")[1].split()[0]
    process.kill()
    process.wait()


@pytest.fixture
def bucket(server, tmp_path, monkeypatch):
    """A new bucket, and an empty cache."""
    import s3fs

    for name, value in {**KEYS, "AWS_ENDPOINT_URL": server[1], "MANYEYES_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(urllib.request.Request(f"{server[1]}/moto-api/reset", method="POST")).close()
    s3fs.S3FileSystem.clear_instance_cache()
    fs = s3fs.S3FileSystem()
    fs.mkdir("bucket")
    return fs


def requests(server, before: int = 0) -> list[str]:
    """What the server was asked for."""
    return [line.split('"')[1] for line in server[0].read_text().splitlines()[before:] if " HTTP/1.1" in line]


def lines(server) -> int:
    return len(server[0].read_text().splitlines())


def same(one, step: int, other, at: int) -> bool:
    """Weights of two runs, number for number."""
    mine, theirs = (load_tensors(run.dir / f"snapshots/{s:06d}.safetensors") for run, s in ((one, step), (other, at)))
    return mine.keys() == theirs.keys() and all(bool((mine[name] == theirs[name]).all()) for name in theirs)


def test_who_may_not_read_is_told(bucket, monkeypatch, tmp_path):
    """A store's own exceptions do not come through: here botocore finds nobody to sign as."""
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(OSError, match="s3://bucket/r (cannot be read|has no run.json)"):
        open_run("s3://bucket/r")


def test_a_run_in_a_bucket_reads_like_one_in_a_folder(run, bucket, server):
    bucket.put(str(run.dir), "bucket/runs/r", recursive=True)
    bucket.put(str(run.dir), "bucket/runs/other", recursive=True)
    before = lines(server)
    there = open_run("s3://bucket/runs/r")
    assert there.name == "r" and there.steps == run.steps == [0, 2, 4] and there.status == "finished"
    assert there.trace.identical(run.trace) and there.log() == run.log() and there.samples() == run.samples()
    asked = requests(server, before)
    assert not [one for one in asked if "safetensors" in one]
    there.model(2)
    assert same(there, 2, run, 2)
    weights = {one.split()[1] for one in requests(server, before) if "safetensors" in one}
    assert weights == {"/bucket/runs/r/snapshots/000002.safetensors"}
    assert there.state_steps == [0] and there.can("states") and sorted(there.state(0)) == sorted(run.state(0))
    assert sorted(one.name for one in list_runs("s3://bucket/runs")) == ["other", "r"]


def test_what_changed_is_fetched_again(run, bucket, server):
    bucket.put(str(run.dir), "bucket/r", recursive=True)
    there = open_run("s3://bucket/r")
    there.model(4)
    told = there.stamp
    before = lines(server)
    assert there.refresh().stamp == told
    asked = requests(server, before)
    assert not [one for one in asked if "/pattern/" in one or "safetensors" in one], "nothing had changed"
    with (run.dir / "log.jsonl").open("a") as f:
        f.write('{"step": 99}\n')
    shutil.copy(run.dir / "snapshots/000002.safetensors", run.dir / "snapshots/000004.safetensors")
    bucket.put(str(run.dir), "bucket/", recursive=True)
    assert there.refresh().log()[-1] == {"step": 99}
    there.model(4)
    assert same(there, 4, run, 2)
    bucket.rm("bucket/r/snapshots/000002.safetensors")
    assert there.refresh().steps == [0, 4]


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("log.jsonl", 257 << 20, "more than the"),
        ("run.json", 5 << 20, "more than the"),
        ("../r/x/../../y", 1, "out of"),
    ],
)
def test_hostile_files_are_refused_before_they_are_fetched(run, bucket, server, name, size, words, tmp_path):
    bucket.put(str(run.dir), "bucket/r", recursive=True)
    if name.startswith(".."):
        bucket.call_s3("put_object", Bucket="bucket", Key="r/snapshots/../../../y", Body=b"x")
    else:
        bucket.pipe_file(f"bucket/r/{name}", b" " * size)
    before = lines(server)
    with pytest.raises(Damaged, match=words):
        open_run("s3://bucket/r")
    assert not [one for one in requests(server, before) if one.startswith("GET /bucket/r")]
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://example.org", "names no folder of a run"),
        ("https://example.org/r?key=1", "names no folder of a run"),
        ("ftp://example.org/r", "runs are read from s3://"),
        ("file:///etc/r", "runs are read from s3://"),
        ("simplecache::s3://bucket/r", "runs are read from|is not|does not exist"),
        ("s3://bucket", "names no folder of a run"),
        ("s3://bucket/..", "names no folder of a run"),
    ],
)
def test_what_is_no_place_of_a_run(url, words, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYEYES_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match=words):
        open_run(url)


def test_a_stranger_s_run_names_no_address(run, bucket, server):
    """Only what lies in the cache is a copy, and its address lies outside the run's folder."""
    bucket.put(str(run.dir), "bucket/r", recursive=True)
    note = {"url": "s3://bucket/r", "there": {"snapshots/000008.safetensors": [1, "x"]}, "here": {}, "newest": 1e12}
    for place in (run.dir / ".r.json", run.dir.parent / ".r.json"):
        place.write_text(json.dumps(note))
    before = lines(server)
    assert open_run(run.dir).refresh().steps == [0, 2, 4]
    assert requests(server, before) == []


def test_a_live_run_is_followed_and_its_death_seen(tmp_path, bucket, monkeypatch):
    """A real training, synced to the bucket as a person would; killed, it falls silent."""
    directory = tmp_path / "far"
    process = trainings.start(directory, "--steps", "100000")
    wait(lambda: rows(directory) or process.poll() is not None)
    sync(directory, bucket)
    there = open_run("s3://bucket/far")
    assert there.live and there.status == "training"
    first = there.trace["step"].values
    wait(lambda: rows(directory) > len(first))
    sync(directory, bucket)
    later = there.refresh().trace
    assert len(later["step"]) > len(first)
    later.load()
    process.send_signal(signal.SIGKILL)
    process.wait()
    sync(directory, bucket)
    monkeypatch.setattr("tracer.store.copies.SILENCE", 0.0)  # what a wait of two minutes comes to
    assert there.refresh().status == "interrupted" and not there.live
    there.trace.load()


def rows(directory: Path) -> int:
    """Committed ones; none before the trace is laid out."""
    try:
        return len(open_run(directory).trace["step"])
    except (OSError, NotARun):
        return 0


def sync(directory: Path, bucket) -> None:
    """What has its name; the rows that are committed before all else is looked at are told of last."""
    steps = {path: path.read_bytes() for path in directory.rglob("step/c/*") if not path.name.startswith(".")}
    files = [path for path in directory.rglob("*") if path.is_file() and not path.name.startswith(".")]
    for path in sorted(files, key=steps.__contains__):
        with contextlib.suppress(FileNotFoundError):  # an old resume point, gone since
            content = steps.get(path) or path.read_bytes()
            bucket.pipe_file(f"bucket/{directory.name}/{path.relative_to(directory)}", content)


def tracer(*words: str) -> subprocess.CompletedProcess:
    """By Python itself: MANYEYES_RUNS is read as it imports the command line."""
    return subprocess.run([sys.executable, "-m", "tracer", *words], capture_output=True, text=True, timeout=120)


def test_the_command_line_lists_and_does_not_write(run, bucket):
    bucket.put(str(run.dir), "bucket/runs/r", recursive=True)
    bucket.pipe_file("bucket/runs/huge/run.json", b" " * (5 << 20))
    told = json.loads(forked.tracer("ls", "s3://bucket/runs", "--json").stdout)
    assert [(x["run"], x["directory"], x["snapshots"]) for x in told["runs"]] == [("r", "s3://bucket/runs/r", 3)]
    assert "more than the" in told["broken"]["huge"]
    for words in (["resume", "s3://bucket/runs/r"], ["train", "induction", "--run", "s3://bucket/runs/new"],
                  ["sweep", "s3://bucket/runs/r"]):  # fmt: skip
        refused = forked.tracer(*words)
        assert refused.returncode == 2 and "is only read: write to a folder of this machine" in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("places", "answer"),
    [
        ("", []),
        ("a:/b/c", ["a", "/b/c"]),
        ("s3://bucket:a", ["s3://bucket", "a"]),
        ("a:s3://bucket/r:gs://b/r", ["a", "s3://bucket/r", "gs://b/r"]),
        ("ssh://me@host:22/r:ssh://host:2222:a", ["ssh://me@host:22/r", "ssh://host:2222", "a"]),
    ],
)
def test_folders_and_urls_in_one_variable(places, answer):
    assert copies.split(places) == answer


def test_urls_among_the_folders_of_runs(run, bucket, monkeypatch, tmp_path):
    """They are listed beside folders and opened by name; one out of reach hides no other."""
    bucket.put(str(run.dir), "bucket/runs/far", recursive=True)
    shutil.copytree(run.dir, tmp_path / "here" / "near")
    monkeypatch.setenv("MANYEYES_RUNS", f"{tmp_path}/here:s3://bucket/runs:s3://nowhere/runs")
    told = json.loads(tracer("ls", "--json").stdout)
    where = {x["run"]: x["directory"] for x in told["runs"]}
    assert where == {"near": f"{tmp_path}/here/near", "far": "s3://bucket/runs/far"}
    assert list(told["broken"]) == ["s3://nowhere/runs"]
    refused = tracer("sweep", "far")
    assert refused.returncode == 2 and "s3://bucket/runs/far lies elsewhere" in refused.stderr


def test_the_dashboard_opens_whatever_is_out_of_reach(run, bucket, monkeypatch, tmp_path):
    """It says so, keeps what was fetched before, and does not mind a folder that is not there yet."""
    bucket.put(str(run.dir), "bucket/runs/far", recursive=True)
    bucket.pipe_file("bucket/runs/huge/run.json", b" " * (5 << 20))
    monkeypatch.setenv("MANYEYES_RUNS", f"{tmp_path}/none:s3://bucket/runs:s3://nowhere/runs")
    server = children.start([sys.executable, "-u", "-m", "tracer", "view", "--no-browser"],
                            stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert server.stdout is not None
    told = [server.stdout.readline() for _ in range(3)]
    assert sorted(line.split(" is shown as it was last fetched: ")[0] for line in told[:2]) == [
        "s3://bucket/runs/huge", "s3://nowhere/runs"]  # fmt: skip
    assert told[2].startswith("manyeyes: http://")
    server.terminate()  # it ends its own server
    assert server.wait() == 143
    assert [one.name for one in list_runs(copies.below("s3://bucket/runs"))] == ["far"]


def test_a_store_that_does_not_answer_is_not_waited_for(bucket, monkeypatch):
    """A port that takes the connection and says nothing, as behind a network that is down."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(following, "PATIENCE", 0.5)
        type(bucket).clear_instance_cache()
        assert following.update(["s3://bucket/runs"]) == {"s3://bucket/runs": "it had not come after 0.5 s"}


SFTP = """
import asyncio, asyncssh, sys
async def serve():
    server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[sys.argv[1]], sftp_factory=True,
                                   authorized_client_keys=sys.argv[2])
    print(server.get_port(), flush=True)
    await server.wait_closed()
asyncio.run(serve())
"""


def listens(server: str, ssh: Path, tmp_path: Path) -> str:
    """The port of an SSH server that lets in who has the key in this folder."""
    if server == "asyncssh":
        command = [sys.executable, "-c", SFTP, str(ssh / "host"), str(ssh / "id_ed25519.pub")]
        process = children.start(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return process.stdout.readline().strip()
    if (sshd := shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")) is None:
        pytest.skip("no sshd is installed")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it asks to be when root starts it
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said = {
        "ListenAddress": f"127.0.0.1:{port}", "HostKey": ssh / "host", "AuthorizedKeysFile": ssh / "id_ed25519.pub",
        "StrictModes": "no", "PidFile": "none", "UsePAM": "no", "Subsystem": "sftp internal-sftp",
    }  # fmt: skip
    options = [word for name, value in said.items() for word in ("-o", f"{name} {value}")]
    log = tmp_path / "sshd.txt"
    children.start([sshd, "-D", "-E", str(log), "-f", "/dev/null", *options])
    wait(lambda: log.exists() and "Server listening" in log.read_text(), 60)
    return str(port)


@pytest.mark.parametrize("server", ["asyncssh", "OpenSSH"])
def test_a_run_over_sftp(run, tmp_path, monkeypatch, server):
    """A real SSH server with public keys; a machine that is not known is not spoken to."""
    import asyncssh

    ssh = tmp_path / "home" / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    for name in ("host", "id_ed25519"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(ssh / name)
        (ssh / name).chmod(0o600)
        key.write_public_key(ssh / f"{name}.pub")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MANYEYES_CACHE", str(tmp_path / "cache"))
    port = listens(server, ssh, tmp_path)
    url = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{run.dir}"
    with pytest.raises(OSError, match="does not hold the key"):
        open_run(url)
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{port} {(ssh / 'host.pub').read_text()}")
    (run.dir / "samples.jsonl").unlink()
    (run.dir / "samples.jsonl").symlink_to("/etc/passwd")
    there = open_run(url)
    assert there.trace.identical(run.trace) and there.steps == run.steps and there.log() == run.log()
    assert not (there.dir / "samples.jsonl").exists() and not (there.dir / "snapshots").exists()
    there.model(2)
    assert [path.name for path in (there.dir / "snapshots").glob("[!.]*")] == ["000002.safetensors"]
    with (run.dir / "log.jsonl").open("a") as f:
        f.write('{"step": 99}\n')
    assert there.refresh().log()[-1] == {"step": 99}
    assert [one.name for one in list_runs(url.rpartition("/")[0])] == ["r"]


def test_a_copy_is_neither_moved_nor_removed(run, bucket):
    bucket.put(str(run.dir), "bucket/r", recursive=True)
    there = open_run("s3://bucket/r")
    for change in (lambda: housekeeping.rename(there, "s"), lambda: housekeeping.remove(there)):
        with pytest.raises(ValueError, match="s3://bucket/r lies elsewhere and is only read"):
            change()
    assert there.status == "finished" and there.dir.is_dir()


HUB_READER = """
import json, sys
from tracer.store import list_runs, open_run
url, step = sys.argv[1], int(sys.argv[2])
there = open_run(url)
there.trace.load()
there.model(step)
print(json.dumps([there.name, there.status, there.steps, there.log(), str(there.dir),
                  [one.name for one in list_runs(url.rpartition("/")[0])]]))
"""


def test_a_run_on_a_hub(run, tmp_path):
    """Spoken to by huggingface_hub itself, in a process that takes a server of this machine for the hub."""
    from tests.hub import REPO, Hub

    branch = tmp_path / "branches" / "main"
    shutil.copytree(run.dir, branch / "runs" / "r")
    with Hub(tmp_path / "branches", tmp_path / "hub") as hub:
        env = {**hub.environment, "MANYEYES_CACHE": str(tmp_path / "cache")}

        def read() -> list:
            words = [sys.executable, "-c", HUB_READER, f"hf://{REPO}/runs/r", "2"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env)
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        *told, place, beside = read()
        assert told == ["r", "finished", [0, 2, 4], run.log()] and beside == ["r"]
        there = open_run(place)
        assert there.trace.identical(run.trace) and same(there, 2, run, 2)
        assert [name for _, name in hub.fetched if "safetensors" in name] == ["runs/r/snapshots/000002.safetensors"]
        with (branch / "runs/r/log.jsonl").open("a") as f:
            f.write('{"step": 99}\n')
        hub.fetched.clear()
        assert read()[3][-1] == {"step": 99}
        assert not [name for _, name in hub.fetched if "/pattern/" in name or "safetensors" in name]
