"""Ablation against answers that follow from what it is: nothing written changes nothing, off is off, held is held."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

from tracer import ablate
from tracer.ablate import MLP, MODES, Attention, Edge, Estimate, Path, derangement, effect, estimate, planner, sweep
from tracer.ablate.estimates import ratio
from tracer.ablate.parts import name
from tracer.ablate.planner import reference_z
from tracer.analysis.prompt_attention import induction, next_token
from tracer.config import ModelConfig
from tracer.data import probes
from tracer.interventions.edits import Edit, applied, recording, visiting
from tracer.model import Transformer

FIRST, LAST, BOTH = [(0, 1)], [(1, 0), (1, 2)], [(0, 1), (1, 2)]


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, atol=2e-6, rtol=0.0)


def w_o(model: Transformer, layer: int) -> torch.Tensor:
    weight = model.blocks[layer].attn.W_O
    assert weight is not None
    return weight


@pytest.fixture(scope="module")
def model() -> Transformer:
    """Two layers of four heads, untrained but with every head doing something."""
    config = ModelConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=16, d_vocab=40)
    model = Transformer(config, seed=1).double().eval().requires_grad_(False)
    for layer in range(2):
        w_o(model, layer).mul_(8)  # far enough from nothing that a wrong head would be seen
    return model


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.randint(1, 40, (6, 16), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_head_that_writes_nothing_changes_nothing(mode: ablate.Mode, frozen: bool, tokens: torch.Tensor) -> None:
    silent = Transformer(ModelConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=16, d_vocab=40), seed=1).double().eval()
    with torch.no_grad():
        w_o(silent, 0)[1] = 0
        w_o(silent, 1)[2] = 0
    close(effect(silent, tokens, BOTH, mode, frozen=frozen).delta, torch.zeros(6, 15).double())
    assert abs(effect(silent, tokens, [(0, 0)], mode, frozen=frozen).mean) > 1e-6


def test_replacements_of_many_rows_are_those_of_one_pass(
    model: Transformer, tokens: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read a few at a time where the logits of all are many; of layers that nobody asks for z is not kept."""
    whole, rows = reference_z(model, tokens), []
    monkeypatch.setattr(
        import_module("tracer.ablate.planner"), "AT_ONCE", 2 * 16 * 40
    )  # the package has a function planner
    with visiting(lambda call: rows.append(len(call.pattern()))):
        parts = reference_z(model, tokens, layers=[1])
    assert rows == [2, 2] * 3 and list(parts) == ["blocks.1.attn.hook_z"] and len(whole) == 2
    close(parts["blocks.1.attn.hook_z"], whole["blocks.1.attn.hook_z"])


@pytest.mark.parametrize("mode", MODES)
def test_a_head_that_writes_something_is_missed(mode: ablate.Mode, model: Transformer, tokens: torch.Tensor) -> None:
    assert effect(model, tokens, FIRST, mode).delta.abs().max() > 0.01


def test_patterns_held_and_nothing_off_is_the_clean_run(model: Transformer, tokens: torch.Tensor) -> None:
    with applied(ablate.freeze(model, tokens)):
        held = model(tokens)
    close(held, model(tokens))


@pytest.mark.parametrize("mode", MODES)
def test_holding_patterns_matters_only_below_the_last_layer(
    mode: ablate.Mode, model: Transformer, tokens: torch.Tensor
) -> None:
    full, held = (effect(model, tokens, LAST, mode, frozen=frozen).delta for frozen in (False, True))
    close(full, held)
    full, held = (effect(model, tokens, FIRST, mode, frozen=frozen).delta for frozen in (False, True))
    assert (full - held).abs().max() > 1e-4


def test_switching_off_twice_is_switching_off_once(model: Transformer, tokens: torch.Tensor) -> None:
    edits = ablate.plan(BOTH, "zero")
    with applied(edits):
        once = model(tokens)
    with applied(edits), applied(edits):
        twice = model(tokens)
    assert torch.equal(once, twice)
    assert torch.equal(effect(model, tokens, [*BOTH, *BOTH]).ablated, effect(model, tokens, BOTH).ablated)


