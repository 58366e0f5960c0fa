"""`tracer publish`: what its pages say is what the run holds; they ask nobody; nothing that is there is lost."""

from __future__ import annotations

import base64
import json
import re
import shutil
from html import escape, unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracer
from tests.diagnosis.lessons import Lesson
from tracer.analysis.timeline import happened
from tracer.diagnosis import examine
from tracer.pictures import payload
from tracer.site import publish, run_page
from tracer.site.publish import OURS

HOSTILE = "</script><img src=x onerror=alert(1)>"


def told(page: str) -> dict[str, dict[str, str]]:
    """What is to be read below the pictures, by its title."""
    sections = re.findall(r"<section[^>]*><h2>([^<]*)</h2>(.*?)</section>", page, re.DOTALL)
    terms = re.compile(r"<dt>(.*?)</dt><dd>(.*?)</dd>")
    return {
        unescape(title): {unescape(term): unescape(said) for term, said in terms.findall(body)}
        for title, body in sections
    }  # fmt: skip


def mounts(page: str) -> dict[str, Any]:
    (held,) = re.findall(r'<script type="application/json" id="view">(.*?)</script>', page, re.DOTALL)
    return {one["key"]: one for one in json.loads(held)["mounts"]}


@pytest.fixture(scope="module")
def site(trained_toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish([trained_toy], tmp_path_factory.mktemp("site") / "out").parent


def test_a_page_says_what_its_run_holds(site: Path, trained_toy: Path) -> None:
    run = tracer.open_run(trained_toy)
    page = (site / f"{run.name}.html").read_text("utf-8")
    notes, changed = told(page), happened(run, run.trace)
    assert notes["What happened"] == {f"step {at.step:,} ({at.low:,}–{at.high:,})": at.says for at in changed}
    assert any(re.fullmatch(r"L1H\d reads L0H\d", at.label) for at in changed), "dated from weights, as on Phases"
    roles = tracer.roles(run).heads
    assert roles and list(notes["Roles of heads"]) == [f"L{layer}H{head}" for layer, head in roles]
    for (layer, head), found in roles.items():
        said = notes["Roles of heads"][f"L{layer}H{head}"]
        assert all(
            f"{one.role.label} {one.value:.2f}" in said and f"control {one.control:.2f}" in said for one in found
        )
    (proof,) = [title for title in notes if title.startswith("Proof: ")]
    layer, head = map(int, re.findall(r"\d+", proof))
    card = tracer.ablate.verdict(run, layer, head)
    assert card.tests[5].name == "behind other text"
    assert all(escape(line) in page for line in (card.headline, *str(card.tests[5]).splitlines()))
    assert examine(run).findings or "Health: healthy" in notes
    loss = run.trace.val_loss.values
    assert notes["The run"]["Validation loss"] == f"{loss[np.isfinite(loss)][-1]:.3f} nats"


def test_its_film_is_that_of_every_snapshot_with_events_and_roles(site: Path, trained_toy: Path) -> None:
    run, found = tracer.open_run(trained_toy), mounts((site / f"{trained_toy.name}.html").read_text("utf-8"))
    header, arrays = payload.unpack(payload_of(found["scrubber"]))
    assert arrays["steps"].tolist() == run.steps and (arrays["film"] != 65535).all() and header["cells"][:2] == [2, 4]
    assert arrays["roles"].shape == (len(run.steps), 2, 4)
    events = [one.label for one in happened(run, run.trace)]
    assert [one["label"] for one in found["scrubber"]["cue"]["events"]] == events
    shown = mounts(tracer.show(run, [0, 5, 7, 5], film=True).html)
    assert [one["label"] for one in shown["scrubber"]["cue"]["events"]] == events, "in a notebook too"
    assert found["atlas"]["cue"]["roles"]["codes"] == arrays["roles"][-1].tolist()


def payload_of(mount: dict[str, Any]) -> bytes:
    return base64.b64decode(mount["blob"])


def test_a_site_asks_nobody_and_is_small(site: Path) -> None:
    pages = sorted(site.glob("*"))
    assert [page.suffix for page in pages] == [".html", ".html"]
    for page in pages:
        text = page.read_text("utf-8")
        assert page.stat().st_size < 5_000_000 and OURS in text[:300]
        assert "default-src 'none'" in text and "unsafe" not in text.split("<style>")[0]
        text = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)  # which the policy keeps from asking anybody
        assert not re.findall(r"""(?:src|href|srcset)=["'](?!data:|[\w.%-]+\.html["'])""", text)


