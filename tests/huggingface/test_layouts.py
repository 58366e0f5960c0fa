"""A layout of one's own: a model of other names is told apart into what writes to its stream, or refused in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import tracer
from tests.own_gpt import LAYOUT, Mine
from tracer.analysis.cell_moves import moves
from tracer.analysis.why import read_pass
from tracer.huggingface import building
from tracer.huggingface.architectures import layout_of, plain_values
from tracer.huggingface.attention_weights import halved
from tracer.interventions.edits import Edit, applied, recording
from tracer.store.schema import problem

IDS = torch.randint(24, (2, 20), generator=torch.Generator().manual_seed(0))
LAID = tracer.Layout(**LAYOUT)
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "positions": ({}, {}),
    "halves": ({"rotary": "halves"}, {"rotary": "halves", "has_positions": False}),
    "pairs, shared keys": ({"rotary": "pairs", "kv_heads": 2}, {"rotary": "pairs", "has_positions": False}),
    "gated": ({"gated": True}, {"gated": True}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_other_names_is_told_apart(kind: str) -> None:
    options, fields = KINDS[kind]
    model = tracer.load_hf(Mine(**options).double(), layout=replace(LAID, **fields))
    stream = model.residual_stream(IDS)
    torch.testing.assert_close(stream.parts().sum(0), stream.final)
    with recording("hook_pattern", "hook_v") as seen:
        torch.testing.assert_close(stream.end(stream.final), model(IDS))
    for i, layer in enumerate(stream.layers):
        for head in range(4):
            pattern = seen[f"blocks.{i}.attn.hook_pattern"][:, head].double()
            scores = layer.scores(head).masked_fill(pattern == 0, -torch.inf)
            torch.testing.assert_close(scores.softmax(-1), pattern)
            torch.testing.assert_close(pattern @ layer.whole("v", head), layer.z[:, :, head])
    attributed = tracer.logit_attribution(model, IDS)
    parts = attributed.embed + attributed.heads.sum(("layer", "head")) + attributed.mlps.sum("layer")
    assert float(abs(parts + attributed.biases - attributed.logit).max()) < 1e-6
    assert model.head_weights().W_Q.shape == (2, 4, 32, 8)


def test_what_a_gated_head_writes_is_missing_where_it_is_off() -> None:
    model = tracer.load_hf(Mine(gated=True).double(), layout=replace(LAID, gated=True))
    layer, tap = model.residual_stream(IDS).layers[1], "blocks.1.hook_attn_out"
    with recording(tap) as on:
        model(IDS)
    with applied([Edit("blocks.1.attn.hook_z", (2,), instead=lambda z: 0 * z)]), recording(tap) as off:
        model(IDS)
    change = (off[tap] - on[tap]).double()
    torch.testing.assert_close(-layer.heads_out()[2], change)
    torch.testing.assert_close(layer.rewritten(layer.gated(-layer.z)[:, :, 2] @ layer.weights.W_O[2]), change)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"has_positions": False}, "what enters layer 0 is off by .* positions .has_positions."),
        ({"mlp": None}, "what enters layer 1 is off by .* a block adds more than its attention and its mlp write"),
        ({"own_norms": ()}, "the pattern of L0H0 is off by .* own_norms"),
        ({"scale": 1.0}, "the pattern of L0H0 .* scale"),
        ({"out": "query"}, "what the heads of layer 0 write is off by .* a gate .gated."),
        ({"final": None}, "its logits is off by .* final and unembed"),
        (
            {"norm": "ln_1"},
            r"norm='ln_1', but this Mine has no tower.0.ln_1; modules in tower.0: before, look, between",
        ),
        ({"into": ("q", "k", "v")}, "has no tower.0.look.q; modules in tower.0.look: query, "),
        ({"blocks": "words"}, "blocks='words', but an attention was seen in tower.0.look"),
        ({"unembed": "tower"}, "is a ModuleList, which has no weight"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_layout_that_is_another_is_refused_and_says_what_is_missing(fields: dict[str, Any], said: str) -> None:
    model = Mine()
    with pytest.raises(ValueError, match=said):
        tracer.load_hf(model, layout=replace(LAID, **fields))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"into": ("q", "k")}, "three linear layers"), ({"own_norms": ("q",)}, "two norms"),
        ({"out_norm": "F.rms_norm"}, "must be a module"),
    ],
)  # fmt: skip
def test_a_layout_of_wrong_fields_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tracer.Layout(**LAYOUT | fields)


def test_a_layout_is_text_in_a_file_and_in_run_json(tmp_path: Path) -> None:
    plain = plain_values(LAID)
    for name, text in (("one.yaml", yaml.safe_dump(plain)), ("one.json", json.dumps(plain))):
        (tmp_path / name).write_text(text)
        assert layout_of(tmp_path / name) == layout_of(str(tmp_path / name)) == LAID
    assert layout_of(json.loads(json.dumps(plain)) | {"of_a_later_version": 1}) == LAID
    (tmp_path / "one.yaml").write_text("blocks: tower\nheads: 4\n")
    with pytest.raises(ValueError, match="Layout has no field heads; it has blocks, final"):
        layout_of(tmp_path / "one.yaml")
    with pytest.raises(ValueError, match="cannot be read"):
        layout_of(tmp_path / "none.yaml")


def loop(directory: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tracer.Run:
    monkeypatch.setenv(building.SETTING, "tests.own_gpt:Mine")
    monkeypatch.setenv(building.LAYOUT, "")
    model = Mine()
    optimizer = torch.optim.AdamW(model.parameters())
    with tracer.watch(model, run=directory / "mine", every=1, build="tests.own_gpt:Mine", **options) as recorder:
        for _ in range(2):
            loss = model(IDS).square().mean()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    assert recorder.off is None
    return tracer.open_run(directory / "mine")


def test_a_recorded_run_says_its_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"what enters layer 0 .*has_positions"):
        loop(tmp_path, monkeypatch, layout=replace(LAID, has_positions=False))
    run = loop(tmp_path, monkeypatch, layout=LAID)
    assert run.meta["layout"] == plain_values(LAID) and problem(run.meta) == ""
    assert not any(map(run.why_not, ("attribution", "composition_curve", "positions")))
    model = run.model()
    assert model.why_no_stream == "" and float(tracer.logit_lens(model, IDS).log_p.max()) < 0
    for field, value in (("out", "x" * 201), ("into", ["q", "k"]), ("norm", "os.system('x')"), ("scale", True)):
        assert problem({**run.meta, "layout": {**run.meta["layout"], field: value}}).startswith("layout")


def test_a_run_that_does_not_say_it_is_told_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = loop(tmp_path, monkeypatch)
    assert "a Mine write to the residual stream is not known: a tracer.Layout" in run.why_not("attribution")
    assert run.model(layout=LAID).why_no_stream == "" and run.model().why_no_stream
    assert "has_positions" in str(pytest.raises(ValueError, run.model(layout=replace(LAID, has_positions=False))
                                                .residual_stream, IDS).value)  # fmt: skip
    (tmp_path / "laid.yaml").write_text(yaml.safe_dump(plain_values(LAID)))
    building.allow(layout=tmp_path / "laid.yaml")
    assert run.why_not("attribution") == "" and run.model().why_no_stream == ""


@pytest.mark.parametrize("name", ["F.rms_norm", "F.layer_norm"])
def test_a_norm_that_is_a_function_is_named_by_it(name: str) -> None:
    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            function = {"F.rms_norm": torch.nn.functional.rms_norm, "F.layer_norm": torch.nn.functional.layer_norm}[
                name
            ]
            return function(x, x.shape[-1:])

    model = Mine()
    model.last = Plain()  # pyrefly: ignore[bad-assignment]
    for floor in model.tower:
        floor.before = floor.look.of_query = floor.look.of_key = Plain()  # pyrefly: ignore[missing-attribute]
    laid = replace(LAID, final=name, norm=name, own_norms=(name, name))
    assert tracer.load_hf(model, layout=laid).why_no_stream == ""


def test_pairs_of_neighbours_are_halves_in_another_order() -> None:
    """Two models of one function, whose q and k are the same numbers in another order: all that is said is the same."""
    pairs, halves = (Mine(rotary=rotary).double() for rotary in ("pairs", "halves"))
    with torch.no_grad():
        floors: Any = halves.tower
        for floor in floors:
            for one in (floor.look.query, floor.look.key):
                for weight in one.parameters():
                    by_head = weight.unflatten(0, (4, 8))
                    weight.copy_(torch.cat([by_head[:, 0::2], by_head[:, 1::2]], 1).flatten(0, 1))
            for norm in (floor.look.of_query, floor.look.of_key):
                (gain,) = norm.parameters()
                gain.copy_(halved(gain))
    laid = [replace(LAID, rotary=rotary, has_positions=False) for rotary in ("pairs", "halves")]
    one, other = (tracer.load_hf(model, layout=layout) for model, layout in zip((pairs, halves), laid, strict=True))
    torch.testing.assert_close(one(IDS), other(IDS))
    found = [moves(read_pass(model, IDS[:1]), 0, 1, 15, 4) for model in (one, other)]
    np.testing.assert_allclose(found[0].reads, found[1].reads, atol=1e-9)
    assert float(abs(found[0].reads[1]).max()) > 1e-4
    cells = [tracer.why(model, IDS[:1], layer=1, head=2, query=15, key=4) for model in (one, other)]
    np.testing.assert_allclose(cells[0], cells[1], atol=1e-9)