def test_a_sequence_resampled_from_itself_is_unchanged(
    model: Transformer, tokens: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert effect(model, tokens, BOTH, "resample").delta.abs().max() > 1e-4
    monkeypatch.setattr("tracer.interventions.replacements.derangement", lambda n, seed: torch.arange(n))
    close(effect(model, tokens, BOTH, "resample").delta, torch.zeros(6, 15).double())


@pytest.mark.parametrize("mode", ["mean", "resample"])
def test_among_equal_sequences_the_replacement_is_what_was_there(
    mode: ablate.Mode, model: Transformer, tokens: torch.Tensor
) -> None:
    same = tokens[:1].repeat(4, 1)
    close(effect(model, same, BOTH, mode).delta, torch.zeros(4, 15).double())


def others(x: torch.Tensor) -> torch.Tensor:
    """The mean over the other rows, row by row."""
    return torch.stack([torch.cat([x[:row], x[row + 1 :]]).mean(0) for row in range(len(x))])


@pytest.mark.parametrize("given", [False, True])
def test_mean_is_that_of_the_other_rows_at_each_position(given: bool, model: Transformer, tokens: torch.Tensor) -> None:
    z = ablate.reference_z(model, tokens)["blocks.1.attn.hook_z"]
    with applied([Edit("blocks.1.attn.hook_z", (2,), instead=others(z))]):
        expected = probes.per_token_loss(model(tokens), tokens)
    reference = tokens if given else None
    close(effect(model, tokens, [(1, 2)], "mean", reference=reference).ablated, expected)
    close(sweep_losses(model, tokens, [(1, 2)], reference), expected)


def test_a_row_of_the_reference_batch_is_left_out_wherever_it_stands(model: Transformer, tokens: torch.Tensor) -> None:
    """Rows 4 and 1 of a longer batch, and one that is not in it, against means taken by hand."""
    new = torch.randint(1, 40, (1, 9), generator=torch.Generator().manual_seed(5))
    rows = torch.cat([tokens[[4, 1], :9], new])
    z = ablate.reference_z(model, tokens)["blocks.0.attn.hook_z"][:, :9]
    means = torch.stack([z[[i for i in range(6) if i != row]].mean(0) for row in (4, 1, None)])
    with applied([Edit("blocks.0.attn.hook_z", (3,), instead=means)]):
        expected = probes.per_token_loss(model(rows), rows)
    close(effect(model, rows, [(0, 3)], "mean", reference=tokens).ablated, expected)
    close(sweep_losses(model, rows, [(0, 3)], tokens), expected)


def sweep_losses(
    model: Transformer, tokens: torch.Tensor, heads: list[tuple[int, int]], reference: torch.Tensor | None
) -> torch.Tensor:
    """By the engine that shares prefixes, a sequence or two at a time."""
    return ablate.losses(model, tokens, [heads], "mean", reference=reference, budget=1 << 17)[0]


def test_a_reference_of_one_row_has_no_other_to_take_the_mean_of(model: Transformer, tokens: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="here is only one"):
        effect(model, tokens, FIRST, "mean", reference=tokens[3:4])
    with pytest.raises(ValueError, match="here is only one"):
        sweep(model, tokens, "mean", reference=tokens[3:4])


def test_a_row_is_resampled_from_another_wherever_it_stands(model: Transformer, tokens: torch.Tensor) -> None:
    """The reference holds the rows of the input backwards: each is replaced by a row that is not itself."""
    z, reference = ablate.reference_z(model, tokens)["blocks.0.attn.hook_z"], tokens.flip(0)
    for seed in range(4):
        found = effect(model, tokens, FIRST, "resample", reference=reference, draws=1, seed=seed)
        close(ablate.losses(model, tokens, [FIRST], "resample", reference=reference, draws=1, seed=seed)[0],
              found.ablated)  # fmt: skip
        (edits,) = planner(model, tokens, "resample", reference=reference, draws=1, seed=seed)(FIRST)
        assert not (edits[0].instead[:, :, 1] == z[:, :, 1]).all((1, 2)).any()  # pyrefly: ignore[bad-index, unsupported-operation]


def test_resampling_is_the_mean_of_its_draws_and_seeded(model: Transformer, tokens: torch.Tensor) -> None:
    one_by_one = [effect(model, tokens, BOTH, "resample", draws=1, seed=seed).ablated for seed in (7, 8, 9)]
    together = effect(model, tokens, BOTH, "resample", draws=3, seed=7).ablated
    close(together, torch.stack(one_by_one).mean(0))
    assert not torch.equal(one_by_one[0], one_by_one[1])


@pytest.mark.parametrize("n", [2, 3, 4, 7, 32])
def test_a_derangement_leaves_nothing_in_place(n: int) -> None:
    for seed in range(50):
        order = derangement(n, seed)
        assert sorted(order.tolist()) == list(range(n))
        assert (order != torch.arange(n)).all()
    assert torch.equal(derangement(n, 3), derangement(n, 3))


def test_rows_one_longer_than_the_context_keep_their_last_target(model: Transformer, tokens: torch.Tensor) -> None:
    longer = torch.cat([tokens, torch.full((6, 1), 5)], 1)
    found = effect(model, longer, LAST)
    assert found.clean.shape == (6, 16)
    close(found.clean[:, :-1], effect(model, tokens, LAST).clean)


@pytest.mark.parametrize("mode", MODES)
def test_a_reference_may_be_longer_and_of_other_sequences(
    mode: ablate.Mode, model: Transformer, tokens: torch.Tensor
) -> None:
    prompt, before = tokens[:1, :9], effect(model, tokens[:1, :9], BOTH, mode, reference=tokens[1:])
    assert before.delta.shape == (1, 8)
    cut = effect(model, prompt, BOTH, mode, reference=tokens[1:, :9])
    close(before.ablated, cut.ablated)


@pytest.mark.parametrize("mode", MODES)
def test_a_sweep_is_each_head_by_itself(mode: ablate.Mode, model: Transformer, tokens: torch.Tensor) -> None:
    where = slice(3, 9)
    table = sweep(model, tokens, mode, positions=where)
    assert table.dims == ("layer", "head") and table.shape == (2, 4)
    assert table.attrs["units"] == "nats" and table.attrs["n_sequences"] == 6
    for layer, head in [(0, 1), (1, 3)]:
        alone = effect(model, tokens, [(layer, head)], mode).delta[:, where].mean()
        assert float(table[layer, head]) == pytest.approx(float(alone), abs=1e-6)


def test_induction_of_a_changed_model_is_read_under_the_edits(model: Transformer) -> None:
    probe = probes.repeated(40, 16)
    clean = induction(model, probe.tokens, probe.second_copy)
    with applied(ablate.plan([(0, h) for h in range(4)], "zero")):
        without = induction(model, probe.tokens, probe.second_copy)
    assert clean.shape == (2, 4)
    close(without[0], clean[0])  # layer 0 reads nothing that was switched off
    assert (without[1] - clean[1]).abs().max() > 1e-3


def test_next_token_is_a_distribution_that_the_loss_agrees_with(model: Transformer, tokens: torch.Tensor) -> None:
    prompt, plans = tokens[:1], planner(model, tokens[:1], "zero")(LAST)
    probabilities = ablate.averaged(plans, lambda: next_token(model, prompt, 4))
    assert probabilities.shape == (40,) and float(probabilities.sum()) == pytest.approx(1)
    after = effect(model, prompt, LAST).ablated[0, 4]
    assert float(-probabilities[prompt[0, 5]].log()) == pytest.approx(float(after), abs=1e-5)


def test_estimate_of_known_values() -> None:
    same = estimate(np.full(8, 2.5))
    assert (same.mean, same.low, same.high, same.n) == (2.5, 2.5, 2.5, 8)
    alone = estimate(np.array([1.0]))
    assert alone.mean == 1.0 and np.isnan(alone.low) and np.isnan(alone.high)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 32, 40])
