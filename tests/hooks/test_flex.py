"""flex_attention: score_mod, block masks and grouped heads, against the pattern in float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

import tracer
from tests.hooks.by_hand import ByHand
from tracer.hooks.refusals import CannotWatch
from tracer.interventions.edits import recording

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's and transformers' own
]
BATCH, T, HEADS = 2, 150, 4
FLEX: Any = flex_attention
BIAS = torch.randn(HEADS, T, generator=torch.Generator().manual_seed(3))
ROW, KEY, HEAD = torch.arange(T)[:, None], torch.arange(T), torch.arange(HEADS)[:, None, None]


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def sliding(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i >= j) & (i - j < 20 + 10 * b)


def alibi(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score - (i - j).abs() * 0.1 * (h + 1)


def capped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return 0.7 * torch.tanh(score / 0.7) + BIAS[h, j]


def hiding(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.where(i >= j, score, -math.inf)


def nothing(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score


MASKS: dict[Any, Callable[[int], Tensor]] = {
    None: lambda b: torch.ones(T, T, dtype=torch.bool),
    causal: lambda b: ROW >= KEY,
    sliding: lambda b: (ROW >= KEY) & (KEY + 20 + 10 * b > ROW),
}
SCORES: dict[Any, Callable[[Tensor], Tensor]] = {
    nothing: lambda s: s,
    alibi: lambda s: s - (ROW - KEY).abs() * 0.1 * (HEAD + 1),
    capped: lambda s: 0.7 * torch.tanh(s / 0.7) + BIAS.double()[:, None],
    hiding: lambda s: s.masked_fill(ROW < KEY, -math.inf),
}


def flex(score: Any, mask: Any, compiled: bool = False, **options: Any) -> Callable[..., Tensor]:
    call: Any = torch.compile(FLEX) if compiled else FLEX

    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        blocks = None if mask is None else create_block_mask(mask, len(q), None, T, T, device="cpu")
        return call(q, k, v, score_mod=score, block_mask=blocks, **options).transpose(1, 2)

    return how


def exact(q: Tensor, k: Tensor, score: Any, mask: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The pattern, what each row sees, and the largest score, in float64; q and k [batch pos head d_head]."""
    scores = SCORES[score](torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) / q.shape[-1] ** 0.5)
    seen = torch.stack([MASKS[mask](b).expand(T, T) for b in range(len(q))])[:, None]
    scores = scores.masked_fill(~seen, -math.inf)
    return scores.softmax(-1), (scores > -math.inf).sum(-1), scores.amax((0, 2, 3))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("compiled", [False, True])
def test_score_mods_and_block_masks(score: Any, mask: Any, compiled: bool) -> None:
    model, x = ByHand(flex(score, mask, compiled)).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad(), tracer.watch(model, keep=BATCH) as watcher:
        model(x)
        with watcher.ablate({(0, 2)}), recording("hook_pattern") as seen:
            off = model(x)
    q, k, v = (t.detach() for t in model.parts(x))
    pattern, keys, largest = exact(q, k, score, mask)
    assert (seen["blocks.0.attn.hook_pattern"] - pattern).abs().max() < 1e-6
    assert (watcher.pattern(0, 3, sequence=1) - pattern[1, 3]).abs().max() < 1e-6
    looks_back = mask is not None or score is hiding
    assert [(one.kind, one.causal, one.n_heads) for one in watcher.layers] == [("self", looks_back, HEADS)]
    found, entropy = watcher.read(), torch.special.entr(pattern).sum(-1)
    want = {
        "entropy": entropy[..., 1:].mean((0, 2)), "entropy_normalised": (entropy / keys.log())[..., 1:].mean((0, 2)),
        "max_logit": largest, "previous_token": pattern.diagonal(-1, -2, -1).mean((0, 2)),
    }  # fmt: skip
    for name, value in want.items():
        np.testing.assert_allclose(found[name].values[0], value, atol=3e-6, err_msg=name)
    z = torch.einsum("bhqk,bkhd->bqhd", pattern, v.double())
    z[:, :, 2] = 0
    assert (off - model.out(z.flatten(2).float())).abs().max() < 3e-6


def test_watching_leaves_the_output_as_it_is() -> None:
    model, x = ByHand(flex(alibi, causal)).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad():
        plain = model(x)
        with tracer.watch(model):
            assert torch.equal(model(x), plain)


def test_blocks_that_say_more_than_the_mask_are_refused() -> None:
    """Only a compiled kernel skips blocks: run as written, the same call sees every key that mask_mod shows."""
    counts, indices = torch.ones(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 2, dtype=torch.int32)
    blocks = BlockMask.from_kv_blocks(counts, indices, seq_lengths=(T, T))

    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return FLEX(*(t.transpose(1, 2) for t in (q, k, v)), block_mask=blocks).transpose(1, 2)

    model = ByHand(how).eval()
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(torch.randn(BATCH, T, 16))
    with pytest.raises(CannotWatch, match="only a compiled kernel obeys"):
        watcher.read()


@pytest.mark.parametrize("sink", [True, False])
def test_an_output_that_is_scaled_by_its_normaliser_is_refused(sink: bool) -> None:
    """As Hugging Face gives gpt-oss its sinks; who only asks for the normaliser is not refused."""

    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, aux = FLEX(*(t.transpose(1, 2) for t in (q, k, v)), return_aux=AuxRequest(lse=True))
        if sink:
            lse = aux.lse.to(v.dtype).unsqueeze(-1)
            both = torch.logsumexp(torch.cat([lse, torch.ones_like(lse)], -1), -1, keepdim=True)
            out = out * torch.exp(lse - both)
        return out.transpose(1, 2)

    with torch.no_grad(), tracer.watch(model := ByHand(how).eval()) as watcher:
        model(torch.randn(BATCH, T, 16))
    if sink:
        with pytest.raises(CannotWatch, match="changed with its lse"):
            watcher.read()
    else:
        watcher.read()


def test_a_hugging_face_model_on_flex_attention(build: Callable[..., Any]) -> None:
    """Grouped heads and padding on the right: as with sdpa."""
    ids = torch.randint(2, 50, (2, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 15:] = 0
    found = {}
    for kernel in ("sdpa", "flex_attention"):
        model = build("llama", kernel)
        with torch.no_grad(), tracer.watch(model) as watcher:
            model(ids, attention_mask=mask)
        found[kernel] = watcher.read()
        assert [(one.causal, one.n_heads) for one in watcher.layers] == [(True, 6)] * 2
    for name in ("entropy", "entropy_normalised", "max_logit", "first_token", "induction"):
        np.testing.assert_allclose(found["sdpa"][name], found["flex_attention"][name], atol=2e-5, err_msg=name)
