"""The Circuits page: what it sends is the model's own algebra, and what is not defined is said in one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st
import torch
from safetensors.torch import load_file, save_file
from streamlit.testing.v1 import AppTest

from dashboard import state, theme
from dashboard.loading import ablation
from dashboard.views.circuits import composition
from dashboard.views.circuits import data as circuits
from tests.dashboard.words import captions, shown, was_drawn, written
from tests.tiers import quick
from tracer.analysis.eval_sequences import batches
from tracer.config import ModelConfig
from tracer.data.probes import repeated
from tracer.huggingface import architectures
from tracer.interventions.edits import recording
from tracer.measures.abilities import of_ours
from tracer.measures.composition import random_composition, stands_out
from tracer.model import Transformer
from tracer.presets import PRESETS
from tracer.store import Run, open_run
from tracer.training.loop import train

Open = Callable[..., AppTest]
BASE = ModelConfig(n_layers=2, n_heads=2, d_model=8, d_vocab=9)
PROMPT = "5 7 9 5 7 9 5 7"


def cue(app: AppTest, key: str) -> dict[str, Any]:
    """What a part without bytes got."""
    found = [e.proto for e in app.get("bidi_component") if e.proto.id.rpartition("-")[2] == f"{key}:cue"]
    return json.loads(found[0].json)


def held(run: Run, model: Transformer, name: str, vectors: torch.Tensor) -> torch.Tensor:
    """Vectors through a norm of rms whose scale is its mean over the held-out text."""
    text = batches(run).text
    assert text is not None
    with recording("hook_scale") as seen:
        model(text[:, : model.config.n_ctx])
    norm: Any = model.get_submodule(name)
    return vectors / seen[f"{name}.hook_scale"].mean() * norm.w


def model_of(run: Run, step: int | None = None) -> Transformer:
    model = run.model(step)
    assert isinstance(model, Transformer)
    return model


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two-step runs: one layer, heads without W_O, smeared keys with an output gate."""
    folder, toy = tmp_path_factory.mktemp("circuits"), PRESETS["induction"].config
    record = replace(toy.record, every=1, snapshot_every=1, val_rows=1, repeat_rows=2, text_prompts=1, repeat_prompts=1)
    kinds: dict[str, dict[str, Any]] = {
        "one": {"n_layers": 1, "mlp_hidden": (16,)},
        "bare": {"attn_out": False},
        "smeared": {"smear": "keys", "attn_gate": True},
    }
    for name, changes in kinds.items():
        train(replace(
            toy, run=str(folder / "checkpoints" / name), steps=2, device="cpu", record=record,
            optim=replace(toy.optim, batch_size=2), model=replace(toy.model, **changes),
        ), quiet=True)  # fmt: skip
    return folder