def test_the_interval_holds_the_truth_95_times_in_100(n: int) -> None:
    """Means of n normal draws around 1; percentiles of resampled ones hold it 52 times of 2, 75 of 3, 90 of 8."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(4000):  # of which 95 % hold it, give or take 0.34 %
        found = estimate(rng.normal(1.0, 0.5, n))
        hits += found.low <= 1.0 <= found.high
    assert 0.935 < hits / 4000 < 0.965


def test_of_five_values_by_hand() -> None:
    """Their standard deviation is sqrt(2.5), and Student's quantile with 4 degrees of freedom 2.776445."""
    found, half = estimate(np.arange(1.0, 6.0)), 2.776445 * (2.5 / 5) ** 0.5
    assert (found.mean, found.low, found.high, found.n) == (3, pytest.approx(3 - half), pytest.approx(3 + half), 5)


def test_of_six_values_by_hand() -> None:
    """Of the means of their 63 subsets the least is the smallest value alone, the greatest the largest."""
    assert estimate(np.array([4.0, 1.0, 9.0, 2.0, 16.0, 7.0])) == Estimate(6.5, 1.0, 16.0, 6)


@pytest.mark.parametrize("n", [7, 8, 10, 12])
def test_heavy_tails_do_not_widen_the_interval_of_few(n: int) -> None:
    """Exact where tails are heavy on both sides: outer subsets are 2k of 2^n; Student's t holds 98 times and more."""
    rng, hits, outer = np.random.default_rng(1), 0, 2**n // 40
    for _ in range(4000):
        found = estimate(1 + rng.standard_cauchy(n))
        hits += found.low <= 1.0 <= found.high
    assert abs(hits / 4000 - (1 - 2 * outer / 2**n)) < 4 * (0.05 * 0.95 / 4000) ** 0.5


