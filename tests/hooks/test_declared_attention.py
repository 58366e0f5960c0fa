"""`tracer.attends`: attention that nobody recognises is measured and switched off as the same attention recognised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tracer
from tests.hooks.quotients import Stack, kind, quotient, tokens
from tracer.hooks.refusals import CannotWatch, NoHeads
from tracer.huggingface.wrapped import WrappedModel


def read(model: torch.nn.Module) -> tuple[Any, Any]:
    with torch.no_grad(), tracer.watch(model, keep=3) as watcher:
        model(tokens())
    return watcher, watcher.read()


def test_a_quotient_by_hand_is_the_softmax_that_it_is() -> None:
    fused, plain, mine = Stack(None), Stack(), Stack(layer=kind())
    with pytest.raises(NoHeads, match=r"a quotient written by hand, say yourself .*: tracer\.attends\(module, func"):
        read(plain)
    (theirs, expected), (watcher, found) = read(fused), read(mine)
    assert found.module.values.tolist() == ["blocks.0", "blocks.1"] and found.causal.all()
    for name in expected:
        if name != "max_logit":  # nobody said the scores
            np.testing.assert_allclose(found[name], expected[name], atol=1e-6, err_msg=name)
    assert np.isnan(found.max_logit).all()
    for sequence in range(3):
        torch.testing.assert_close(watcher.pattern(1, 2, sequence=sequence), theirs.pattern(1, 2, sequence=sequence))
    with torch.no_grad(), watcher.ablate({(0, 1), (1, 3)}), theirs.ablate({(0, 1), (1, 3)}):
        off = mine(tokens())
        torch.testing.assert_close(off, fused(tokens()))
        assert float((off - plain(tokens())).abs().max()) > 0.01


def test_what_would_change_nothing_is_refused() -> None:
    """z of heads that nobody located, and what makes up a pattern: the module goes by its own."""

    def pattern_only(module: Any, inputs: tuple[Any, ...], output: Any) -> Tensor:
        return quotient(*module.parts(inputs[0])[:2])

    located = WrappedModel(Stack(layer=kind()), n_ctx=20, d_vocab=40)
    blind = WrappedModel(Stack(layer=kind(pattern_only, out="")), n_ctx=20, d_vocab=40)
    with torch.no_grad():
        plain = located(tokens())
        for model in (located, blind):
            for what in ("q", "k", "v", "pattern"):
                hooks = [(f"blocks.1.attn.hook_{what}", lambda x, hook: 2 * x)]
                held = rf"the {what} of blocks.1 cannot be held|says no values of|hook_[qk] is no tap of this model"
                with pytest.raises(ValueError, match=held):
                    model.run_with_hooks(tokens(), hooks)
        seen: list[Tensor] = []
        looks = [("blocks.1.attn.hook_pattern", lambda x, hook: seen.append(x))]
        assert torch.equal(blind.run_with_hooks(tokens(), looks), plain) and seen[0].shape == (3, 4, 12, 12)
        off = [("blocks.1.attn.hook_z", lambda z, hook: 0 * z)]
        assert float((located.run_with_hooks(tokens(), off) - plain).abs().max()) > 0.01
        with pytest.raises(
            CannotWatch, match=r"the heads of blocks.1 cannot be switched off.*Mine, \.\.\., out='proj'"
        ):
            blind.run_with_hooks(tokens(), off)
        watcher, _ = read(blind.model)
        with pytest.raises(CannotWatch, match="the heads of blocks.0 cannot be switched off"), watcher.ablate({(0, 1)}):
            blind.model(tokens())
