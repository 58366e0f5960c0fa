"""Many sets of heads against one forward pass a set, against transformer-lens, and against what must change nothing."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import GPT2Config, GPT2LMHeadModel

from tests.model.test_oracle import NATIVE, native
from tests.models import as_trained, exact
from tracer.ablate import (
    MODES,
    LogitDifference,
    Loss,
    effect,
    estimate,
    holm,
    losses,
    metric_under_ablation,
    pairs,
    plan,
    sweep,
)
from tracer.ablate.estimates import p_value
from tracer.ablate.many_sets import split
from tracer.config import InitConfig, ModelConfig
from tracer.data.probes import per_token_loss
from tracer.huggingface.wrapped import WrappedModel
from tracer.interventions.edits import applied
from tracer.model import Transformer

CONFIG = ModelConfig(n_layers=3, n_heads=2, d_model=12, n_ctx=9, d_vocab=11, init=InitConfig(attn=0.6, embed=1.0))
TOKENS = torch.randint(0, 11, (5, 9), generator=torch.Generator().manual_seed(2))
SETS = [[(0, 0)], [(2, 1)], [(0, 1), (1, 0)], [(0, 1), (1, 0), (2, 1)], [(0, 1), (1, 1)], [(0, 0), (0, 1)], [(1, 0)]]
ALONE = [[(layer, head)] for layer in range(3) for head in range(2)]


@pytest.fixture(scope="module")
def foreign() -> WrappedModel:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=3, n_embd=12, vocab_size=11, n_positions=9, bos_token_id=0)
    return WrappedModel(GPT2LMHeadModel(config).double().eval(), n_ctx=9, d_vocab=11)


def close(one: Tensor, other: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(one, other, atol=atol, rtol=0.0)


def one_by_one(model: Any, sets: list, mode: str = "zero", **how: Any) -> Tensor:
    return torch.stack([effect(model, TOKENS, heads, mode, **how).ablated for heads in sets])


@settings(max_examples=40)
@given(
    n_layers=st.integers(1, 3),
    n_heads=st.integers(1, 3),
    norm=st.sampled_from(["none", "rms", "layer"]),
    norm_position=st.sampled_from(["pre", "post"]),
    residual=st.booleans(),
    positions=st.sampled_from(["learned", "sinusoidal", "rotary", "shortformer", "none"]),
    mlp_hidden=st.sampled_from([(), (9,), (5, 7)]),
    output=st.sampled_from(["W_O", "W_O + b_O", "none"]),
    unembedding=st.sampled_from(["W_U", "tied", "MLP"]),
    qk_norm=st.booleans(),
    sink=st.sampled_from(["none", "none", "zero", "learned"]),
    smear=st.sampled_from(["none", "none", "keys", "queries"]),
    attn_softcap=st.sampled_from([None, None, 0.5]),
    attn_gate=st.booleans(),
    attention=st.sampled_from(["softmax", "softmax", "sigmoid"]),
    mode=st.sampled_from(MODES),
    frozen=st.booleans(),
    wide=st.booleans(),
    data=st.data(),
)
def test_together_equals_one_by_one(
    n_layers: int, n_heads: int, output: str, unembedding: str, mode: str, frozen: bool, wide: bool, data: Any,
    **fields: Any,
) -> None:  # fmt: skip
    fields |= {"sink": "none"} if fields["attention"] == "sigmoid" else {}
    config = ModelConfig(
        n_layers=n_layers, n_heads=n_heads, d_model=12, n_ctx=6, d_vocab=7, attn_out=output != "none",
        attn_out_bias=output == "W_O + b_O", tie_embeddings=unembedding == "tied",
        unembed_hidden=(8,) if unembedding == "MLP" else (), init=InitConfig(attn=0.5), **fields,
    )  # fmt: skip
    model = Transformer(config, seed=5).double().eval()
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    most = max(1, len(heads) - 1)  # `effect` refuses all heads at once
    sets = data.draw(st.lists(st.sets(st.sampled_from(heads), min_size=1, max_size=most), min_size=1, max_size=5))
    tokens = torch.randint(0, 7, (3, 7 if wide else 5), generator=torch.Generator().manual_seed(6))
    expected = [effect(model, tokens, chosen, mode, frozen=frozen, draws=2).ablated for chosen in sets]
    found = losses(model, tokens, sets, mode, frozen=frozen, draws=2)
    close(found, torch.stack(expected), atol=1e-11 * max(1.0, float(found.abs().max())))


@pytest.mark.parametrize("name", ["LN", "RMSPre", "none", "GELU"])
def test_transformer_lens_hooks_agree(name: str) -> None:
    model = as_trained(NATIVE[name], torch.float64)
    tokens = torch.randint(0, 17, (3, 11), generator=torch.Generator().manual_seed(1))
    bridge, width = native(model), model.config.head_width

    def zeroed(layer: int, head: int) -> Tensor:
        def zero(z: Tensor, hook: object) -> Tensor:
            z = z.clone()
            z.view(3, 11, 4, width)[:, :, head] = 0
            return z

        logits = bridge.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", zero)])
        return per_token_loss(logits.detach(), tokens)

    heads = [(layer, head) for layer in range(2) for head in range(4)]
    found = losses(model, tokens, [[head] for head in heads])
    close(found, torch.stack([zeroed(*head) for head in heads]), atol=1e-10)
    assert (found[0] - found[1]).abs().max() > 1e-3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("budget", [2, 4, 40])
def test_splitting_changes_nothing(model: Transformer, mode: str, frozen: bool, budget: int) -> None:
    bytes_least = least(frozen, draws=5 if mode == "resample" else 0)
    found = losses(model, TOKENS, SETS, mode, frozen=frozen, budget=budget * bytes_least // 2)
    close(found, one_by_one(model, SETS, mode, frozen=frozen))


def least(frozen: bool = False, draws: int = 0) -> int:
    """The smallest budget that is not refused."""
    low, high = 0, 2**24
    while high - low > 1:
        middle = (low + high) // 2
        try:
            split(CONFIG, 9, batch=5, draws=draws, frozen=frozen, itemsize=8, budget=middle)
            high = middle
        except ValueError:
            low = middle
    return high


@pytest.mark.parametrize(("mode", "kept"), [("zero", 0), ("mean", 0), ("resample", 3), ("paired", 1)])
def test_what_does_not_fit_is_said_in_bytes(model: Transformer, mode: str, kept: int) -> None:
    """Three draws; each sequence is held with those that replace it."""
    needed = least(draws=kept)
    message = f"budget={needed - 1} bytes is too small: one set of heads on one sequence of 9 tokens needs {needed} "
    with pytest.raises(ValueError, match=message):
        losses(model, TOKENS, SETS, mode, reference=TOKENS, draws=3, budget=needed - 1)


@pytest.mark.parametrize(
    ("fields", "frozen"), [({}, False), ({"d_vocab": 2000}, False), ({"mlp_hidden": ()}, False), ({}, True)]
)
def test_the_budget_holds(fields: dict[str, Any], frozen: bool) -> None:
    widths: dict[str, Any] = {"n_layers": 3, "n_heads": 4, "d_model": 64, "n_ctx": 64, "d_vocab": 64}
    model = Transformer(ModelConfig(**widths | {"mlp_hidden": (256,)} | fields)).eval()
    tokens, budget = torch.randint(0, 64, (16, 64)), 8 * 2**20
    sets = [[(layer, head)] for layer in range(3) for head in range(4)]
    losses(model, tokens, sets, frozen=frozen, budget=budget)
    with Scale() as scale:
        losses(model, tokens, sets, frozen=frozen, budget=budget)
    assert 0.3 * budget < scale.peak < budget


class Scale(TorchDispatchMode):
    """Weighs the results of all operations while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: set[int] = set()
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and (storage := tensor.untyped_storage()).data_ptr() not in self.alive:
                self._add(storage.data_ptr(), storage.nbytes())
                weakref.finalize(storage, self._drop, storage.data_ptr(), storage.nbytes())
        return out

    def _add(self, address: int, size: int) -> None:
        self.alive.add(address)
        self.now += size
        self.peak = max(self.peak, self.now)

    def _drop(self, address: int, size: int) -> None:
        self.alive.discard(address)
        self.now -= size


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_head_that_writes_nothing_changes_nothing(mode: str, frozen: bool) -> None:
    silent = exact(CONFIG)
    for layer, head in [(0, 1), (2, 0)]:
        w_o = silent.blocks[layer].attn.W_O
        assert w_o is not None
        w_o[head] = 0
    clean, nothing, both, something = losses(
        silent, TOKENS, [[], [(0, 1)], [(0, 1), (2, 0)], [(0, 0)]], mode, frozen=frozen
    )
    close(nothing, clean)
    close(both, clean)
    assert (something - clean).abs().max() > 1e-3


