"""Skip-trigrams on the Circuits page: the numbers are the dense ones, and what is left out is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from streamlit.testing.v1 import AppTest

from dashboard.views.circuits import data
from dashboard.views.circuits.trigrams import ignored
from tests.dashboard.words import captions, shown, was_drawn, written
from tracer.analysis.eval_sequences import batches
from tracer.config import ModelConfig
from tracer.interventions.edits import recording
from tracer.measures.abilities import of_ours
from tracer.model import Transformer
from tracer.presets import PRESETS
from tracer.store import open_run
from tracer.training.loop import train

Open = Callable[..., AppTest]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two-step runs of one layer: attention alone, whose head 0 is made to look one back, and with an MLP."""
    from safetensors.torch import load_file, save_file

    where, toy = tmp_path_factory.mktemp("trigrams"), PRESETS["induction"].config
    record = replace(toy.record, every=1, snapshot_every=1, val_rows=2, repeat_rows=2, text_prompts=1, repeat_prompts=1)
    kinds: dict[str, dict[str, Any]] = {"bare": {}, "mlp": {"mlp_hidden": (16,)}}
    for name, changes in kinds.items():
        run = train(replace(
            toy, run=str(where / "checkpoints" / name), steps=2, device="cpu", record=record,
            optim=replace(toy.optim, batch_size=2), model=replace(toy.model, n_layers=1, **changes),
        ), quiet=True)  # fmt: skip
    path = where / "checkpoints" / "bare" / "snapshots" / "000002.safetensors"
    tensors = load_file(path)
    positions = torch.zeros_like(tensors["pos_embed.W_pos"])
    at = torch.arange(64) / 64 * 2 * torch.pi
    for i in range(8):  # a place on 8 circles; the key of a position is the query of the one after
        positions[:, 2 * i], positions[:, 2 * i + 1] = ((i + 1) * at).cos(), ((i + 1) * at).sin()
    turn = torch.zeros(64, 16)
    query = torch.zeros(64, 16)
    for i in range(8):
        c, s = torch.tensor((i + 1) * 2 * torch.pi / 64).cos(), torch.tensor((i + 1) * 2 * torch.pi / 64).sin()
        query[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.eye(2)
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.stack([torch.stack([c, s]), torch.stack([-s, c])])
    tensors["pos_embed.W_pos"] = 4 * positions
    tensors["blocks.0.attn.W_Q"][0], tensors["blocks.0.attn.W_K"][0] = 2 * query, 2 * turn
    tensors["blocks.0.attn.W_Q"][1] = 0.0
    save_file({name: one.contiguous() for name, one in tensors.items()}, path)
    assert run.status == "finished"
    return where


@pytest.fixture
def at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def lists(app: AppTest) -> list[dict[str, Any]]:
    return [shown(app, key) for key in sorted(was_drawn(app)) if key.startswith("trigrams_")]


def dense(directory: Path, head: int, place: float) -> torch.Tensor:
    """share x OV [A B C] in float64, norms held at their mean scale over the held-out text."""
    run = open_run(directory)
    model, text = run.model(), batches(run).text
    assert isinstance(model, Transformer) and text is not None
    with torch.no_grad(), recording("hook_scale") as seen:
        model(text[:, :64])
    model, attn = model.double(), model.blocks[0].attn
    assert attn.W_O is not None
    norm: Any = model.blocks[0].ln1
    last: Any = model.ln_final
    with torch.no_grad():
        read = model.embed.W_E / seen["blocks.0.ln1.hook_scale"].double().mean() * norm.w
        write = attn.W_O[head] / seen["ln_final.hook_scale"].double().mean() * last.w
        scores = (read @ attn.W_Q[head]) @ (read @ attn.W_K[head]).T * model.config.scale
        ov = read @ attn.W_V[head] @ write @ model.W_U
        times = (scores.exp() / scores.exp().mean(1, keepdim=True)).T  # [A B]
        share = place * times / (place * times + 1 - place)
        return share[..., None] * (ov - ov.mean(1, keepdim=True))[:, None]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("head", [0, 2])
def test_the_numbers_are_dense_algebra(head: int, at_home: Path, open_page: Open) -> None:
    app = open_page("circuits", run="bare", layer=0, head=head)
    assert "**A anywhere before B, in 64 tokens**" in written(app)
    anywhere = lists(app)[-1]
    whole = dense(at_home / "checkpoints" / "bare", head, 1 / 64)
    wanted, sources = whole.amax((1, 2)).topk(12)
    assert anywhere["logit"] == pytest.approx(wanted.tolist(), rel=1e-4)
    names = {token: text for text, token in open_run(at_home / "checkpoints" / "bare").tokenizer.get_vocab().items()}
    best = [names[int(a)].replace("<|bos|>", "<bos>") for a in sources[:3]]
    assert anywhere["A"][:3] == best
    assert "at chance A gets 0.016, and adds 0" in captions(app)
    assert float(whole.mean((2,)).abs().max()) < 1e-6  # so what it says about chance is so


@pytest.mark.usefixtures("elsewhere")
def test_a_head_that_looks_one_back_is_smeared(at_home: Path, open_page: Open) -> None:
    app = open_page("circuits", run="bare", layer=0, head=0)
    titles = [one.value for one in app.markdown if one.value.startswith("**A ")]
    assert titles == ["**A right before B**", "**A anywhere before B, in 64 tokens**"] and len(lists(app)) == 2
    spread = data.distances(open_run("bare"), 2, (0, 0), 64, True)
    assert spread is not None and spread.best == 1 and spread.prefers and spread.shares[1] > 0.5
    even = [sum(1 / (q + 1) for q in range(d, 64)) / (64 - d) for d in range(3)]
    assert spread.even[:3].tolist() == pytest.approx(even)
    said = f"looks most 1 token back: {spread.shares[1]:.2f}, against {even[1]:.2f} without a preference"
    assert said in captions(app)
    run = open_run("bare")
    model, text = run.model(), batches(run).text
    assert isinstance(model, Transformer) and text is not None
    with torch.no_grad(), recording("hook_pattern") as seen:
        model(text[:, :64])
    really = float(seen["blocks.0.attn.hook_pattern"][:, 0].diagonal(-1, dim1=-2, dim2=-1).mean())
    assert f"measured on held-out text: {really:.2f}" in captions(app)
    wanted = dense(at_home / "checkpoints" / "bare", 0, float(spread.shares[1])).amax((1, 2)).topk(12).values
    assert lists(app)[0]["logit"] == pytest.approx(wanted.tolist(), rel=1e-4)


@pytest.mark.usefixtures("elsewhere")
def test_a_head_without_a_favourite_has_one_list(at_home: Path, open_page: Open) -> None:
    app = open_page("circuits", run="bare", layer=0, head=1)
    assert len(lists(app)) == 1 and "By positions alone L0H1 prefers no distance" in captions(app)
    assert "no other way to the logits" in captions(app)


@pytest.mark.usefixtures("elsewhere")
def test_an_mlp_is_said_to_be_left_out(at_home: Path, open_page: Open) -> None:
    app = open_page("circuits", run="mlp", layer=0, head=1)
    assert lists(app) and "Left out: the MLP, which reads what the head writes;" in captions(app)


def test_two_layers_have_none(open_page: Open) -> None:
    app = open_page("circuits", run="tiny")
    assert not lists(app) and "skip-trigrams" not in " ".join(header.value for header in app.header)


BASE = ModelConfig(n_layers=1, n_heads=2, d_model=8, d_vocab=9)


@pytest.mark.parametrize(
    ("changes", "why_not", "left_out"),
    [
        ({}, "", "Left out: what a token and a position make together; that norms vary"),
        ({"norm": "none"}, "", "Left out: what a token and a position make together."),
        ({"norm": "none", "positions": "none"}, "", "the head does nothing else"),
        ({"norm": "none", "positions": "rotary"}, "", "Left out: rotations."),
        ({"mlp_hidden": (8,)}, "", "Left out: the MLP"),
        ({"mlp_hidden": (8,), "residual": False}, "residual=False: the MLP stands", "Left out: the MLP"),
        ({"unembed_hidden": (8,)}, "unembed_hidden=(8,)", "Left out"),
        ({"attn_out": False}, "attn_out=False", "Left out"),
    ],
)
def test_what_is_left_out(changes: dict[str, Any], why_not: str, left_out: str) -> None:
    model = replace(BASE, **changes)
    found = of_ours(model)["trigrams"]
    assert why_not in found and bool(why_not) == bool(found)
    assert left_out in ignored(model)
