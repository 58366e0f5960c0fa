"""`tracer.show`: what the picture holds is what the model does, and its own code shows it again."""

import base64
import html
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracer
from tracer.ablate.planner import zeroed
from tracer.analysis.notebook import NotebookView, explained, strongest
from tracer.analysis.prompt_attention import look
from tracer.measures import HEAD_MEASURES, MEASURES, PROBES, Setting
from tracer.measures.chance import UNIFORM
from tracer.pictures import payload

PROMPT = "5 7 9 11 5 7 9"


@pytest.fixture
def run(short_toy: Path) -> Any:
    return tracer.open_run(short_toy)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face model of 2 x 2 heads with a tokenizer, saved."""
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    from tracer.data.tokenizer import BOS, train_bpe

    folder = tmp_path_factory.mktemp("foreign")
    torch.manual_seed(0)
    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=257, n_positions=48, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(folder)
    words = PreTrainedTokenizerFast(tokenizer_object=train_bpe(["def f(x):\n    return x\n"] * 9, 257), bos_token=BOS)
    words.save_pretrained(folder)
    return folder


def mounts(picture: NotebookView) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="view">(.*?)</script>', picture.html, re.DOTALL)
    assert found
    return {one["key"]: one for one in json.loads(found[1])["mounts"]}


def cells(picture: NotebookView) -> tuple[dict[str, Any], np.ndarray]:
    """Header of the token view, and shares [layer head query_pos key_pos]."""
    head, arrays = payload.unpack(base64.b64decode(mounts(picture)["reading"]["blob"]))
    n = len(head["tokens"])
    shares = np.zeros((*arrays["shares"].shape[:2], n, n))
    shares[:, :, *np.tril_indices(n)] = arrays["shares"] / 65534
    return head, shares


def patterns(model: Any, ids: list[int]) -> np.ndarray:
    seen = look(model, torch.tensor([ids]))
    return np.array([[seen.pattern(layer, head) for head in range(model.n_heads)] for layer in range(model.n_layers)])


@pytest.mark.parametrize("step", [None, 10])
def test_a_run_is_shown_as_it_is(run: Any, step: int | None) -> None:
    picture = tracer.show(run, PROMPT, step)
    at = 30 if step is None else step
    head, shares = cells(picture)
    assert head["tokens"] == ["<bos>", *PROMPT.split()]
    assert np.abs(shares - patterns(run.model(at), [0, 5, 7, 9, 11, 5, 7, 9])).max() < 1e-5
    atlas, recorded = mounts(picture)["atlas"], run.trace.sel(step=at)
    held = [name for name in HEAD_MEASURES if name in recorded and np.isfinite(recorded[name].values).any()]
    assert atlas["template"]["measures"] == held
    shown = np.array(atlas["template"]["values"], float)
    assert np.allclose(shown, [recorded[name].values for name in held], rtol=1e-4, equal_nan=True)
    assert tuple(atlas["cue"]["value"]) == strongest(recorded["induction"].values)
    assert "scrubber" in mounts(picture) and f"step {at} · 8 tokens" in picture.html


def test_its_own_code_shows_it_again(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.dir.parents[1])
    picture = tracer.show(run, PROMPT, 10, (1, 2), "previous_token")
    code = re.search(r"<code>(import tracer.*?)</code>", picture.html, re.DOTALL)
    assert code
    lines = html.unescape(code[1]).replace("tracer.show(", "again = tracer.show(")
    scope: dict[str, Any] = {}
    exec(lines, scope)
    assert scope["again"].html == picture.html
    assert "/heads?run=tiny&amp;step=10" in picture.html and str(run.dir.parents[1]) not in picture.html


def test_a_film_only_where_it_is_wanted(run: Any) -> None:
    frames = payload.unpack(base64.b64decode(mounts(tracer.show(run, PROMPT, film=True))["scrubber"]["blob"]))[1]
    assert frames["steps"].tolist() == run.steps
    last = patterns(run.model(30), [0, 5, 7, 9, 11, 5, 7, 9])
    assert np.abs((frames["frames"][-1] / 255.0) ** 2 - last).max() <= 0.004
    assert "scrubber" not in mounts(tracer.show(run, PROMPT, film=False))


@pytest.mark.parametrize("off", [(), ((0, 1),)])
def test_what_the_model_says_next_stands_there_and_plays_along(run: Any, off: tuple[Any, ...]) -> None:
    shown = mounts(tracer.show(run, PROMPT, 10, film=True, off=off))
    ids = torch.tensor([[0, *map(int, PROMPT.split())]])

    def says(step: int, gone: tuple[Any, ...]) -> torch.Tensor:
        model = run.model(step)
        with torch.no_grad(), zeroed(model, ids, gone):
            return model(ids)[0, -1].double().softmax(-1)

    cue = shown["guesses"]["cue"]
    words = [0 if word == "<bos>" else int(word) for word in cue["words"]]
    np.testing.assert_allclose(cue["shares"], says(10, off)[words], atol=1e-5)
    np.testing.assert_allclose(cue["before"] or says(10, ())[words], says(10, ())[words], atol=1e-5)
    assert (cue["before"] is None) == (not off)
    head, arrays = payload.unpack(base64.b64decode(shown["scrubber"]["blob"]))
    for step, guessed, shares in zip(run.steps, arrays["guessed"], arrays["shares"], strict=True):
        best = says(step, off).topk(5)
        np.testing.assert_allclose(shares, best.values, atol=1e-5)
        assert head["words"][guessed[0]] == ("<bos>" if best.indices[0] == 0 else str(int(best.indices[0])))


def test_a_model_of_others_is_shown(foreign: Path) -> None:
    model = tracer.load_hf(foreign)
    picture = tracer.show(model, "def f(x)")
    head, shares = cells(picture)
    ids = [0, *model.tokenizer("def f(x)", add_special_tokens=False)["input_ids"]]
    assert len(head["tokens"]) == len(ids) and head["tokens"][0] == "<bos>"
    assert np.abs(shares - patterns(model, ids)).max() < 1e-5
    assert mounts(picture)["atlas"]["template"]["layers"] == ["transformer.h.0.attn", "transformer.h.1.attn"]
    assert "Every head of GPT2LMHeadModel" in picture.html and "Measured on this prompt" in picture.html
    assert np.abs(cells(tracer.show(model, ids))[1] - shares).max() == 0


def test_token_ids_need_no_tokenizer(foreign: Path) -> None:
    model = tracer.load_hf(foreign)
    model.tokenizer = None
    assert cells(tracer.show(model, [0, 5, 7, 5]))[0]["tokens"] == ["0", "5", "7", "5"]
    with pytest.raises(ValueError, match="pass the prompt as token ids"):
        tracer.show(model, "def")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": "5 7", "measure": "beauty"}, "measure='beauty' is not measured here; known: entropy"),
        ({"prompt": "5 7", "head": (9, 9)}, "there is no head L9H9: the model has 2 layers of 4 heads"),
        ({"prompt": "5 7", "step": 11}, "no snapshot of step 11; the nearest is 10"),
        ({"prompt": "5 cat"}, "not in the vocabulary: 'cat'"),
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [1] * 1000}, "the prompt has 1000 tokens"),
    ],
)
def test_what_cannot_be_shown_says_why(run: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tracer.show(run, **options)


@pytest.mark.parametrize(
    ("name", "setting", "said"),
    [
        ("confidence", Setting(3, 0, 50), f" At chance 0.417 ({UNIFORM})."),  # (1/2 + 1/3) / 2
        ("confidence", None, ""),
        ("induction", Setting(3, 0, 50), ""),
    ],
)
def test_a_value_at_chance_is_said_where_it_is_known(name: str, setting: Setting | None, said: str) -> None:
    ((label, text),) = explained([MEASURES[name]], setting)
    one = MEASURES[name]
    assert label == one.label
    note = f" {one.note}" if one.note else ""
    assert text == f"{one.formula}. Measured on {PROBES[one.probe]}.{said}{note} Source: {one.source}."


def test_a_model_has_no_steps(run: Any) -> None:
    with pytest.raises(ValueError, match="a model has no steps"):
        tracer.show(run.model(), PROMPT, step=10)


def test_a_notebook_gets_a_frame_that_reaches_nothing(run: Any, tmp_path: Path) -> None:
    picture = tracer.show(run.model(), PROMPT)
    frame = picture._repr_html_()
    source = re.search(r'srcdoc="([^"]*)"', frame)
    assert source and html.unescape(source[1]) == picture.html
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    assert picture.save(tmp_path / "heads.html").read_text("utf-8") == picture.html


@pytest.mark.parametrize(
    ("values", "head"),
    [([[0.1, 0.4], [0.3, 0.2]], (0, 1)), ([[math.nan, -2.0], [-1.0, math.nan]], (1, 0)), ([[math.nan, 0.0]], (0, 1))],
)
def test_of_heads_that_were_not_measured_none_is_the_strongest(
    values: list[list[float]], head: tuple[int, int]
) -> None:
    assert strongest(np.array(values)) == head