@pytest.mark.parametrize("frozen", [False, True])
def test_an_empty_set_is_the_clean_run(model: Transformer, frozen: bool) -> None:
    close(losses(model, TOKENS, [[(1, 1)], []], frozen=frozen)[1], per_token_loss(model(TOKENS), TOKENS))


@pytest.mark.parametrize("mode", MODES)
def test_holding_patterns_matters_only_below_the_last_layer(model: Transformer, mode: str) -> None:
    full, held = (losses(model, TOKENS, [[(2, 0)], [(0, 0)]], mode, frozen=frozen) for frozen in (False, True))
    close(full[0], held[0])
    assert (full[1] - held[1]).abs().max() > 1e-4


def test_naming_a_head_twice_is_naming_it_once(model: Transformer) -> None:
    once, twice, turned = losses(model, TOKENS, [[(0, 1), (1, 0)], [(0, 1), (1, 0), (0, 1)], [(1, 0), (0, 1)]])
    assert torch.equal(once, twice) and torch.equal(once, turned)


def test_a_sequence_resampled_from_itself_is_unchanged(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (losses(model, TOKENS, SETS, "resample") - losses(model, TOKENS, [[]])).abs().max() > 1e-3
    monkeypatch.setattr("tracer.interventions.replacements.derangement", lambda n, seed: torch.arange(n))
    close(losses(model, TOKENS, SETS, "resample"), losses(model, TOKENS, [[]]).expand(len(SETS), -1, -1))


@pytest.mark.parametrize("mode", MODES)
def test_a_reference_of_other_sequences(model: Transformer, mode: str) -> None:
    other = torch.randint(0, 11, (7, 9), generator=torch.Generator().manual_seed(8))
    short = TOKENS[:, :6]
    found = losses(model, short, SETS, mode, reference=other, seed=3)
    close(found, torch.stack([effect(model, short, s, mode, reference=other, seed=3).ablated for s in SETS]))


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_others_wrote_runs_set_by_set(foreign: WrappedModel, mode: str) -> None:
    sets = [[(0, 1)], [(0, 0), (1, 2)]]
    close(losses(foreign, TOKENS, sets, mode), one_by_one(foreign, sets, mode))
    close(losses(foreign, TOKENS, [[]])[0], per_token_loss(foreign(TOKENS), TOKENS).detach())
    metric = LogitDifference(3, 4, positions=(2, -1))
    with applied(plan([(0, 1)], "zero")):
        logits = foreign(TOKENS)[:, [2, 8]]
    close(
        metric_under_ablation(foreign, TOKENS, sets[:1], metric=metric)[0], (logits[..., 3] - logits[..., 4]).detach()
    )


def test_edits_in_force_stay_in_force(model: Transformer) -> None:
    with applied(plan([(1, 1)], "zero")):
        found = losses(model, TOKENS, [[(0, 0)]])
    close(found, losses(model, TOKENS, [[(0, 0), (1, 1)]]))


def test_progress_ends_where_it_should_and_may_end_the_work(model: Transformer) -> None:
    seen: list[tuple[int, int]] = []
    losses(model, TOKENS, SETS, budget=2 * least(), progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(set(seen)) and len(seen) > 2 and {total for _, total in seen} == {seen[-1][0]}

    def enough(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        losses(model, TOKENS, SETS, progress=enough)


BAD = [
    ({"sets": []}, "there are no sets of heads"),
    ({"sets": [[(3, 0)]]}, "L3H0 does not exist"),
    ({"sets": SETS, "mode": "shuffle"}, "there is no ablation mode 'shuffle'; there are: zero, mean, resample"),
    ({"sets": SETS, "mode": "resample", "draws": 0}, "draws=0: resampling needs at least 1"),
    ({"sets": SETS, "mode": "mean", "reference": TOKENS[:, :4]}, "has 4 positions, the input 9: give a longer one"),
    ({"sets": SETS, "mode": "resample", "reference": TOKENS[:2]}, "resampling 5 rows needs as many"),
    ({"sets": SETS, "tokens": TOKENS + 9}, "token .. is outside the vocabulary: 0 to 10"),
    ({"sets": SETS, "mode": "resample", "tokens": TOKENS[:1]}, "needs at least 2 sequences"),
]


@pytest.mark.parametrize(("case", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_errors_name_what_is_wrong(model: Transformer, case: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        losses(model, **dict[str, Any](tokens=TOKENS) | case)


def test_dropout_would_make_every_number_another() -> None:
    training = Transformer(ModelConfig(d_vocab=11, n_ctx=9, dropout=0.1)).train()
    with pytest.raises(ValueError, match=r"training, with dropout=0.1: call model.eval\(\) first"):
        losses(training, TOKENS, ALONE[:1])


def test_intervals_of_a_sweep(model: Transformer) -> None:
    where = slice(2, 7)
    found = sweep(model, TOKENS, "mean", positions=where, interval=True)
    delta = effect(model, TOKENS, [(1, 0)], "mean").delta[:, where].mean(1).numpy()
    expected, here = estimate(delta), found.sel(layer=1, head=0)
    assert [float(here[name]) for name in ("effect", "low", "high")] == pytest.approx(
        [expected.mean, expected.low, expected.high], abs=1e-10
    )
    assert found.attrs["n_sequences"] == 5
    heads = list(np.ndindex(found["effect"].shape))
    p = p_value(np.stack([effect(model, TOKENS, [h], "mean").delta[:, where].mean(1).numpy() for h in heads]))
    np.testing.assert_allclose(found["p_holm"].values.ravel(), holm(p), atol=1e-9)
    plain = sweep(model, TOKENS, "mean", positions=where)
    np.testing.assert_array_equal(plain, found["effect"])
    assert plain.name == "effect" and plain.attrs["long_name"] == "change in next-token loss"


def test_a_sweep_of_another_metric(model: Transformer) -> None:
    found = sweep(model, TOKENS, metric=LogitDifference(3, 4))
    with applied(plan([(0, 1)], "zero")):
        off = model(TOKENS)[:, -1]
    clean = model(TOKENS)[:, -1]
    expected = ((off[:, 3] - off[:, 4]) - (clean[:, 3] - clean[:, 4])).mean()
    assert float(found[0, 1]) == pytest.approx(float(expected), abs=1e-12) and found.attrs["units"] == "logits"
    with pytest.raises(ValueError, match="a metric knows its positions"):
        sweep(model, TOKENS, metric=Loss(), positions=slice(3))


@pytest.mark.parametrize("mode", MODES)
def test_pairs_are_sets_of_two(model: Transformer, mode: str) -> None:
    def label(head: tuple[int, int]) -> str:
        return f"L{head[0]}H{head[1]}"

    table = pairs(model, TOKENS, mode, draws=2)
    assert table.shape == (6, 6) and list(table["head_a"].values[:3]) == ["L0H0", "L0H1", "L1H0"]
    np.testing.assert_array_equal(table, table.T)
    for a, b in [((0, 0), (0, 1)), ((0, 1), (2, 0)), ((1, 0), (1, 0))]:
        alone = effect(model, TOKENS, {a, b}, mode, draws=2).mean
        assert float(table.sel(head_a=label(a), head_b=label(b))) == pytest.approx(alone, abs=1e-12)


def test_pairs_whose_readers_are_frozen(model: Transformer) -> None:
    table = pairs(model, TOKENS, heads=[(0, 1), (1, 0)], frozen=True)
    alone = effect(model, TOKENS, {(0, 1), (1, 0)}, frozen=True).mean
    assert float(table[0, 1]) == pytest.approx(alone, abs=1e-12) and table.attrs["frozen"]
    assert float(pairs(model, TOKENS, heads=[(0, 1), (1, 0)])[0, 1]) != pytest.approx(alone, abs=1e-6)


def test_pairs_of_chosen_heads_and_too_many(model: Transformer) -> None:
    some = pairs(model, TOKENS, heads=[(2, 1), (0, 0)])
    np.testing.assert_allclose(some, pairs(model, TOKENS).values[np.ix_([0, 5], [0, 5])], atol=1e-12)
    wide = Transformer(ModelConfig(n_layers=5, n_heads=16, d_model=16, n_ctx=9, d_vocab=11)).eval()
    with pytest.raises(ValueError, match="80 heads make 3160 pairs, about 1580 forward passes of 5 sequences"):
        pairs(wide, TOKENS)


def test_where_all_heads_of_a_layer_are_gone_nothing_is_left_to_be_normed() -> None:
    """Without residual connections, in float32: what rounding would leave of a difference, a norm would make large."""
    config = replace(CONFIG, residual=False, norm="rms", norm_eps=1e-30, norm_position="post")
    torch.manual_seed(0)
    model = Transformer(config)
    heads = [(0, 0), (0, 1)]
    planned = metric_under_ablation(model, TOKENS, [heads], "zero")[0]
    assert torch.equal(planned.squeeze(), effect(model, TOKENS, heads, "zero").ablated.squeeze())
