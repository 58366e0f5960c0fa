"""Published checkpoints as a run: from a hub, a revision at a time, to dates, circuits and what heads cost."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import tracer
from tests.dashboard.words import written
from tests.hub import REPO, STEPS, Hub, train
from tracer.analysis.run_sweep import sweep_run
from tracer.analysis.when_causal import LEAST_EFFECT, LEAST_SCORE, rise
from tracer.measures.change_points import phase_change

pytestmark = pytest.mark.slow
SOME = "step200:step500"


@pytest.fixture(scope="module")
def branches(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    return made_once("hub", train)


def opened(hub: Hub, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tracer", "open", REPO, "--run", str(folder / "checkpoints/neox"), *options]
    return subprocess.run(command, cwd=folder, env=hub.environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def elsewhere(branches: Path, tmp_path_factory: pytest.TempPathFactory, module_patch: pytest.MonkeyPatch) -> Path:
    """Where one run was opened with its weights, and one without."""
    folder = tmp_path_factory.mktemp("opened")
    with Hub(branches, folder / "cache") as hub:
        for name, options in (("light", ("all", "--no-keep-weights")), ("neox", (SOME,))):
            hub.most, hub.fetched = 0, []
            said = opened(hub, folder, "--revisions", *options)
            assert said.returncode == 0, said.stderr
            if name == "light":
                (folder / "checkpoints/neox").rename(folder / "checkpoints/light")
                (folder / "light.json").write_text(json.dumps([hub.most, hub.weights(), hub.fetched]))
    module_patch.chdir(folder)
    module_patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "cache/hub"))
    return folder


@pytest.fixture(scope="module")
def module_patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_one_revision_of_weights_is_there_at_a_time(elsewhere: Path, branches: Path) -> None:
    most, left, fetched = json.loads((elsewhere / "light.json").read_text())
    sizes = {one.name: sum(file.stat().st_size for file in one.glob("*.safetensors")) for one in branches.iterdir()}
    assert len(sizes) == len(STEPS)
    assert 0 < most <= max(sizes.values()) and left == 0
    shards = [tuple(one) for one in fetched if one[1].endswith(".safetensors")]
    assert len(shards) == len(set(shards)) == sum(len(list(one.glob("*.safetensors"))) for one in branches.iterdir())
    run = tracer.open_run("light")
    assert run.trace["step"].values.tolist() == list(STEPS) and run.status == "finished" and run.steps == []
    with pytest.raises(ValueError, match="keeps no weights .*--no-keep-weights"):
        run.model()


def test_a_published_training_says_when_its_head_formed(elsewhere: Path) -> None:
    trace = tracer.open_run("light").trace
    assert float(trace["induction"][0].max()) < 0.1 and float(trace["induction"][-1].max()) > 0.3
    change = phase_change(trace["step"].values, trace["induction"].max(["layer", "head"]).values)
    assert change is not None and 100 <= change.onset <= change.end <= STEPS[-1]


def test_its_heads_become_causal_as_they_form(elsewhere: Path) -> None:
    run = tracer.open_run("neox")
    assert run.steps == [step for step in STEPS if step >= 200]
    effect = sweep_run(run, modes=["zero"]).sel(probe="repeat", mode="zero")["effect"].values
    score = run.trace["induction"].values
    layer, head = np.unravel_index(effect[-1].argmax(), effect[-1].shape)  # one that the induction heads share
    costs = rise(run.steps, effect[:, layer, head], LEAST_EFFECT)
    scored = rise(run.steps, score.max((1, 2)), LEAST_SCORE)
    assert costs.step is not None and scored.step is not None and abs(costs.step - scored.step) <= 100
    light = tracer.open_run("light").trace["induction"].sel(step=run.steps).values
    np.testing.assert_array_equal(score, light)  # what is measured does not depend on what is kept


@pytest.mark.parametrize("name", ["light", "neox"])
@pytest.mark.parametrize("page", ["runs", "heads", "find", "training", "phases", "gradients", "ablate", "circuits"])
def test_every_page_of_it_opens(open_page: Callable[..., AppTest], elsewhere: Path, page: str, name: str) -> None:
    words = written(open_page(page, run=name))
    assert "no snapshot yet" not in words
    if name == "light" and page in ("ablate", "circuits"):
        assert "keeps no weights" in words


def test_what_was_fetched_before_is_not_taken_away(branches: Path, tmp_path: Path) -> None:
    with Hub(branches, tmp_path / "cache") as hub:
        assert opened(hub, tmp_path, "--revisions", "step0").returncode == 0
        kept = hub.weights()
        assert kept == hub.size("step0")
        shutil.rmtree(tmp_path / "checkpoints")
        said = opened(hub, tmp_path, "--revisions", "step0", "step50", "--no-keep-weights")
        assert said.returncode == 0, said.stderr
        assert hub.weights() == kept and hub.most <= kept + hub.size("step50")
        said = opened(hub, tmp_path, "--revisions", "step0", "step7")
        assert said.returncode == 2 and "no revision 'step7'" in said.stderr and f"step{STEPS[-1]}" in said.stderr
