"""Greedy search on a model whose circuit was put there by hand."""

from __future__ import annotations

import pytest
import torch

from tracer.ablate import build_up, effect, knock_down, repeat_gain
from tracer.config import ModelConfig
from tracer.data import probes
from tracer.model import Transformer

V, L = 16, 5
T = 3 * L + 1
PROBE = probes.repeated(V, T, batch=8)
PREVIOUS, INDUCTION, TWIN = (0, 1), (1, 2), (1, 0)


def circuit(*induction: tuple[int, int]) -> Transformer:
    """L0H1 writes the previous token beside each token; the induction heads attend where it is theirs, and copy.

    The stream is [token | position | previous token], one-hot each. The other heads whisper noise.
    """
    width = 2 * V + T
    config = ModelConfig(
        n_layers=2, n_heads=3, d_model=width, d_head=V, n_ctx=T, d_vocab=V, norm="none", attn_scale="none"
    )
    model = Transformer(config, seed=0).double().eval().requires_grad_(False)
    token, place, before = slice(0, V), slice(V, V + T), slice(V + T, width)
    eye = torch.eye(V).double()
    model.embed.W_E.zero_()[:, token] = eye
    model.pos_embed.W_pos.zero_()[:, place] = torch.eye(T).double()
    model.unembed.W_U.zero_()[token] = eye  # pyrefly: ignore[not-callable]
    for block in model.blocks:
        assert block.attn.W_O is not None
        block.attn.W_O.mul_(0.02)
    for (layer, head), query, key in [(PREVIOUS, place, place), *((at, token, before) for at in induction)]:
        attn = model.blocks[layer].attn
        for weight in (attn.W_Q, attn.W_K, attn.W_V, attn.W_O):
            assert weight is not None
            weight[head] = 0
        assert attn.W_O is not None
        attn.W_V[head, token] = eye
        n = query.stop - query.start
        attn.W_Q[head, query, :n] = 30 * torch.eye(n).double()
        attn.W_K[head, key, :n] = torch.eye(n).double()
        if layer == 0:
            attn.W_K[head, key, :n] = torch.eye(n).double().roll(1, 1)  # key j answers query j + 1
            attn.W_O[head, :, before] = eye
        else:
            attn.W_O[head, :, token] = 12 / len(induction) * eye
    return model


@pytest.fixture(scope="module")
def model() -> Transformer:
    return circuit(INDUCTION)


def test_the_circuit_is_one(model: Transformer) -> None:
    loss = effect(model, PROBE.tokens, [PREVIOUS]).clean
    assert float(repeat_gain(loss[None])) > 2
    assert float(loss[:, PROBE.predictable].mean()) < 0.01
    assert float(repeat_gain(loss[None])) == pytest.approx(
        float(probes.first_copy_loss(loss, PROBE.period) - probes.repeat_loss(loss, PROBE.period))
    )


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_what_keeps_the_circuit_is_the_circuit(model: Transformer, mode: str) -> None:
    found = build_up(model, PROBE.tokens, mode)
    assert set(found.heads) == {PREVIOUS, INDUCTION} and found.reached and found.share >= 0.9
    assert found.curve[0] == found.start < 0.5 and found.curve[-1] == found.share
    held = [step.head for step in found.steps if step.taken]
    for step in found.steps:
        if not step.taken:
            held.remove(step.head)
    assert held == found.heads
    off = [(layer, head) for layer in range(2) for head in range(3) if (layer, head) not in found.heads]
    share = float(repeat_gain(effect(model, PROBE.tokens, off, mode).ablated[None])) / found.clean
    assert share == pytest.approx(found.share, abs=1e-9)


def test_one_head_of_the_circuit_kills_it(model: Transformer) -> None:
    found = knock_down(model, PROBE.tokens)
    assert len(found.heads) == 1 and found.heads[0] in (PREVIOUS, INDUCTION) and found.share <= 0.1
    assert found.start == pytest.approx(1)


def test_two_heads_that_share_the_work_are_switched_off_by_their_common_source() -> None:
    assert knock_down(circuit(INDUCTION, TWIN), PROBE.tokens, target=0.5).heads == [PREVIOUS]


def test_a_head_that_was_taken_first_is_dropped_where_the_others_do() -> None:
    config = ModelConfig(
        n_layers=2, n_heads=3, d_model=12, d_head=4, n_ctx=9, d_vocab=7, norm="none", attn_scale="none"
    )
    model = Transformer(config, seed=59).double().eval().requires_grad_(False)
    tokens = torch.randint(0, 7, (4, 9), generator=torch.Generator().manual_seed(59))
    found = knock_down(model, tokens, behaviour=lambda loss: (-8 * loss.flatten(1).mean(1)).exp(), target=0.5)
    assert [(step.head, step.taken) for step in found.steps] == [
        ((1, 2), True), ((0, 0), True), ((0, 2), True), ((1, 2), False)
    ]  # fmt: skip
    assert found.heads == [(0, 0), (0, 2)] and found.reached and found.share <= 0.5
    off = effect(model, tokens, found.heads)
    assert found.share == pytest.approx(float((8 * (off.clean.mean() - off.ablated.mean())).exp()))


def test_a_target_that_no_set_reaches(model: Transformer) -> None:
    found = knock_down(model, PROBE.tokens, behaviour=lambda loss: torch.ones(len(loss)))
    assert not found.reached and len(found.heads) == 6 and found.curve == [1.0] * 7


def test_nothing_to_keep_and_nothing_to_copy(model: Transformer) -> None:
    for amount in (0, -0.5):
        with pytest.raises(ValueError, match=rf"amounts to {amount}: there is nothing to keep or to kill"):
            build_up(model, PROBE.tokens, behaviour=lambda loss: torch.full((len(loss),), float(amount)))  # noqa: B023
    with pytest.raises(ValueError, match=r"not rows of Probe R \(probes.repeated\): give a behaviour="):
        build_up(model, torch.arange(T)[None])
    with pytest.raises(ValueError, match=r"not rows of Probe R"):
        build_up(model, torch.tensor([[0, 5, 5, 5]]))  # blocks of one token, which nothing can be copied into
