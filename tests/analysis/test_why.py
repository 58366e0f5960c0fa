"""A cell's score is the sum of its pairs of sources, in every model; what a source is, and what the cell moves."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import tracer
from tests.causal_families import CAUSAL, QUICK, causal
from tests.tiers import quick
from tracer import ablate
from tracer.analysis import why_words
from tracer.analysis.cell_moves import moves, readers
from tracer.analysis.why import OWN, REST, carried, cell, largest, read_from, read_pass, why
from tracer.analysis.why_without import without
from tracer.analysis.why_words import in_words, reason
from tracer.config import InitConfig, ModelConfig
from tracer.data import probes
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import applied, recording, visiting
from tracer.model import Transformer
from tracer.presets import preset
from tracer.training.loop import train

INIT = InitConfig(embed=1.0, pos=0.7, attn=0.3, mlp=0.2, unembed=0.5)
BASE = ModelConfig(n_layers=3, n_heads=2, d_model=16, n_ctx=12, d_vocab=11, norm="rms", init=INIT)
TOKENS = torch.tensor([[0, 3, 5, 7, 3, 5, 1, 2]])
PAIR = ["query_source", "key_source"]
CONFIGS = {
    "rms": BASE,
    "layer norm, MLP, b_O": replace(BASE, norm="layer", mlp_hidden=(24,), attn_out_bias=True),
    "no norm": replace(BASE, norm="none", mlp_hidden=(24, 24)),
    "shortformer": replace(BASE, positions="shortformer"),
    "rotary": replace(BASE, positions="rotary", mlp_hidden=(24,)),
    "q and k normed, then turned": replace(BASE, qk_norm=True, positions="rotary"),
    "gate": replace(BASE, attn_gate=True, mlp_hidden=(24,)),
    "no W_O": replace(BASE, attn_out=False),
    "scaled by d_model": replace(BASE, attn_scale="d_model", positions="sinusoidal"),
}
MIXED = CONFIGS | {"sigmoids": replace(BASE, attention="sigmoid", n_ctx=8, attn_scale="none")}
"""With one whose rows sum to more than 1."""


def built(config: ModelConfig, dtype: torch.dtype = torch.float64) -> Transformer:
    """With biases and gains that are not their initial 0 and 1."""
    model = Transformer(config, seed=3).to(dtype).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith((".w", ".b", "b_O", "b_in", "b_out")):
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator).to(dtype)
    return model


def score_of(call: AttentionCall, head: int, query: int, key: int) -> float:
    """As it enters the softmax."""
    one = call.head(head)
    assert one.q is not None and one.k is not None
    return float(one.q[0, query, 0] @ one.k[0, key, 0] * one.scale)


@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float64, 1e-10), (torch.float32, 1e-4)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_pairs_sum_to_the_score(config: ModelConfig, dtype: torch.dtype, close: float) -> None:
    model, calls = built(config, dtype), {}
    with torch.no_grad(), visiting(lambda call: calls.update({call.layer: call})):
        model(TOKENS)
    for layer, head, query, key in ((0, 1, 6, 2), (1, 0, 5, 5), (2, 1, 7, 3), (2, 0, 0, 0)):
        found = why(model, TOKENS, layer, head, query, key)
        assert abs(float(found.sum()) - score_of(calls[layer], head, query, key)) < close
        assert found.attrs["sum"] == pytest.approx(float(found.sum()))
        assert found.attrs["pattern"] == pytest.approx(float(calls[layer].pattern()[0, head, query, key]), abs=close)


@pytest.mark.parametrize("name", quick(CAUSAL, QUICK))
def test_pairs_sum_to_the_score_of_every_family(name: str) -> None:
    """Norms of transformers are in float32 whatever the model is in: 1e-4 of a score is what can be asked of it."""
    theirs = causal(name)
    tokens = torch.randint(2, 50, (1, 9), generator=torch.Generator().manual_seed(0))
    as_it_is = why(theirs, tokens, 2, 1, 8, 6)
    model = tracer.load_hf(theirs)
    found = read_pass(model, tokens)
    one_by_one = found.stream.layers[2].read("k", 1, found.stream.parts(2))
    torch.testing.assert_close(found.stream.read(2, "k", 1), one_by_one, rtol=0, atol=1e-6)
    assert cell(found, 2, 1, 8, 6).identical(as_it_is)
    for layer, head in ((0, 1), (2, 0), (2, 3)):
        call, here = found.calls[layer], found.stream.layers[layer]
        sums = {key: cell(found, layer, head, 8, key) for key in (3, 6, 8)}
        for key, one in sums.items():
            if call.q is not None:
                assert abs(float(one.sum()) - score_of(call, head, 8, key)) < 1e-4
        rows = found.pattern((layer, head), 8)
        if rows[6] > 0 and rows[8] > 0:  # patterns made by hand show no score: differences of their logarithms do
            scores = torch.tensor([float(sums[key].sum()) for key in (6, 8)])
            cap = here.weights.cap
            scores = scores if cap is None else cap * (scores / cap).tanh()
            bias = 0 if here.score_bias is None else here.score_bias[0, head, -1, [6, 8]]
            torch.testing.assert_close((scores + bias).diff().double(), rows[[6, 8]].log().diff(), rtol=0, atol=1e-4)
        if rows[3] == 0:
            assert call.mask is not None or call.weights is not None  # a sliding window


def test_above_is_what_tells_this_key_from_the_others() -> None:
    model = built(CONFIGS["layer norm, MLP, b_O"])
    found = read_pass(model, TOKENS)
    cells = [cell(found, 2, 1, 6, key) for key in range(7)]
    others = sum(one.to_numpy() for i, one in enumerate(cells) if i != 2) / 6
    np.testing.assert_allclose(cells[2].above, cells[2] - others, atol=1e-10)
    assert (cell(found, 2, 1, 0, 0).above == 0).all()  # nothing else is to be seen


@pytest.mark.parametrize(
    ("name", "cancelling"), [("layer norm, MLP, b_O", [OWN]), ("no norm", []), ("rotary", []), ("shortformer", [])]
)
def test_what_is_the_same_at_every_key_is_told_apart(name: str, cancelling: list[str]) -> None:
    found = why(built(CONFIGS[name]), TOKENS, 2, 0, 6, 3)
    assert found.key_source[found.cancels].values.tolist() == cancelling
    np.testing.assert_allclose(found.above.sel(key_source=cancelling), 0, atol=1e-12)


@pytest.mark.parametrize("name", ["rotary", "gate", "sigmoids"])
def test_a_part_of_a_head_is_a_sum_over_what_it_read(name: str) -> None:
    model = built(MIXED[name])
    found = read_pass(model, TOKENS)
    one = cell(found, 2, 1, 6, 3)
    here = found.stream.layers[2]
    wanted = here.whole("q", 1, [6])[0, 0] * here.weights.scale
    parts = read_from(found, 1, 2, 1, "k", 3, wanted)
    assert float(parts[0].sum()) == pytest.approx(float(one.sel(key_source="L1H0").sum()), abs=1e-10)
    assert parts[0].abs().argmax() == one.key_from.sel(key_source="L1H0") and (parts[0, 4:] == 0).all()
    place, of = carried(found, (1, 0), 2, 1, 6, 3, "k")
    assert sum(of.values()) == pytest.approx(float(parts[0, place]), abs=1e-10)


@pytest.mark.parametrize("into", ["q", "k"])
def test_a_part_that_speaks_against_a_key_was_read_where_it_is_lowest(into: Any) -> None:
    found = read_pass(built(CONFIGS["no norm"]), TOKENS)
    here, (query, key) = found.stream.layers[2], (6, 3)
    one, at = cell(found, 2, 1, query, key), query if into == "q" else key
    other = key if into == "q" else query
    wanted = here.whole("k" if into == "q" else "q", 1, [other])[0, 0] * here.weights.scale
    sums = []
    for source in ((0, 0), (0, 1), (1, 0), (1, 1)):
        parts = read_from(found, source[0], 2, 1, into, at, wanted)[source[1]]
        sums.append(float(parts.sum()))
        place = int(parts.argmax() if sums[-1] > 0 else parts.argmin())
        side = "query" if into == "q" else "key"
        assert int(one[f"{side}_from"].sel({f"{side}_source": f"L{source[0]}H{source[1]}"})) == place
        read, of = carried(found, source, 2, 1, query, key, into)
        assert read == place and sum(of.values()) == pytest.approx(float(parts[place]), abs=1e-10)
    assert min(sums) < 0


@pytest.mark.parametrize("into", ["q", "k", "both"])
def test_without_a_head_is_what_cutting_its_paths_gives(into: str) -> None:
    model = built(BASE)
    cut = [ablate.Path((0, 1), (2, 0), side) for side in ("q", "k") if into in (side, "both")]
    found = without(model, TOKENS, 2, 0, 7, ["L0H1"], into)  # pyrefly: ignore[bad-argument-type]
    with torch.no_grad(), recording("hook_pattern") as seen, applied(ablate.planner(model, TOKENS)(cut)[0]):
        model(TOKENS)
    np.testing.assert_allclose(found.recomputed, seen["blocks.2.attn.hook_pattern"][0, 0, 7], atol=1e-12)
    with torch.no_grad(), recording("hook_pattern") as seen, applied(ablate.planner(model, TOKENS)([(0, 1)])[0]):
        model(TOKENS)
    np.testing.assert_allclose(found.everywhere, seen["blocks.2.attn.hook_pattern"][0, 0, 7], atol=1e-12)
    for row in found.data_vars.values():
        assert float(row.sum()) == pytest.approx(1)


@pytest.mark.parametrize("logit", [3.0, 2000.0])
@pytest.mark.parametrize(
    "fields",
    [{"sink": "learned"}, {"attn_softcap": 0.5}, {"sink": "zero", "attn_softcap": 0.5},
     {"attention": "sigmoid", "n_ctx": 8, "attn_scale": "none"}],
)  # fmt: skip
def test_without_a_head_where_no_softmax_of_positions_is_the_pattern(fields: dict, logit: float) -> None:
    """As the model computes it: what a sink gets, all of a row perhaps, is not the positions'."""
    model = built(replace(BASE, **fields))
    for block in model.blocks:
        if block.attn.b_sink is not None:
            torch.nn.init.constant_(block.attn.b_sink, logit)
    found = without(model, TOKENS, 2, 0, 7, ["L0H1"])
    with torch.no_grad(), recording("hook_pattern") as seen:
        model(TOKENS)
    np.testing.assert_allclose(found.as_is, seen["blocks.2.attn.hook_pattern"][0, 0, 7], atol=1e-12)
    cut = [ablate.Path((0, 1), (2, 0), side) for side in ("q", "k")]
    with torch.no_grad(), recording("hook_pattern") as seen, applied(ablate.planner(model, TOKENS)(cut)[0]):
        model(TOKENS)
    np.testing.assert_allclose(found.recomputed, seen["blocks.2.attn.hook_pattern"][0, 0, 7], atol=1e-12)


