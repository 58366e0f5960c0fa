"""What every browser test needs: real runs, the real server, Chromium, and tabs that may talk to nobody else."""

from dataclasses import replace

import pytest
import torch
from playwright.sync_api import sync_playwright

import tracer
from tests.browsing import ROOT, served
from tracer.presets import preset
from tracer.training import train


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with real runs: the toy until its induction heads have formed, a long context, somebody else's model."""
    folder = tmp_path_factory.mktemp("browser")
    toy = preset("induction").config
    train(replace(toy, run=str(folder / "checkpoints" / "toy"), device="cpu"), quiet=True)
    long = replace(toy, run=str(folder / "checkpoints" / "long"), steps=2, device="cpu")
    batch, record = replace(toy.optim, batch_size=1), replace(toy.record, val_rows=1, every=1, snapshot_every=1)
    train(replace(long, model=replace(toy.model, n_ctx=600), optim=batch, record=record), quiet=True)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
    recorder, optimizer = (
        tracer.watch(model, run=folder / "checkpoints" / "theirs", every=1),
        torch.optim.SGD(model.parameters()),
    )
    for _ in range(4):
        loss = model(torch.randn(32, 9, 16)).square().mean()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    return folder


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
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(30_000)
    elsewhere, problems = [], []

    def only_here(route):
        if route.request.url.startswith((server, "data:", "blob:")):
            return route.continue_()
        elsewhere.append(route.request.url)
        return route.abort()

    page.route("**/*", only_here)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    yield page
    assert elsewhere == [] and problems == []
    context.close()
