"""What every test shares: one thread, no network, an empty cache of its own, a port and a browser."""

import gc
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

from tests import children, forked
from tests.reaping import reap_at_the_end
from tests.surroundings import surroundings

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit all of this, and so share one cache
    scratch = tempfile.mkdtemp(prefix="manyeyes-tests-")
    reap_at_the_end(scratch)
    os.environ |= surroundings(scratch)

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


settings.register_profile("manyeyes", deadline=None, derandomize=True, database=None)  # same examples everywhere
settings.load_profile("manyeyes")


def usable_cores() -> int:
    """Cores this process may use: affinity, and the quota of a container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cpu_max = Path("/sys/fs/cgroup/cpu.max")
    if cpu_max.exists():
        quota, period = cpu_max.read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


@pytest.hookimpl(optionalhook=True)  # of xdist, without which tests run as well
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: much of it waits, for browsers and other processes."""
    return min(8, usable_cores() + 1)  # a worker holds torch and streamlit: about 1 GB


def pytest_collection_finish() -> None:
    """No garbage is in what collecting has made: each page that a test draws looks for some, in all there is."""
    gc.freeze()


@pytest.fixture
def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """What a test started ends with it, also when it fails or is interrupted."""
    yield
    children.end_all()


@pytest.fixture(autouse=True, scope="module")
def no_server_stays() -> Iterator[None]:
    """That of `forked` is as large as a worker."""
    yield
    forked.end()


@pytest.fixture(scope="session")
def made_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str, Callable[[Path], object]], Path]]:
    """made_once("toy", make): a folder that `make` filled, once for all workers; to be copied, not changed."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    used: dict[Path, list[tuple[str, int]]] = {}

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        found = shared / f"made-once-{name}"
        with FileLock(f"{found}.lock"):
            if not found.exists():
                making = found.with_suffix(".making")
                make(making)
                making.rename(found)
        used.setdefault(found, files(found))
        return found

    yield folder
    for found, before in used.items():
        assert files(found) == before, f"a test changed {found}, which all share: it should change a copy"


def files(folder: Path) -> list[tuple[str, int]]:
    """Path and size of every file below a folder, but for what the servers say that are started there."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "server.txt")
    return sorted((str(path), path.stat().st_size) for path in found)


@pytest.fixture(scope="session")
def trained_toy(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The directory of the preset `induction`, trained until its heads have formed; to be copied, not changed."""

    def make(folder: Path) -> None:
        from tracer.presets import preset  # not before the hook above
        from tracer.training.loop import train

        train(replace(preset("induction").config, run=str(folder / "toy"), device="cpu"), quiet=True)

    return made_once("toy", make) / "toy"


@pytest.fixture(scope="session")
def short_toy(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The toy after 30 steps, recorded at every 5th, with a snapshot at every 10th; to be copied, not changed."""

    def make(folder: Path) -> None:
        from tracer.presets import preset  # not before the hook above
        from tracer.training.loop import train

        toy = preset("induction").config
        record = replace(
            toy.record, every=5, snapshot_every=10, log_every=10, val_rows=4, text_prompts=1, repeat_prompts=1
        )
        quick = replace(toy, steps=30, device="cpu", optim=replace(toy.optim, batch_size=8), record=record)
        train(replace(quick, run=str(folder / "checkpoints" / "tiny")), preset="induction", quiet=True)

    return made_once("short", make) / "checkpoints" / "tiny"


@pytest.fixture(scope="session")
def long_toy(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The toy with room for 600 tokens, after two updates, each with a snapshot; to be copied, not changed."""

    def make(folder: Path) -> None:
        from tracer.presets import preset  # not before the hook above
        from tracer.training.loop import train

        toy = preset("induction").config
        record = replace(toy.record, every=1, snapshot_every=1, val_rows=1, text_prompts=1, repeat_prompts=1)
        quick = replace(toy, steps=2, device="cpu", optim=replace(toy.optim, batch_size=1), record=record)
        train(replace(quick, run=str(folder / "long"), model=replace(toy.model, n_ctx=600)), quiet=True)

    return made_once("long", make) / "long"


@pytest.fixture(scope="session")
def chromium() -> str:
    """The executable of a Chromium or Chrome; its absence is a failure, since the browser test is not optional."""
    wanted = os.environ.get("CHROMIUM")
    found = shutil.which(wanted) if wanted else next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail(
            f"no browser: {wanted or ', '.join(BROWSERS)} not found; run scripts/install-chromium", pytrace=False
        )
    return found