def test_a_ratio_holds_the_truth_95_times_in_100() -> None:
    """Of sums that go together, whose ratio is 0.3; the interval of single ratios would be around 0.32."""
    rng, hits, singles = np.random.default_rng(0), 0, []
    for _ in range(1000):
        below = rng.uniform(1, 5, 32)
        above = 0.2 * below + 0.3 + rng.normal(0, 0.2, 32)
        found, single = ratio(above, below), estimate(above / below)
        hits += found.low <= 0.3 <= found.high
        singles.append(single.mean)
    assert 0.935 < hits / 1000 < 0.965 and np.mean(singles) > 0.31


def test_an_effect_over_positions(model: Transformer, tokens: torch.Tensor) -> None:
    found = effect(model, tokens, FIRST)
    over = found.over(slice(2, 5))
    assert over.mean == pytest.approx(float(found.delta[:, 2:5].mean())) and over.n == 6
    assert over.low < over.mean < over.high


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_head_off_at_some_positions(
    mode: ablate.Mode, frozen: bool, model: Transformer, tokens: torch.Tensor
) -> None:
    some, every = effect(model, tokens, FIRST, mode, positions=[9, 5], frozen=frozen).delta, range(16)
    assert some[:, :5].abs().max() < 1e-12 and some[:, 5].abs().min() > 1e-6
    close(
        effect(model, tokens, FIRST, mode, positions=every, frozen=frozen).ablated,
        effect(model, tokens, FIRST, mode, frozen=frozen).ablated,
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_layer_is_all_of_its_heads(mode: ablate.Mode, model: Transformer, tokens: torch.Tensor) -> None:
    heads = [(0, head) for head in range(4)]
    close(effect(model, tokens, [Attention(0)], mode).ablated, effect(model, tokens, heads, mode).ablated)
    both = [Attention(0), (1, 2)]
    close(effect(model, tokens, both, mode).ablated, effect(model, tokens, [*heads, (1, 2)], mode).ablated)


@pytest.fixture(scope="module")
def with_mlps() -> Transformer:
    config = ModelConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=16, d_vocab=40, mlp_hidden=(24,))
    return Transformer(config, seed=1).double().eval().requires_grad_(False)


def test_an_mlp_off_writes_nothing(with_mlps: Transformer, tokens: torch.Tensor) -> None:
    twin = Transformer(with_mlps.config, seed=1).double().eval().requires_grad_(False)
    twin.get_parameter("blocks.0.mlp.W_out").zero_()
    twin.get_parameter("blocks.0.mlp.b_out").zero_()
    found = effect(with_mlps, tokens, [MLP(0)])
    close(found.ablated, probes.per_token_loss(twin(tokens), tokens))
    assert found.delta.abs().max() > 0.01


def test_the_mean_and_other_sequences_can_stand_in_for_an_mlp(with_mlps: Transformer, tokens: torch.Tensor) -> None:
    tap = "blocks.1.hook_mlp_out"
    with recording(tap) as seen:
        with_mlps(tokens)
    for mode, instead in (("mean", others(seen[tap])), ("resample", seen[tap][derangement(6, 2)])):
        with applied([Edit(tap, positions=(4, 5), instead=instead)]):
            expected = probes.per_token_loss(with_mlps(tokens), tokens)
        close(effect(with_mlps, tokens, [MLP(1)], mode, positions=[4, 5], draws=1, seed=2).ablated, expected)
    same = tokens[:1].repeat(4, 1)
    close(effect(with_mlps, same, [MLP(0), MLP(1)], "mean").delta, torch.zeros(4, 15).double())


