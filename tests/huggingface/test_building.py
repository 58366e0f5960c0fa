"""Models whose code is not in a run: built where a person names the function, and never because a run does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tracer
from tests import nano
from tracer.huggingface import building

BUILD = "nano_here:make_model"


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with somebody's module, and a run of their training loop."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(building.SETTING, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "nano_here", raising=False)
    source = Path(nano.__file__).read_text()
    (tmp_path / "nano_here.py").write_text(source + "\n\nimport pathlib\npathlib.Path('was-run').touch()\n")
    torch.manual_seed(0)
    model = nano.make_model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    with tracer.watch(model, run="theirs", build=BUILD, every=2) as recorder:
        for _ in range(6):
            ids = torch.randint(24, (32, 17))
            _, loss = model(ids[:, :-1], ids[:, 1:])
            assert loss is not None
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    assert recorder.off is None
    torch.save(model.state_dict(), tmp_path / "last.pt")
    (tmp_path / "was-run").unlink()
    monkeypatch.delitem(sys.modules, "nano_here")
    return tmp_path


def last(folder: Path) -> Any:
    model = nano.make_model().eval()
    model.load_state_dict(torch.load(folder / "last.pt", weights_only=True))
    return model


def test_a_run_alone_is_no_reason_to_run_code(loop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tracer.open_run("theirs")
    assert run.meta["build"] == BUILD and run.meta["family"] == "nanogpt"
    with pytest.raises(ValueError, match=f"where you trust it: run.model.step, build='{BUILD}'"):
        run.model()
    assert run.why_not("prompts").endswith(f"(where you trust it: `manyeyes --build {BUILD}`)")
    monkeypatch.setenv(building.SETTING, "another:function")
    assert run.why_not("prompts") and not (loop / "was-run").exists()
    monkeypatch.setenv(building.SETTING, f"another:function,{BUILD}")
    assert tracer.open_run("theirs").why_not("prompts") == "" and run.model().n_heads == 4


@pytest.mark.parametrize("named", [BUILD, nano.make_model], ids=["name", "function"])
def test_its_last_snapshot_is_the_model_that_was_trained(loop: Path, named: Any) -> None:
    state = torch.random.get_rng_state()
    rebuilt = tracer.open_run("theirs").model(build=named)
    assert torch.equal(torch.random.get_rng_state(), state)
    ids = torch.randint(24, (3, 20), generator=torch.Generator().manual_seed(0))
    wanted, _ = last(loop)(ids, ids)
    assert torch.equal(rebuilt(ids), wanted) and (rebuilt.n_ctx, rebuilt.d_vocab) == (32, 24)
    attributed = tracer.logit_attribution(rebuilt, ids)
    total = attributed.embed + attributed.heads.sum(("layer", "head")) + attributed.mlps.sum("layer")
    assert float(abs(total + attributed.biases - attributed.logit).max()) < 1e-4


def test_another_model_is_refused_before_anything_is_trained(loop: Path) -> None:
    model, before = nano.GPT(nano.Config(n_embd=16)), sorted(loop.iterdir())
    with pytest.raises(ValueError, match=r"builds another model .* \d+ tensors differ, the first is transformer"):
        tracer.watch(model, run="x", build=BUILD)
    for build, why in (
        ("nano_here", "write module:name"), ("nowhere:make", "nowhere cannot be imported from"),
        ("nano_here:nothing", "has no nothing"), ("nano_here:GPT", "could not build a model: TypeError"),
        ("nano_here:Config", "returned a Config, and no torch.nn.Module"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            tracer.watch(model, run="x", build=build)
    assert [one for one in sorted(loop.iterdir()) if one.name not in ("was-run", "__pycache__")] == [
        one for one in before if one.name != "__pycache__"
    ]


def test_weights_of_another_shape_are_refused(loop: Path) -> None:
    with pytest.raises(ValueError, match=r"differ in shape, the first is .*: .96. in the run, .48. in the model"):
        tracer.open_run("theirs").model(build=lambda: nano.GPT(nano.Config(n_embd=16)))
    with pytest.raises(ValueError, match=r"do not fit the model: 12 missing .transformer.h.2.*, 0 unknown"):
        tracer.open_run("theirs").model(build=lambda: nano.GPT(nano.Config(n_layer=3)))
    with pytest.raises(ValueError, match=r"0 missing .* 9 unknown .transformer.h.0.*bias"):
        tracer.open_run("theirs").model(build=lambda: nano.GPT(nano.Config(n_layer=2, bias=False)))
