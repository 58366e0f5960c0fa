"""Papers on the page Papers: what their folders keep, claim by claim, and the way to their runs."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

from streamlit.testing.v1 import AppTest

from dashboard.views.specimens import papers
from tests.dashboard.words import captions, written
from tracer.specimens.paper_folder import shipped
from tracer.specimens.paper_results import results
from tracer.specimens.paper_verdicts import PaperVerdict
from tracer.specimens.tutorials import TUTORIALS

Open = Callable[..., AppTest]


def test_every_claim_stands_there_with_its_verdict_and_control(open_page: Open) -> None:
    app = open_page("specimens")
    kept = {name: json.loads((folder / "results.json").read_text()) for name, folder in shipped().items()
            if name not in TUTORIALS}  # fmt: skip
    assert [header.value for header in app.header][-1] == "Findings of the field" and len(kept) > 1
    said = written(app).replace("\\", "")
    wall = next(e.proto.body for e in app.get("html") if "class='wall'" in e.proto.body)
    for name, told in kept.items():
        for claim in told["claims"]:
            assert claim["claim"][1:] in said and claim["why"] in said, claim["claim"]
            assert claim["control"] is None or f"Control: {claim['control']['text']}" in said
            assert (claim["published"] or "our prediction, not published") in said.replace("Our", "our")
        holding = sum(claim["verdict"] == "holds" for claim in told["claims"])
        assert f":green-badge[✓ {holding} hold]" in said
        seeds = " ".join(map(str, told["seeds"]))
        assert f"tracer reproduce {name} --seeds {seeds}" in [code.value for code in app.code]
        assert told["source"] in captions(app).replace("\\", "")
        if chart := told.get("chart"):
            (spec,) = (one.proto.spec for one in app.get("plotly_chart") if one.proto.id.endswith(f"chart_{name}"))
            drawn = json.loads(spec)
            assert [line["name"] for line in drawn["data"]] == [*chart["curves"], *chart["levels"]]
            card = wall.partition(f"#paper-{name}'")[2].partition("</a>")[0]
            paths = ElementTree.fromstring(b64decode(card.partition("base64,")[2].partition("'")[0]))
            assert len(paths) == len(drawn["data"]) and f"{chart['y']}</figcaption>" in card
            assert f"{chart['text']} Seed {chart['seed']}." in captions(app).replace("\\", "")
    assert not [button for button in app.button if str(button.key).startswith("see ")]


def test_its_runs_are_opened_from_its_card(open_page: Open, copy_run: Callable[..., object]) -> None:
    copy_run("kawata-20")
    app = open_page("specimens")
    assert [button.key for button in app.button if str(button.key).startswith("see ")] == ["see kawata-20"]


def test_results_are_read_without_running_a_paper(monkeypatch, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(shipped()["kawata"], folder)
    (folder / "paper.py").write_text("raise RuntimeError")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "paper.py").write_text("")
    monkeypatch.setattr("tracer.specimens.paper_results.shipped", lambda: {"mine": folder, "bare": bare})
    (found,) = results()
    assert (found.name, found.title) == ("mine", "The shortcut and the head") and found.page.startswith("Where text")
    assert found.command == "tracer reproduce mine --seeds 0 1 2 3 4 5 6"


def test_every_verdict_has_its_badge() -> None:
    assert set(papers.BADGES) == set(get_args(PaperVerdict))