def test_parts_of_every_kind_at_once(with_mlps: Transformer, tokens: torch.Tensor) -> None:
    parts = [(0, 1), Attention(1), MLP(0), Edge(0, 2, 7, 3), Path((0, 0), (1, 1), "v")]
    together = effect(with_mlps, tokens, parts)
    close(together.ablated, effect(with_mlps, tokens, parts[::-1] * 2).ablated)
    # layer 1 is off, so what its head would have read makes no difference
    close(together.ablated, effect(with_mlps, tokens, parts[:-1]).ablated)
    assert (together.ablated - effect(with_mlps, tokens, parts[1:]).ablated).abs().max() > 1e-4


def test_names_of_parts() -> None:
    parts = [(1, 2), Attention(0), MLP(1), Edge(0, 1, 9, 4), Path((0, 3), (1, 2), "k")]
    assert [name(part) for part in parts] == [
        "L1H2", "attention of layer 0", "MLP of layer 1", "L0H1 from 9 to 4", "L0H3 -> keys of L1H2",
    ]  # fmt: skip


BAD = [
    ({"heads": []}, "the set of heads is empty"),
    ({"heads": [(2, 0)]}, "L2H0 does not exist: this model has layers 0 to 1 and heads 0 to 3"),
    ({"heads": [(0, 4)]}, "L0H4 does not exist"),
    ({"heads": [(0, -1)]}, "L0H-1 does not exist"),
    ({"heads": LAST, "mode": "mean", "reference": slice(0, 5)}, "the reference batch has 5 positions, the input 16"),
    ({"heads": LAST, "mode": "resample", "rows": 1}, "needs at least 2 sequences"),
    ({"heads": LAST, "positions": [3, 16]}, "position 16 does not exist: the input has positions 0 to 15"),
    ({"heads": LAST, "positions": []}, "the set of positions is empty"),
    ({"heads": [Attention(2)]}, "layer 2 does not exist: this model has layers 0 to 1"),
    ({"heads": [MLP(-1)]}, "layer -1 does not exist"),
    ({"heads": [MLP(1)]}, "this model is attention only: it has no MLP to switch off"),
    ({"heads": LAST, "mode": "resample", "draws": 0}, "draws=0: resampling needs at least 1"),
]


@pytest.mark.parametrize(("case", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_errors_name_what_is_wrong(case: dict, message: str, model: Transformer, tokens: torch.Tensor) -> None:
    case = dict(case)
    heads, rows = case.pop("heads"), case.pop("rows", 6)
    reference = tokens[:, case.pop("reference")] if "reference" in case else None
    with pytest.raises(ValueError, match=message):
        effect(model, tokens[:rows], heads, reference=reference, **case)


def test_a_mode_that_does_not_exist_is_listed_against_those_that_do() -> None:
    with pytest.raises(ValueError, match="there is no ablation mode 'shuffle'; there are: zero, mean, resample"):
        ablate.plan(LAST, "shuffle")


def test_more_rows_than_references_to_resample_from(model: Transformer, tokens: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="resampling 6 rows needs as many reference sequences; there are 3"):
        planner(model, tokens, "resample", reference=tokens[:3])


def test_all_heads_at_once_are_refused_and_whole_layers_are_not(model: Transformer, tokens: torch.Tensor) -> None:
    everything = [(layer, head) for layer in range(2) for head in range(4)]
    with pytest.raises(ValueError, match=r"all 8 heads are off.*Attention\(0\), Attention\(1\)"):
        effect(model, tokens, everything)
    with pytest.raises(ValueError, match="all 8 heads are off"):
        effect(model, tokens, [*everything, ablate.Attention(0)])
    assert effect(model, tokens, [*everything[1:], ablate.Attention(0)]).delta.abs().max() > 0.01
    whole = effect(model, tokens, [ablate.Attention(0), ablate.Attention(1)]).delta
    assert whole.abs().max() > 0.01
