"""What every browser test needs: real runs, the real server, Chromium, and tabs that may talk to nobody else."""

import shutil
from pathlib import Path

import pytest
import torch
from playwright.sync_api import sync_playwright

import tracer
from tests.browsing import ROOT, chromium_of, served, tab


@pytest.fixture(scope="session")
def trained(made_once, trained_toy, long_toy):
    """A folder with the toy, a long context and somebody else's model; to be copied, not changed."""

    def make(folder):
        shutil.copytree(trained_toy, folder / "checkpoints" / "toy")
        shutil.copytree(long_toy, folder / "checkpoints" / "long")
        watch_theirs(folder / "checkpoints" / "theirs")

    return made_once("trained", make)


def watch_theirs(directory):
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
    recorder, optimizer = tracer.watch(model, run=directory, every=1), torch.optim.SGD(model.parameters())
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


@pytest.fixture(scope="package")
def browser(chromium):
    """One for all of these tests, and gone before others: while it is there, nobody can start an event loop."""
    with sync_playwright() as playwright, chromium_of(playwright, chromium) as browser:
        yield browser


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that fails tells what the page said then: on another machine nobody can look."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and page is not None and not page.is_closed():
        report.sections.append((f"Page {page.url}", page.locator("body").aria_snapshot()))
    return report


@pytest.fixture
def page(browser, server):
    """A tab that may talk to the server and to nobody else, and that must not log an error or open a dialog."""
    with tab(browser, server) as page:
        yield page