def test_the_estimate_is_the_row_less_the_entries_and_exact_without_norms() -> None:
    model = built(CONFIGS["no norm"])
    found = without(model, TOKENS, 2, 0, 7, ["L0H1", "MLP 0"])
    np.testing.assert_allclose(found.estimate, found.recomputed, atol=1e-12)
    cells = [why(model, TOKENS, 2, 0, 7, key) for key in range(8)]
    gone = ["L0H1", "MLP 0"]
    left = [float(one.drop_sel(query_source=gone, key_source=gone).sum()) for one in cells]
    np.testing.assert_allclose(found.estimate, torch.tensor(left, dtype=torch.float64).softmax(-1), atol=1e-10)


@pytest.mark.parametrize("name", ["layer norm, MLP, b_O", "rotary", "gate", "sigmoids"])
def test_what_cells_move_sums_to_what_the_head_adds(name: str) -> None:
    model = built(MIXED[name])
    found = read_pass(model, TOKENS)
    parts = [moves(found, 1, 0, 6, key) for key in range(7)]
    stream = found.stream
    part = stream.layers[1].heads_out([6])[0]
    assert stream.end.norm is not None
    held = stream.end.norm.linear(part, stream.end.norm.scale(stream.final[:, [6]]))
    logits = (held @ stream.end.W_U)[0, 0]
    np.testing.assert_allclose(sum(one.logits for one in parts), logits - logits.mean(), atol=1e-10)
    reads = np.sum([one.reads for one in parts], 0)
    assert np.isnan(reads[:2]).all()
    if name == "sigmoids":  # its calls show no q and k
        return
    k = stream.layers[2].whole("k", 1, [6])[0, 0]
    share = stream.layers[2].read("k", 1, part, [6])[0, 0] @ k / (k @ k)
    assert float(reads[2, 1, 1]) == pytest.approx(float(share), abs=1e-6)


