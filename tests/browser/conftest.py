"""What every browser test needs: real runs, the real server, Chromium, and tabs that may talk to nobody else."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from playwright.sync_api import sync_playwright

import tracer
from tests.browsing import ROOT, served, tab
from tracer.presets import preset
from tracer.training import train


@pytest.fixture(scope="session")
def trained(tmp_path_factory, testrun_uid, worker_id):
    """The runs below, made once and shared by all workers; to be copied, not changed."""
    alone = worker_id == "master"
    base = tmp_path_factory.getbasetemp()
    folder = (base if alone else base.parent) / f"trained-{testrun_uid}"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            making = folder.with_suffix(".making")
            train_all(making / "checkpoints")
            making.rename(folder)
    return folder


def train_all(checkpoints):
    """The toy until its induction heads have formed, a long context, somebody else's model."""
    toy = preset("induction").config
    train(replace(toy, run=str(checkpoints / "toy"), device="cpu"), quiet=True)
    long = replace(toy, run=str(checkpoints / "long"), steps=2, device="cpu")
    batch, record = replace(toy.optim, batch_size=1), replace(toy.record, val_rows=1, every=1, snapshot_every=1)
    train(replace(long, model=replace(toy.model, n_ctx=600), optim=batch, record=record), quiet=True)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
    recorder, optimizer = (
        tracer.watch(model, run=checkpoints / "theirs", every=1),
        torch.optim.SGD(model.parameters()),
    )
    for _ in range(4):
        loss = model(torch.randn(32, 9, 16)).square().mean()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()


@pytest.fixture(scope="session")
def folder(trained, tmp_path_factory):
    """A folder with real runs, this worker's own."""
    return Path(shutil.copytree(trained, tmp_path_factory.mktemp("browser") / "work"))


@pytest.fixture(scope="session")
def server(folder):
    """The address of the dashboard over `folder`."""
    with served(ROOT / "dashboard" / "app.py", folder) as url:
        yield url


@pytest.fixture(scope="module")
def browser(chromium):
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server):
    """A tab that may talk to the server and to nobody else, and that must not log an error or open a dialog."""
    with tab(browser, server) as page:
        yield page
