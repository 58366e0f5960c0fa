"""Smeared keys and queries: with a share of 1 they are the plain model; what is asked of them holds, or is refused."""

from typing import Any

import pytest
import torch

from tests.small import TOKENS, build, changes
from tracer.analysis.why import why
from tracer.interventions.edits import recording
from tracer.model import Transformer

NONE_OF_BEFORE = 40.0
"""Its sigmoid is 1 in float32 and float64."""


def outcome(model: Transformer, *watched: str) -> list[torch.Tensor]:
    """Logits, and the gradients of what both kinds of model have."""
    model.requires_grad_(True).zero_grad()
    with recording(*watched):
        logits = model(TOKENS)
    logits.sin().sum().backward()
    return [logits.detach(), *(grad(p) for name, p in model.named_parameters() if "a_smear" not in name)]


def grad(weight: torch.Tensor) -> torch.Tensor:
    assert weight.grad is not None
    return weight.grad


@pytest.mark.parametrize("smear", ["keys", "queries"])
def test_a_share_of_1_is_the_plain_model_to_the_bit(smear: Any) -> None:
    plain, model = (build(changes(smear=one, positions="rotary")) for one in ("none", smear))
    model.load_state_dict(plain.state_dict(), strict=False)
    for block in model.blocks:
        block.attn.a_smear.fill_(NONE_OF_BEFORE)
    for ours, theirs in zip(outcome(model), outcome(plain), strict=True):
        assert torch.equal(ours, theirs)
    with torch.no_grad():
        model.blocks[0].attn.a_smear[1] = 0
    assert not torch.equal(outcome(model)[0], outcome(plain)[0])


@pytest.mark.parametrize("smear", ["keys", "queries"])
def test_fused_equals_explicit_and_so_do_their_gradients(smear: Any) -> None:
    model = build(changes(smear=smear))
    fused, explicit = outcome(model), outcome(model, "hook_pattern")
    assert all((grad(block.attn.a_smear) != 0).all() for block in model.blocks)
    for one, other in zip(fused, explicit, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-8)


def test_the_first_key_stays_and_others_are_mixed() -> None:
    model = build(changes(smear="keys"))
    q, k = model.qk_taps(0)
    with recording("hook_q", "hook_k", k) as seen:
        model(TOKENS)
    own, mixed = seen["blocks.0.attn.hook_k"], seen[k]
    assert torch.equal(mixed[:, 0], own[:, 0]) and q == "blocks.0.attn.hook_q"
    share = 1 / (1 + (-model.blocks[0].attn.a_smear).exp())
    for pos in range(1, TOKENS.shape[1]):
        by_hand = share[:, None] * own[:, pos] + (1 - share)[:, None] * own[:, pos - 1]
        torch.testing.assert_close(mixed[:, pos], by_hand, atol=1e-14, rtol=1e-12)


def test_a_score_is_not_taken_apart_and_says_why() -> None:
    for smear in ("keys", "queries"):
        with pytest.raises(ValueError, match=f"smear={smear}: each is mixed with that of the token before"):
            why(build(changes(smear=smear)), TOKENS[:1], 1, 0, 5, 3)