def test_the_index_leads_to_each_run(site: Path, trained_toy: Path) -> None:
    text = (site / "index.html").read_text("utf-8")
    assert f'<a class="card" href="{trained_toy.name}.html"><h2>{trained_toy.name}</h2>' in text
    assert text.count("data:image/png;base64,") == 2  # light and dark
    run = tracer.open_run(trained_toy)
    assert all(escape(one.says) in text for one in happened(run, run.trace))


def test_what_takes_too_long_is_left_out_and_said(
    trained_toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("FILM_FLOPS", "PROOF_FLOPS"):
        monkeypatch.setattr(run_page, limit, 0)
    page = (publish([trained_toy], tmp_path).parent / f"{trained_toy.name}.html").read_text("utf-8")
    notes, run = told(page), tracer.open_run(trained_toy)
    (proof,) = [title for title in notes if title.startswith("Proof: ")]
    layer, head = map(int, re.findall(r"\d+", proof))
    assert f"tracer.ablate.verdict({run.name!r}, {layer}, {head})" in notes[proof]["left out"]
    assert notes["Film"] == {"left out": f"{len(run.steps):,} snapshots take more than a minute here"}
    assert "scrubber" not in mounts(page) and "atlas" in mounts(page)


def test_names_and_texts_run_nothing(short_toy: Path, tmp_path: Path) -> None:
    hostile = tmp_path / HOSTILE.replace("/", "_")
    shutil.copytree(short_toy, hostile)
    folder = publish([hostile], tmp_path / "site").parent
    (page,) = [one for one in folder.glob("*.html") if one.name != "index.html"]
    assert re.fullmatch(r"[A-Za-z0-9._-]+\.html", page.name)
    for text in (page.read_text("utf-8"), (folder / "index.html").read_text("utf-8")):
        assert "<img src=x" not in text and escape(hostile.name) in text


def test_a_model_of_ones_own_has_its_curves_in_place_of_heads(tmp_path: Path) -> None:
    run = Lesson(steps=8, every=4).train(tmp_path / "own")
    page = (publish([run], tmp_path / "site").parent / "own.html").read_text("utf-8")
    assert list(mounts(page)) == ["history"] and run.why_not("prompts") and run.why_not("prompts") in unescape(page)


def test_what_was_published_stays_and_what_is_not_ours_is_not_touched(
    short_toy: Path, trained_toy: Path, tmp_path: Path
) -> None:
    publish([short_toy], tmp_path)
    publish([trained_toy], tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {
        "index.html",
        f"{short_toy.name}.html",
        f"{trained_toy.name}.html",
    }
    assert short_toy.name not in (tmp_path / "index.html").read_text("utf-8")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "index.html").write_text("mine")
    with pytest.raises(ValueError, match=r"index.html is there already and is no page of manyeyes"):
        publish([short_toy], theirs)
    assert [one.name for one in theirs.iterdir()] == ["index.html"] and (theirs / "index.html").read_text() == "mine"


def test_what_cannot_be_published_is_refused(short_toy: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no run to publish"):
        publish([], tmp_path)
    other = shutil.copytree(short_toy, tmp_path / "other" / short_toy.name)
    with pytest.raises(ValueError, match=rf"two of these runs would be written to {short_toy.name}.html"):
        publish([short_toy, other], tmp_path / "site")
    assert not (tmp_path / "site").exists()