@pytest.mark.parametrize("into", ["k", "q", "v"])
def test_composition_is_dense_algebra(into: str, open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("circuits", run="tiny", step=20, layer=1, head=3)
    app.segmented_control(key="into_box").set_value(into).run()
    header, arrays, said = sent(app, "composition")
    assert said["into"] == into and said["value"] == [1, 3]
    found = dict(zip(map(tuple, arrays["edges"].tolist()), arrays["scores"][header["kinds"].index(into)], strict=True))
    assert set(found) == {(0, a, 1, b) for a in range(4) for b in range(4)}
    one, two = (block.attn for block in model_of(small_run, 20).blocks)
    assert one.W_O is not None and two.W_O is not None
    for (_, a, _, b), score in found.items():
        ov, qk = one.W_V[a] @ one.W_O[a], two.W_Q[b] @ two.W_K[b].T
        read = {"k": qk.T, "q": qk, "v": two.W_V[b] @ two.W_O[b]}[into]
        assert score == pytest.approx(float((ov @ read).norm() / ov.norm() / read.norm()), rel=1e-4)
    mean, sd = random_composition(64, 16)
    assert (header["mean"], header["sd"]) == (mean, sd)
    edge = stands_out(64, 16, 3 * 16)
    assert header["edge"] == edge and header["sure"][0] == sum(score > edge for score in arrays["scores"][0])
    own = {pair: score for pair, score in found.items() if pair[3] == 3}  # L1H3 is in focus
    best = max(own, key=lambda pair: own[pair])
    if own[best] > edge:
        said = f"L1H3 reads L0H{best[1]} more than random heads would: {into.upper()}-composition {own[best]:.3f}"
    elif max(found.values()) > edge:
        said = "L1H3 neither reads nor is read more than random heads would;"
    else:
        said = "No head reads an earlier one more than random heads would, of 48 pairs."
    assert said in written(app) and (said[:2] == "No" or f"(random {mean:.3f}, sd {sd:.4f})" in written(app))
    assert f"Faint (below {edge:.3f}): no more than random heads." in captions(app)


def test_of_a_large_model_only_what_is_shown_is_compared(
    open_page: Open, sent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = sent(open_page("circuits", run="tiny", step=20), "composition")
    monkeypatch.setattr(ablation, "SMALL", 0)
    monkeypatch.setattr(composition, "MOMENT", 0)
    st.cache_resource.clear()
    app = open_page("circuits", run="tiny", step=20)
    assert "reading the weights of every head takes its time" in captions(app)
    assert "composition" not in was_drawn(app)
    app.button(key="read_weights").click().run()
    for into in ("k", "v"):
        app.segmented_control(key="into_box").set_value(into).run()
        header, arrays, _ = sent(app, "composition")
        assert header["kinds"] == [into]
        assert np.array_equal(arrays["scores"][0], small[1]["scores"][small[0]["kinds"].index(into)])


def test_a_pick_takes_its_head_into_focus(open_page: Open) -> None:
    app = open_page("circuits", run="tiny", layer=0, head=0)
    app.session_state["composition"] = {"pick": {"value": [1, 2], "time": 1}}
    app.run()
    selection = app.session_state["selection"]
    assert selection.focus == (1, 2) and "The eigenvalues of the OV circuit of L1H2" in captions(app)
    assert "L1H2 in words" in [s.value for s in app.header]
    assert state.from_query(state.to_query(selection)) == selection


def test_the_spectrum_and_the_score_are_of_the_whole_circuit(open_page: Open, small_run: Run) -> None:
    app = open_page("circuits", run="tiny", layer=1, head=1)
    model = model_of(small_run)
    attn = model.blocks[1].attn
    assert attn.W_O is not None
    with torch.no_grad():
        dense = torch.linalg.eigvals((model.embed.W_E @ attn.W_V[1] @ attn.W_O[1] @ model.W_U).double())
    score = float(dense.real.sum() / dense.abs().sum())
    assert cue(app, "copying_map")["values"][1][1] == pytest.approx(score, abs=1e-4)
    assert f"copying score **{theme.fmt(score, 'share')}**" in captions(app)
    real, imaginary, size = shown(app, "spectrum").data[0].customdata.T
    np.testing.assert_allclose(np.sort(size)[::-1], np.sort(dense.abs().numpy())[::-1][:16], rtol=1e-3)
    np.testing.assert_allclose(np.hypot(real, imaginary), size, rtol=1e-5)


def test_a_head_in_words(open_page: Open, small_run: Run) -> None:
    app = open_page("circuits", run="tiny", layer=0, head=2)
    model = model_of(small_run)
    attn, W_E = model.blocks[0].attn, model.embed.W_E
    assert attn.W_O is not None
    with torch.no_grad():
        read, write = held(small_run, model, "blocks.0.ln1", W_E), held(small_run, model, "ln_final", attn.W_O[2])
        ov = read @ attn.W_V[2] @ write @ model.W_U
        qk = (read @ attn.W_Q[2]) @ (read @ attn.W_K[2]).T * model.config.scale
    names = {token: text for text, token in small_run.tokenizer.get_vocab().items()}
    for title, whole in (("Moves", ov.clone().fill_diagonal_(-torch.inf)), ("Looks", qk)):
        table, (values, at) = shown(app, f"words_{title.lower()}"), whole.flatten().topk(12)
        one, other, found = table.values()
        assert list(found) == pytest.approx(values.tolist(), rel=1e-4)
        n = whole.shape[1]
        best = [names[int(at[0]) // n], names[int(at[0]) % n]]
        assert [cells[0].replace("<bos>", "<|bos|>") for cells in (one, other)] == best
    share = float((ov.argmax(1) == torch.arange(len(ov))).float().mean())
    assert f"{share:.1%} of all tokens raise their own logit most; at chance {1 / len(ov):.2%}" in captions(app)
    copies = shown(app, "words_copies")["token"] if "words_copies" in was_drawn(app) else []
    assert len(copies) == min(12, round(share * len(ov)))


def test_a_large_vocabulary_is_asked_for_first(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuits, "AT_ONCE", 65 * 65 - 1)
    app = open_page("circuits", run="tiny")
    assert "65 × 65 pairs of tokens take a while" in captions(app)
    app.button(key="stream_words").click().run()
    assert len(shown(app, "words_looks")["score"]) == 12


@pytest.mark.parametrize("normed", [True, False])
def test_positions_alone(normed: bool, open_page: Open, small_run: Run) -> None:
    app = open_page("circuits", run="tiny", layer=0, head=1)
    app.toggle(key="positions_normed").set_value(normed).run()
    model = model_of(small_run)
    block, table = model.blocks[0], model.pos_embed.W_pos
    with torch.no_grad():
        read = held(small_run, model, "blocks.0.ln1", table) if normed else table
        scores = (read @ block.attn.W_Q[1]) @ (read @ block.attn.W_K[1]).T * model.config.scale
        wanted = scores.masked_fill(torch.ones(64, 64).triu(1).bool(), -torch.inf).softmax(-1).numpy()
    shares = shown(app, "positions").data[0].customdata[..., 0]
    assert np.isnan(shares[np.triu_indices(64, 1)]).all()
    np.testing.assert_allclose(np.nan_to_num(shares), wanted, atol=1e-5)


def test_attention_by_distance(open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("circuits", run="tiny", step=10, layer=1, head=0)
    header, arrays, said = sent(app, "stripes")
    tokens = repeated(65, 64, at=25).tokens
    with torch.no_grad(), recording("hook_pattern") as seen:
        model_of(small_run, 10)(tokens)
    pattern = seen["blocks.1.attn.hook_pattern"][:, 0, 1:, 1:].numpy()
    wanted = [np.mean([np.diagonal(one, -d).mean() for one in pattern]) for d in range(43)]
    row = arrays["lines"][header["labels"].index("L1H0")] / 65534 * (header["hi"] - header["lo"]) + header["lo"]
    np.testing.assert_allclose(row, wanted, atol=1e-4)
    assert said["step"] == 24 and said["value"] == "L1H0"
    rest = float(seen["blocks.1.attn.hook_pattern"][:, 0, 1:, 0].mean())
    assert f"it gets {rest:.0%} of the attention of L1H0" in captions(app)


@pytest.mark.parametrize(("period", "drawn"), [(3, False), (4, True)])
def test_a_short_context_has_few_distances_or_none(
    period: int, drawn: bool, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuits, "LONGEST_PERIOD", period)
    circuits.stripes.clear()
    app = open_page("circuits", run="tiny")
    circuits.stripes.clear()
    assert ("stripes" in was_drawn(app)) == drawn
    assert ("too short for distances: 7 tokens are too few" in captions(app)) != drawn


def test_weights_that_are_not_finite(copy_run: Callable[..., Run], open_page: Open, sent: Any) -> None:
    """MKL ends the process where it is asked for eigenvalues of nan."""
    path = copy_run("overflowed").dir / "snapshots" / "000030.safetensors"
    save_file({name: torch.full_like(weight, torch.nan) for name, weight in load_file(path).items()}, path)
    app = open_page("circuits", run="overflowed", layer=1, head=1)
    assert sent(app, "composition")[0]["total"] == 0
    assert cue(app, "copying_map")["values"] == [[None] * 4] * 2
    assert "The weights of L1H1 are too large, or not finite, at this step: they have no eigenvalues." in captions(app)
    assert captions(app).count("At step 30 the attention of L1H1 is not finite.") == 2
    app = open_page("heads", run="overflowed", layer=1, head=1)
    app.session_state["by_period_open"] = True
    app.run()
    assert not app.exception and "At this step the attention of L1H1 is not finite." in captions(app)


def test_the_parts_of_a_logit_sum_to_it(open_page: Open, small_run: Run) -> None:
    app = open_page("circuits", run="tiny", prompt=PROMPT, token=4, layer=1, head=2)
    model, tokens = model_of(small_run), torch.tensor([[0, *map(int, PROMPT.split())]])
    with torch.no_grad():
        logits = model(tokens)[0, 4]
    bars = shown(app, "sum").data[0]
    assert list(bars.y) == ["embedding", "heads of layer 0", "heads of layer 1", "sum"]
    assert bars.x[-1] == pytest.approx(float(logits[7] - logits.mean()), abs=1e-4)
    heads = np.array(cue(app, "logit_heads")["values"])
    assert heads.sum(1).tolist() == pytest.approx(list(bars.x[1:3]), abs=1e-5)
    assert "“7”, which comes after token 4" in cue(app, "logit_heads")["title"]
    tinted = cue(app, "logit_tokens")
    assert tinted["after"][4] == pytest.approx(heads[1, 2], abs=1e-6) and len(tinted["after"]) == 9
    lens = shown(app, "lens")
    log_p = float(logits.log_softmax(-1)[7])
    assert lens["after"] == ["embedding", "layer 0", "layer 1"]
    assert (lens["probability"][-1], lens["log p"][-1]) == pytest.approx((np.exp(log_p), log_p), rel=1e-4)
    assert lens["rank"][-1] == int((logits > logits[7]).sum()) + 1


def test_after_the_last_token_comes_the_likeliest(open_page: Open, small_run: Run) -> None:
    app = open_page("circuits", run="tiny", prompt=PROMPT, token=8)
    with torch.no_grad():
        best = int(model_of(small_run)(torch.tensor([[0, *map(int, PROMPT.split())]]))[0, -1].argmax())
    assert f"“{best}”, which the model thinks likeliest after token 8" in cue(app, "logit_heads")["title"]


def test_a_chosen_token_is_kept(open_page: Open) -> None:
    app = open_page("circuits", run="tiny", prompt=PROMPT)
    assert cue(app, "logit_tokens")["value"] == 7  # the last that something follows
    app.session_state["logit_tokens"] = {"pick": 3}
    app.run()
    assert app.session_state["selection"].token == 3 and "after token 3" in cue(app, "logit_heads")["title"]


def test_one_layer_has_no_composition(
    open_page: Open, specimens: Path, monkeypatch: pytest.MonkeyPatch, workplace: Path
) -> None:
    monkeypatch.chdir(specimens)
    app = open_page("circuits", run="one", layer=0, head=1, prompt=PROMPT)
    assert "One layer: there is no earlier head to read." in captions(app)
    scores = np.array(cue(app, "copying_map")["values"], float)
    best = f"L0H{scores.argmax()} copies most: copying score {theme.fmt(scores.max(), 'share')} (random "
    assert best in written(app)
    names = list(shown(app, "sum").data[0].y)
    assert names == ["embedding", "heads of layer 0", "MLP of layer 0", "biases", "sum"][: len(names) - 1] + ["sum"]


def test_smeared_keys_are_said_where_w_q_and_w_k_are_read(
    open_page: Open, specimens: Path, monkeypatch: pytest.MonkeyPatch, workplace: Path
) -> None:
    monkeypatch.chdir(specimens)
    said = "smear=keys: W_Q and W_K are read here as for one token. Each attention score mixes the keys of two"
    app, gated = open_page("circuits", run="smeared", prompt=PROMPT), "attn_gate=True: W_V W_O is read here before"
    assert (
        captions(app).count(said) == 2
        and captions(app).count(gated) == 3
        and {"composition", "words_looks"} <= was_drawn(app)
    )
    app.segmented_control(key="into_box").set_value("v").run()
    assert captions(app).count(said) == 1
    monkeypatch.chdir(workplace)
    plain = captions(open_page("circuits", run="tiny", step=20))
    assert "smear=" not in plain and "attn_gate=" not in plain


def test_heads_without_w_o(open_page: Open, specimens: Path, monkeypatch: pytest.MonkeyPatch, workplace: Path) -> None:
    monkeypatch.chdir(specimens)
    app = open_page("circuits", run="bare", prompt=PROMPT)
    said = captions(app)
    assert "so there is no OV circuit to compare with" in said and "no path of its own to the logits" in said
    drawn = was_drawn(app)
    assert {"stripes", "positions", "lens", "sum"} <= drawn and not {"composition", "spectrum", "words_moves"} & drawn


@pytest.mark.parametrize(
    ("changes", "composition", "vocabulary", "positions"),
    [
        ({}, "", "", ""),
        ({"n_layers": 1}, "One layer", "", ""),
        ({"n_layers": 1, "residual": False}, "One layer", "", ""),
        ({"residual": False}, "residual=False", "residual=False", "residual=False"),
        ({"attn_out": False}, "attn_out=False", "attn_out=False", ""),
        ({"unembed_hidden": (8,)}, "", "unembed_hidden=(8,)", ""),
        ({"positions": "rotary"}, "", "", "positions=rotary"),
        ({"positions": "none"}, "", "", "positions=none"),
        ({"positions": "shortformer", "residual": False}, "residual=False", "residual=False", ""),
        ({"positions": "sinusoidal", "norm_position": "post"}, "", "", ""),
    ],
)
def test_why_a_circuit_is_not_defined(
    changes: dict[str, Any], composition: str, vocabulary: str, positions: str
) -> None:
    reasons = of_ours(replace(BASE, **changes))
    for wanted, found in (
        (composition, reasons["composition"]),
        (vocabulary, reasons["vocabulary"]),
        (positions, reasons["positions"]),
    ):
        assert wanted in found and bool(wanted) == bool(found)


@pytest.mark.parametrize("run", quick(["gpt", "opened"], ("opened",)))
@pytest.mark.usefixtures("elsewhere")
def test_a_hugging_face_model_is_read_by_its_weights(run: str, open_page: Open, sent: Any) -> None:
    app = open_page("circuits", run=run, layer=1, head=1)
    header, arrays, _ = sent(app, "composition")
    theirs: Any = open_run(run).model()
    first, second = (block.attn for block in theirs.model.transformer.h)
    (_, _, v), o = first.c_attn.weight.chunk(3, 1), first.c_proj.weight
    q, k, _ = second.c_attn.weight.chunk(3, 1)
    ov, qk = v[:, :8] @ o[:8], q[:, 8:] @ k[:, 8:].T
    score = arrays["scores"][header["kinds"].index("k"), arrays["edges"].tolist().index([0, 0, 1, 1])]
    assert score == pytest.approx(float((ov @ qk.T).norm() / ov.norm() / qk.norm()), rel=1e-4)
    drawn = was_drawn(app)
    assert {"spectrum", "words_moves", "stripes", "positions"} <= drawn


@pytest.fixture
def unknown_gpt2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No model that was opened before, or is opened meanwhile, is kept beyond."""
    monkeypatch.delitem(architectures.ARCHITECTURES, "gpt2")
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


@pytest.mark.usefixtures("elsewhere", "unknown_gpt2")
def test_heads_that_cannot_be_told_apart(open_page: Open) -> None:
    app = open_page("circuits", run="gpt")
    assert "cannot be told apart" in app.info[0].value and "model_type='gpt2') is not known" in app.text[0].value
    assert (
        "What the parts of a gpt2 write to the residual stream is not known: a tracer.Layout (layout=) says it."
        in captions(app)
    )
    assert "composition" not in {e.proto.id.rpartition("-")[2] for e in app.get("bidi_component")}


def test_an_unreadable_prompt_leaves_the_weights(open_page: Open, sent: Any) -> None:
    app = open_page("circuits", run="tiny", prompt="x y")
    assert sent(app, "composition")[0]["layers"] == 2
    assert app.error and "sum" not in was_drawn(app)
