"""What takes long of tests/dashboard/test_specimens.py."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard import jobs, loading, shipped
from dashboard.views.specimens import data as reading
from tests.dashboard.test_specimens import OPEN, Open, arguments, change, elsewhere, made, narrow, nothing  # noqa: F401
from tests.dashboard.words import labels, written
from tests.waiting import wait
from tracer.presets import preset
from tracer.specimens.paper_folder import shipped as shipped_papers
from tracer.specimens.tutorials import SPECIMENS, TUTORIALS
from tracer.specimens.tutorials import TRAINED as TRAINABLE
from tracer.store import open_run
from tracer.store.layout import Lock
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
    papers = sum(name not in TUTORIALS for name in shipped_papers())  # whose charts are there in small
    assert images.count("data:image/svg+xml") == 2 * len(TRAINABLE) + 1 + papers and "findings hold here" in written(
        app
    )
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


def test_the_story_is_in_the_order_of_the_tutorials(open_page: Open, nothing: Path) -> None:
    app = open_page("specimens", **OPEN)
    assert [e.value for e in app.header] == [*(one.paper.title for one in TUTORIALS.values()), "Findings of the field"]
    titles = [f"{i}. {one.title}" for i, one in enumerate(SPECIMENS.values(), 1)]
    assert [e.value for e in app.subheader][: len(SPECIMENS)] == titles
    assert [e.proto.anchor for e in app.subheader][: len(SPECIMENS)] == list(SPECIMENS)
    text = written(app)
    for one in SPECIMENS.values():
        assert all(re.sub("[_:]", r"\\\g<0>", words) in text for words in (one.changed, one.expects, one.published[1:]))
    assert [text.count(f"**{word}") for word in ("Changed", "Expect", "Published")] == [13, 13, 13]
    assert text.count("**Published by [") == 12 and "(https://0xpemulis.net/ml8_transformers.html)" in text


@pytest.mark.parametrize("broken", ["trace.zarr", "trace.zarr/entropy"])
def test_a_damaged_run_leaves_the_others_whole(open_page: Open, elsewhere: Path, broken: str) -> None:
    shutil.rmtree(f"checkpoints/my-multi-head/{broken}")
    text = written(open_page("specimens", **OPEN))
    assert "Its trace cannot be read; Training says why." in text and text.count("here, step 20") == 2


def test_a_torn_picture_leaves_the_rest_of_its_card(open_page: Open, elsewhere: Path) -> None:
    torn = list(Path("checkpoints/my-multi-head/trace.zarr/pattern").glob("c.*"))
    assert torn
    for path in torn:
        path.write_bytes(b"?")
    text = written(open_page("specimens", **OPEN))
    assert text.count("here, step 20") == 3 and text.count("**At the end**") == 4  # those of the characters are shipped


def test_a_live_run_is_drawn_as_far_as_it_is(open_page: Open, elsewhere: Path) -> None:
    change("my-multi-head", status="training")
    lock = Lock(Path("checkpoints/my-multi-head"))
    try:
        app = open_page("specimens", **OPEN)
    finally:
        lock.release()
    text = written(app)
    assert "**Now**, step 20" in text and "What its attention does so far" in text and "Stop" in labels(app)