@pytest.mark.parametrize(
    ("cell_", "said"),
    [((3, 0, 1, 0), "L3H0 does not exist"), ((0, 0, 8, 0), "position 8 does not exist"), ((0, 0, 2, 3), "look ahead")],
)
def test_a_cell_that_is_not_there_is_refused(cell_: tuple[int, int, int, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        why(built(BASE), TOKENS, *cell_)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (replace(BASE, residual=False), "residual=False"),
        (replace(BASE, norm_position="post"), "norm_position=post"),
        (replace(BASE, smear="keys"), "smear=keys: each is mixed"),
        (replace(BASE, smear="queries"), "smear=queries"),
    ],
)
def test_a_stream_that_is_no_sum_is_refused(config: ModelConfig, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        why(built(config), TOKENS, 1, 0, 3, 2)


def test_the_induction_head_of_a_trained_toy_reads_as_one(trained_toy: Path) -> None:
    """Without a hint: this token, at the key where an earlier head wrote the token before; and since when."""
    run = tracer.open_run(trained_toy)
    last = run.trace.isel(step=-1)
    layer, head = np.unravel_index(int(last.induction.to_numpy().argmax()), last.induction.shape)
    model = run.model(run.steps[-1])
    tokens, period = probes.repeated(model.d_vocab, model.n_ctx, 0, at=20).tokens[:1], 20
    found = read_pass(model, tokens)
    for query in range(period + 1, 2 * period):
        said = reason(found, cell(found, int(layer), int(head), query, query - period + 1))
        assert said.query_side == "this token" and said.above > 0, said.sentence
        assert re.fullmatch(r"L0H\d wrote the token before", said.key_side), said.sentence
    query = period + 3
    over = tracer.why(run, tokens, int(layer), int(head), query, query - period + 1)
    assert over.dims == ("step", *PAIR) and over.step.to_numpy().tolist() == run.steps
    np.testing.assert_allclose(over.sum(PAIR), over["sum"], atol=1e-9)
    assert float(over.above.sum(PAIR)[-1]) > 5 * abs(float(over.above.sum(PAIR)[0]))


def test_of_the_only_key_no_pair_is_the_reason() -> None:
    found = read_pass(built(BASE), TOKENS)
    said = reason(found, cell(found, 2, 1, 0, 0)).sentence
    assert said == "Nothing speaks for or against this key: the query sees no other, or they all score the same."


def hand_made(above: list[list[float]]) -> xr.DataArray:
    """A cell of two sources that are said without a model."""
    names = ["token", "position"]
    coords = {"query_source": names, "key_source": names, "above": (("query_source", "key_source"), above)}
    return xr.DataArray(np.zeros((2, 2)), coords, ("query_source", "key_source"))


@pytest.mark.parametrize(
    ("above", "said"),
    [
        (
            [[3.0, -1.0], [1.0, 1.0]],
            "The strongest reason for this key: query side “this token”, key side “this token”, +3 of the +4 that set "
            "its score apart from the mean of other keys. Before what speaks against it is taken off, this is 60% of "
            "what speaks for it.",
        ),
        (
            [[2.0, -3.0], [-1.0, -1.0]],
            "The strongest reason against this key: query side “this token”, key side “this position”, −3 of the −3 "
            "that set its score apart from the mean of other keys. Before what speaks for it is taken off, this is 60% "
            "of what speaks against it.",
        ),
    ],
)
def test_the_reason_is_the_strongest_pair_of_the_winning_side(above: list[list[float]], said: str) -> None:
    found = read_pass(built(BASE), TOKENS)
    assert reason(found, hand_made(above)).sentence == said


@pytest.mark.parametrize("side", ["query", "key"])
def test_what_a_head_brought_is_said_by_what_did_most_of_it(side: Any) -> None:
    """In the direction of all that it brought: where that speaks against the key, what is lowest."""
    found = read_pass(built(CONFIGS["no norm"]), TOKENS)
    one, some_against = cell(found, 2, 1, 6, 3), False
    for source in ((0, 0), (0, 1), (1, 0), (1, 1)):
        place, parts = carried(found, source, 2, 1, 6, 3, "q" if side == "query" else "k")
        against = sum(parts.values()) < 0
        most = (min if against else max)(parts, key=lambda name: parts[name])
        some_against |= against
        where = in_words(found, one, side, "L{}H{}".format(*source))
        assert (most in where) or (most == "token" and "had written" not in where and "position" not in where), most
    assert some_against


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (6, "this token"),
        (5, "the token before"),
        (4, "the token 2 back"),
        (1, "the token 5 back"),
        (0, "the first token"),
    ],
)
def test_a_place_is_said_as_seen_from_the_token(place: int, said: str) -> None:
    assert why_words._where(6, place) == said


