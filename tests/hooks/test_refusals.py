"""What only looks like attention is refused, and the message says why."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

import tracer
from tests.hooks.by_hand import BATCH, ByHand, T, einsum_bhqk
from tracer.ablate import plan
from tracer.hooks.refusals import CannotWatch
from tracer.huggingface.wrapped import WrappedModel
from tracer.interventions.edits import applied
from tracer.watching.watcher import Watcher


def wrong_axis(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return ((q @ k.mT).softmax(-2) @ v).transpose(1, 2)


def masked_after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return ((q @ k.mT).softmax(-1).tril() @ v).transpose(1, 2)


def masked_after_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    weights = (q @ k.mT).softmax(-1)
    weights[..., 0] = 0
    return (weights @ v).transpose(1, 2)


def heads_in_the_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (rearrange(t, "b t h d -> (h b) t d") for t in (q, k, v))
    return rearrange((q @ k.mT).softmax(-1) @ v, "(h b) t d -> b t h d", h=4)


def fused_heads_in_the_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (rearrange(t, "b t h d -> (h b) t d") for t in (q, k, v))
    return rearrange(F.scaled_dot_product_attention(q, k, v), "(h b) t d -> b t h d", h=4)


def no_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.cumsum(1) * k.sigmoid() + v


REFUSED = {
    wrong_axis: r"softmax\(dim=-1\) is meant",
    masked_after: "masked or scaled after the softmax",
    masked_after_in_place: "masked or scaled after the softmax",
    heads_in_the_batch: r"write the softmax over scores \[batch, head",
    fused_heads_in_the_batch: r"write the softmax over scores \[batch, head",
    no_attention: "no attention was seen in this ByHand: neither F.scaled",
}


@pytest.mark.parametrize(("how", "why"), REFUSED.items())
def test_what_is_no_attention_is_refused(how: Callable[..., Tensor], why: str) -> None:
    model, x = ByHand(how).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad():
        plain = model(x)
        with tracer.watch(model) as watcher:
            assert torch.equal(model(x), plain)  # the forward pass goes on
    with pytest.raises(CannotWatch, match=why):
        watcher.read()


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_part_that_takes_no_hooks_is_named_and_the_model_stays_as_it_was() -> None:
    model, x = ByHand(einsum_bhqk).eval(), torch.randn(BATCH, T, 16)
    plain = model(x)
    scripted: Any = torch.jit.script(nn.Linear(16, 16))
    model.add_module("gate", nn.Sequential(nn.Linear(16, 16), scripted))
    watcher = Watcher(model, keep=1)
    wrapped = partial(WrappedModel, model, n_ctx=T, d_vocab=20)
    for begin in (watcher.__enter__, watcher.__enter__, wrapped):  # the second time, it is not in use already
        with pytest.raises(ValueError, match="gate.1 is a torch.jit ScriptModule, which cannot be hooked"):
            begin()
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules() if m is not scripted)
        assert torch.equal(model(x), plain)
    del model.gate
    with watcher:
        model(x)
    assert len(watcher.layers) == 1


def test_heads_that_change_their_number_are_refused() -> None:
    model, x = ByHand(einsum_bhqk).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad(), Watcher(model, keep=1) as watcher:
        model(x)
        model.heads = 2
        model(x)
        with pytest.raises(CannotWatch, match="2 heads now and 4 before"):
            watcher.read()
        with pytest.raises(CannotWatch, match="2 heads now and 4 before"), applied(plan({(0, 3)}, "zero")):
            model(x)


def test_heads_that_are_mixed_after_the_softmax_have_no_pattern() -> None:
    """Talking heads (Shazeer et al. 2020): what multiplies the values is a mixture of every head's pattern."""

    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)
        mixed = torch.einsum("bhqk,hg->bgqk", weights, torch.eye(4))
        return torch.einsum("bgqk,bkgd->bqgd", mixed, v)

    with torch.no_grad(), tracer.watch(model := ByHand(how)) as watcher:
        model(torch.randn(2, T, 16))
    with pytest.raises(CannotWatch, match="softmax in ByHand, but its result is changed"):
        watcher.read()
