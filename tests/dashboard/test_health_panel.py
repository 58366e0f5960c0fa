"""The Health chip on real runs: a word on every page of a run; findings lead to their step and their heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from streamlit.testing.v1 import AppTest

import tracer
from dashboard.loading import diagnoses
from dashboard.shared import closer, health_panel
from dashboard.shared.health_panel import marked
from dashboard.theme import sentence
from tests.dashboard.test_specimens import narrow
from tests.dashboard.test_training import BROKEN
from tracer.cli import serving
from tracer.diagnosis import RULES, Kind, diagnose
from tracer.files.disk import Damaged
from tracer.named_code import RULES as RULES_SETTING
from tracer.named_code import remembered
from tracer.presets import preset
from tracer.store import Run, open_run
from tracer.training.loop import train

Open = Callable[..., AppTest]
PAGES = ("heads", "training", "gradients")


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose attention is one-hot from the start, and which learns next to nothing."""
    folder = tmp_path_factory.mktemp("sick")
    config = narrow(preset("single-head-unscaled-small").config, folder / "checkpoints" / "sick", 20)
    config = replace(config, model=replace(config.model, d_model=128), optim=replace(config.optim, lr=1e-9))
    train(config, preset="single-head-unscaled", quiet=True)
    return folder


@pytest.fixture
def elsewhere(sick: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(sick)
    return sick


def texts(app: AppTest) -> list[str]:
    return [text.value for text in app.text]


def chips(app: AppTest) -> list[str]:
    return [block.proto.popover.label for block in app.main.children.values() for block in popovers(block)]


def popovers(block: Any) -> list[Any]:
    """Every popover with this key below a block."""
    found = [block] if getattr(block, "type", "") == "popover" and "health_chip" in str(block.proto) else []
    return found + [one for child in getattr(block, "children", {}).values() for one in popovers(child)]


@pytest.mark.parametrize("page", PAGES)
def test_every_finding_is_told_in_full(open_page: Open, elsewhere: Path, page: str) -> None:
    app, found = open_page(page, run="sick"), diagnose(open_run("sick"))
    assert found
    for one in found:
        assert f"{marked(one.severity)} &nbsp;**{one.title}**" in [m.value for m in app.markdown]
        assert {sentence(one.evidence), f"Source: {one.source}."} <= set(texts(app))
        assert {f"{label}: {text}." for label, text in one.advice.texts().items()} <= set(texts(app))
    steps = [b.label for b in app.button if str(b.key).startswith("health_step")]
    assert steps == [f"Since step {one.step:,}" for one in found]


def test_the_worst_are_counted_first(open_page: Open, elsewhere: Path) -> None:
    severities = [one.severity for one in diagnose(open_run("sick"))]
    bad, watch = severities.count("bad"), severities.count("watch")
    assert bad and watch
    assert chips(open_page("training", run="sick")) == [f":red-badge[✕ {bad} bad, {watch} to watch]"]


def test_buttons_go_to_the_step_and_to_the_head(open_page: Open, elsewhere: Path) -> None:
    app, first = open_page("training", run="sick", step=20), diagnose(open_run("sick"))[0]
    app.button(key="health_step 0").click().run()
    assert app.session_state["selection"].step == first.step == 0
    app.button(key="health_head 0 L0H0").click().run()
    assert app.session_state["selection"].focus == (0, 0)


def test_a_button_goes_to_the_pattern_of_the_head_at_the_step(
    open_page: Open, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = []
    monkeypatch.setattr(health_panel.st, "switch_page", lambda page: turned.append(page.url_path))
    app = open_page("training", run="sick", step=20)
    app.button(key="health_look 0").click().run()
    selection = app.session_state["selection"]
    assert turned == ["heads"] and (selection.step, selection.focus) == (0, (0, 0))


def test_a_finding_between_records_is_looked_at_closer(open_page: Open, elsewhere: Path) -> None:
    """The first is found where every step was recorded; the run's own command says which steps are meant."""
    found, steps = [one.step for one in diagnose(open_run("sick"))], open_run("sick").trace["step"].values.tolist()
    assert found == [0, 10] and steps == [0, 1, 2, 4, 5, 10, 15, 20]
    (button,) = (b for b in open_page("training", run="sick").button if b.label == "Every step of it")
    assert button.key == "health_closer 1" and button.help.endswith("`tracer replay sick 5:15`")
    assert "steps 5 to 15" in button.help and "updates from the kept state of step 0" in button.help


@pytest.mark.parametrize(("step", "around"), [(0, None), (4, (2, 10)), (7, (4, 10)), (10, (4, 20)), (20, (10, 25))])
def test_the_steps_between_the_records_around_one(step: int, around: tuple[int, int] | None) -> None:
    """Of a run that was trained to 25; where all are recorded there is nothing more to see."""
    assert closer.around([0, 1, 2, 4, 10, 20], step, 25) == around


@pytest.mark.parametrize("page", PAGES)
def test_every_finding_says_when_it_is_made_and_why(open_page: Open, elsewhere: Path, page: str) -> None:
    app = open_page(page, run="sick")
    assert {RULES[one.kind].text for one in diagnose(open_run("sick"))} <= set(texts(app))


@pytest.mark.parametrize("page", ["heads", "find", "training", "phases", "gradients", "ablate", "circuits"])
def test_a_healthy_run_says_so_on_every_page_and_what_was_looked_for(
    open_page: Open, small_run: Run, page: str
) -> None:
    assert diagnose(small_run) == []
    app = open_page(page, run="tiny")
    assert chips(app) == [":green-badge[✓ healthy]"]
    (listed,) = (m.value for m in app.markdown if m.value.startswith("- divergence"))
    assert listed.split("\n") == [
        f"- {name}" for name in (
            "divergence", "overfitting", "training rows unlike the held-out ones", "a loss worse than guessing",
            "one-hot attention out of reach", "gradients that vanish into W_Q and W_K",
            "entropy collapse", "exploding attention scores",
            "an exploding residual stream", "update ratios out of band", "weights that never move",
            "a loss no better than counting tokens", "attention that does not choose",
            "heads that are copies of each other", "dead heads",
        )
    ]  # fmt: skip
    (missing,) = (c.value for c in app.caption if c.value.startswith("Not measured in this run: "))
    assert missing.endswith("heads that stand in for a residual connection, idle heads.")


def test_what_a_run_does_not_hold_is_not_said_to_be_looked_for(copy_run: Callable[..., Run], workplace: Path) -> None:
    run = copy_run("bare")
    for name in ("val_loss", "head_grad_norm", "resid_rms"):
        kept = zarr.open_array(run.dir / "trace.zarr" / name, mode="r+")
        kept.with_config({"write_empty_chunks": True})[:] = np.nan
    found = diagnoses.diagnosis(run)
    gone: tuple[Kind, ...] = ("overfit", "mismatch", "vanishing", "residual", "unigram", "idle")
    watched: tuple[Kind, ...] = (
        "leak", "rows", "targets", "one-token", "silent", "repeated", "positions", "flat", "rounding", "stands-in",
    )  # fmt: skip
    missing = [rule.name for kind, rule in RULES.items() if kind in (*gone, *watched)]
    assert found.not_measured == missing
    assert found.looked_for == [rule.name for rule in RULES.values() if rule.name not in missing]


def test_a_run_whose_numbers_are_damaged_is_not_called_healthy(
    open_page: Open, copy_run: Callable[..., Run], workplace: Path
) -> None:
    run = copy_run("torn")
    (run.dir / "trace.zarr" / "val_loss" / "c.0").unlink()
    with pytest.raises(Damaged, match="val_loss"):
        diagnose(run)
    assert health_panel.chip(run) == "" and chips(open_page("training", run="torn")) == []
    run = copy_run("torn and broken", status="diverged", divergence=BROKEN)
    (run.dir / "trace.zarr" / "val_loss" / "c.0").unlink()
    told = [one.value for one in open_page("training", run="torn and broken").error]
    assert any("at step 20" in text for text in told) and not any("helps" in text for text in told)


def test_the_chip_tells_of_a_divergence(open_page: Open, copy_run: Callable[..., Run]) -> None:
    copy_run("broken", status="diverged", divergence=BROKEN)
    gradients = open_page("gradients", run="broken")
    assert f"{marked('bad')} &nbsp;**The run diverged: not finite any more**" in [m.value for m in gradients.markdown]
    assert any("blocks.1.attn.hook_q in L1H2, in the forward pass at step 20" in text for text in texts(gradients))


def test_a_name_in_the_evidence_is_text(open_page: Open, copy_run: Callable[..., Run]) -> None:
    hostile: dict[str, Any] = {**BROKEN["non_finite"], "where": "**x** <img src=x>", "head": None}
    copy_run("broken", status="diverged", divergence={**BROKEN, "non_finite": hostile})
    app = open_page("gradients", run="broken")
    assert any("**x** <img src=x> in layer 1" in text for text in texts(app))
    assert not any("<img" in m.value for m in app.markdown)


def test_findings_are_read_again_when_the_run_moves_on(copy_run: Callable[..., Run], workplace: Path) -> None:
    run = copy_run("moving")
    assert diagnoses.diagnosis(run).findings == []
    path = run.dir / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "divergence": BROKEN}))
    assert [one.kind for one in diagnoses.diagnosis(run).findings] == ["divergence"]