def test_readers_come_by_the_size_of_what_they_read() -> None:
    reads = np.full((3, 1, 3), np.nan)
    reads[1:, 0] = [[0.1, -0.5, 0.0], [0.2, 0.3, -0.05]]
    coords = {"layer": range(3), "head": range(1), "input": ["q", "k", "v"]}
    found = readers(xr.Dataset({"reads": (("layer", "head", "input"), reads)}, coords))
    assert found[:4] == [((1, 0), "k", -0.5), ((2, 0), "k", 0.3), ((2, 0), "q", 0.2), ((1, 0), "q", 0.1)]
    assert len(found) == 6


def test_over_steps_sources_are_those_of_any_step_in_their_order(tmp_path: Path) -> None:
    """Biases are 0 at first, and no source then."""
    toy = preset("induction").config
    config = replace(
        toy, run=str(tmp_path / "r"), steps=2, device="cpu", optim=replace(toy.optim, batch_size=2),
        model=replace(toy.model, n_layers=2, n_heads=2, d_model=16, norm="layer", attn_out_bias=True),
        record=replace(toy.record, snapshot_every=1, val_rows=2, repeat_rows=2),
    )  # fmt: skip
    run = train(config, quiet=True)
    each = [why(run.model(step), TOKENS, 1, 0, 5, 2) for step in run.steps]
    over = tracer.why(run, TOKENS, 1, 0, 5, 2)
    assert each[0].sizes["key_source"] < each[-1].sizes["key_source"]
    assert over.notnull().all() and over.key_source.values.tolist() == each[-1].key_source.values.tolist()
    for found, step in zip(each, run.steps, strict=True):
        here = over.sel(step=step, query_source=found.query_source.values, key_source=found.key_source.values)
        np.testing.assert_array_equal(here, found)
        np.testing.assert_allclose(over.sel(step=step).sum(), found.sum())


def test_the_largest_sources_and_the_rest_sum_to_the_same() -> None:
    found = why(built(CONFIGS["layer norm, MLP, b_O"]), TOKENS, 2, 0, 6, 3)
    few = largest(found, 3)
    assert few.shape == (4, 4) and few.key_source.values[-1] == REST
    np.testing.assert_allclose((few.sum(), few.above.sum()), (found.sum(), found.above.sum()))
    name = few.key_source.values[0]
    np.testing.assert_allclose(few.sel(key_source=name).sum(), found.sel(key_source=name).sum())
    assert largest(found, 50).shape == found.shape
