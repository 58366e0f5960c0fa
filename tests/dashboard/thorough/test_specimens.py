"""What takes long of tests/dashboard/test_specimens.py."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from dashboard import jobs, loading, shipped
from dashboard.views.specimens import data as reading
from tests.dashboard.test_specimens import OPEN, Open, arguments, elsewhere, made, narrow, nothing  # noqa: F401  # noqa: F401
from tests.dashboard.words import labels, written
from tests.waiting import wait
from tracer.presets import preset
from tracer.specimens.tutorials import SPECIMENS
from tracer.specimens.tutorials import TRAINED as TRAINABLE
from tracer.store import open_run
from tracer.training.loop import train


def test_training_all_is_one_series_that_can_be_stopped(open_page: Open, nothing: Path) -> None:
    app = open_page("specimens")
    app.button(key="train_all").click().run()
    series = jobs.reproducing()
    assert series is not None and arguments(series) == ["reproduce", *TRAINABLE]
    assert jobs.started() == [] and app.button(key="train single-head-small").disabled
    assert jobs.reproduce(["four-blocks"]) is series  # one at a time

    def keeps() -> bool:
        """The first snapshot is kept in the loop, which stops when asked."""
        assert series.alive, series.tail()
        return any(Path("checkpoints").glob("*/snapshots/[!.]*"))

    wait(keeps)
    (first,) = Path("checkpoints").glob("*/snapshots")
    app.button(key="stop_series").click().run()
    assert series.process.wait(300) == 130 and not series.failed
    assert open_run(first.parent).status == "stopped" and list(Path("checkpoints").glob("*/snapshots")) == [first]
    app.run()
    assert not app.button(key="train_all").disabled
    assert "End of its log" not in written(app)  # it was told to, wherever it was


def test_a_head_that_collapses_is_told_with_the_cure(open_page: Open, elsewhere: Path, tmp_path: Path) -> None:
    sick = preset("single-head-unscaled-small").config
    config = narrow(sick, elsewhere / "checkpoints" / "sick", 20)
    train(replace(config, model=replace(config.model, d_model=128)), preset="single-head-unscaled-small", quiet=True)
    app = open_page("specimens", **OPEN)
    wide = next(one for one in reading.trained(loading.runs()) if one.d_model == 128)
    app.selectbox(key="setting_box").set_value(wide.text).run()
    app = open_page("specimens", **OPEN, setting=app.session_state["selection"].setting)  # by a link
    text = written(app)
    assert ":red-badge[✕ bad] Each token's attention is stuck on one key, since step 0" in text
    assert "[Scaled, but alone ↓](#single-head-scaled)" in text
    assert ":green-badge[✓ holds] &nbsp;Unscaled attention is one-hot from the start" in text


def test_the_ways_to_other_pages(open_page: Open, elsewhere: Path) -> None:
    app = open_page("specimens", **OPEN)
    assert labels(app).count("Heads") == labels(app).count("Training") == 3
    assert [key for key in SPECIMENS if f"beside {key}" in {b.key for b in app.button}] == ["single-head-residual"]


def test_with_nothing_trained_every_card_shows_its_run(open_page: Open, nothing: Path) -> None:
    app = open_page("specimens")
    images = "".join(e.proto.body for e in app.get("html"))
    shown = 2 * len(TRAINABLE) - 1  # four blocks break before a second pattern
    assert (
        images.count("data:image/png;base64") == 2 * shown + 4
    )  # two heads of two exercises; on the wall, and on the cards
    assert images.count("data:image/svg+xml") == 2 * len(TRAINABLE) + 1 and "findings hold here" in written(app)
    wall = next(e.proto.body for e in app.get("html") if "class='wall'" in e.proto.body)
    cards = dict(re.findall(r"<a href='#([^']+)'>(.*?)</a>", wall))
    assert list(cards)[: len(SPECIMENS)] == list(SPECIMENS) and "✓ 5 of 5 checks" in cards["one-matmul"]
    assert cards["multi-head"].count("<img") == 2 == cards["four-blocks"].count("<img")
    assert "A quarter of the weights is enough" in cards["multi-head"]
    assert "≈ too close to tell" in cards["multi-head"] and "✓ holds</em>diverged at step 4<" in cards["four-blocks"]
    came = reading.outcomes({run.meta["preset"].removesuffix("-small"): run for run in shipped.specimens()})
    losses = [came[name].loss for name in ("multi-head-full", "multi-head")]
    assert "loss {:.3f} → {:.3f}<".format(*losses) in cards["multi-head"]
    assert re.search(r"entropy 1\.\d{3} → 0\.\d{3}<", cards["single-head-scaled"])
    folded = {e.label for e in app.expander}
    assert sum("✓ holds" in card for card in cards.values()) == sum("✓ holds" in label for label in folded)
    said = re.sub(r"\(#[a-z-]+\)", "", "".join(e.value for e in app.markdown))  # but for the anchors of cards
    assert not {"single-head", "multi-head-full", "four-blocks-rms"} & set(re.findall(r"[a-z-]+", said))