@tracer.rule(needs="entropy", text="Found at each last step.")
def ever(trace: Any) -> Any:
    yield int(trace.step[-1]), [(0, 1)], "as ever"


@tracer.rule
def broken(trace: Any) -> Any:
    yield 0, [], trace.nowhere


def test_what_a_rule_of_ones_own_found_is_on_the_page_with_its_code_and_without(
    open_page: Open, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_run("own")
    assert chips(open_page("training", run="own")) == [":green-badge[✓ healthy]"]
    title = "![x](http://x.y/z) <img> :material/home:"
    row = {"step": run.trace.step.values[-1].item(), "kind": "ever", "severity": "bad", "title": title,
           "heads": [[0, 1]], "evidence": "told", "source": "mine:ever"}  # fmt: skip
    (run.dir / "findings.jsonl").write_text(json.dumps(row) + "\n")
    app = open_page("training", run="own")
    assert chips(app) == [":red-badge[✕ 1 bad]"] and {title, "Told."} <= set(texts(app))
    assert "Source: mine:ever, as told while the run trained." in texts(app)
    assert not any("x.y" in one.value for one in app.markdown)
    monkeypatch.setenv(RULES_SETTING, f"{__name__}:ever,{__name__}:broken")
    with pytest.warns(RuntimeWarning, match="broken raised AttributeError"):
        app = open_page("training", run="own")
    assert chips(app) == [":orange-badge[△ 1 to watch]"] and {"As ever.", "Found at each last step."} <= set(texts(app))
    assert any("broken raised AttributeError" in text for text in texts(app)) and "Told." not in texts(app)
    monkeypatch.setenv(RULES_SETTING, "nosuch:rule")
    assert any("nosuch cannot be imported" in text for text in texts(open_page("training", run="own")))


def test_a_server_is_started_with_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RULES_SETTING, "")
    with pytest.raises(ValueError, match="rules=math:pi: make it with tracer.rule"):
        serving.view(rules=("math:pi",))
    serving._allow((), (), (), (f"{__name__}:ever",))
    assert remembered(RULES_SETTING) == (f"{__name__}:ever",)


def test_the_card_of_a_sick_run_says_so(elsewhere: Path, open_page: Open) -> None:
    found = diagnose(open_run("sick"))
    bad = sum(one.severity == "bad" for one in found)
    assert bad and any(f"{bad} bad" in one.value for one in open_page("runs").markdown)


def test_a_row_says_one_verdict(open_page: Open) -> None:
    healthy = health_panel.chip(open_run("tiny"))
    assert "healthy" in healthy
    assert [one.value for one in open_page("runs").markdown if "-badge[" in one.value] == [healthy]
