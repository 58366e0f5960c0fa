"""Functions at named taps: what transformer-lens's own hooks do, from any thread, and on models of others."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import tracer
from tests.causal_families import causal
from tests.small import TOKENS, build
from tracer.interventions.edits import recording


def off(z: Tensor, hook: Any) -> Tensor:
    return z * (torch.arange(z.shape[2]) != 2)[:, None]


def off_in_place(z: Tensor, hook: Any) -> None:
    z[:, :, 1] = hook.layer()


def first_key(pattern: Tensor, hook: Any) -> Tensor:
    return torch.nn.functional.one_hot(torch.zeros(pattern.shape[:-1], dtype=torch.long), pattern.shape[-1]).to(pattern)


def sharper(x: Tensor, hook: Any) -> Tensor:
    return 1.5 * x


CASES: dict[str, list[tuple[Any, Callable[..., Any]]]] = {
    "z": [("blocks.1.attn.hook_z", off)],
    "z in place": [("blocks.1.attn.hook_z", off_in_place)],
    "pattern": [("blocks.0.attn.hook_pattern", first_key)],
    "scores": [("blocks.0.attn.hook_attn_scores", sharper)],
    "a norm": [("blocks.1.ln1.hook_scale", sharper)],
    "by a filter, and two at one tap": [(lambda name: name.endswith("resid_pre"), sharper),
                                        ("blocks.1.hook_resid_pre", sharper)],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_transformer_lens_does_it(name: str) -> None:
    """Its own hooks on our model, which live on the model, are the oracle."""
    model = build()
    with model.hooks(fwd_hooks=CASES[name]):
        expected = model(TOKENS)
    found = model.run_with_hooks(TOKENS, fwd_hooks=CASES[name])
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    assert (found - model(TOKENS)).abs().max() > 1e-3


def test_another_thread_sees_nothing_of_it() -> None:
    model, elsewhere = build(), []
    clean = model(TOKENS)

    def meanwhile(x: Tensor, hook: Any) -> Tensor:
        if not elsewhere:
            thread = threading.Thread(target=lambda: elsewhere.append(model(TOKENS)))
            thread.start()
            thread.join()
        return torch.zeros_like(x)

    taps = ("blocks.0.hook_resid_pre", "blocks.1.attn.hook_z")
    hooked = model.run_with_hooks(TOKENS, fwd_hooks=[(tap, meanwhile) for tap in taps])
    assert torch.equal(elsewhere[0], clean) and not torch.equal(hooked, clean)
    assert torch.equal(model(TOKENS), clean)


@pytest.mark.parametrize("family", ["GPT-2", "Llama"])
def test_on_models_of_others(family: str) -> None:
    """Every name that is listed is called once, looking changes no bit, and what is changed in place counts."""
    model = tracer.load_hf(causal(family))
    ids = torch.arange(12).view(2, 6)
    clean, seen = model(ids), {}

    def look(x: Tensor, hook: Any) -> None:
        seen[hook.name] = x.clone()

    assert torch.equal(model.run_with_hooks(ids, [(tap, look) for tap in model.taps]), clean)
    with recording(*model.taps) as recorded:
        model(ids)
    assert list(seen) != [] and set(seen) == set(model.taps) and "blocks.1.hook_resid_pre" in seen
    assert all(torch.equal(seen[tap], recorded[tap]) for tap in recorded)

    def first_in_place(pattern: Tensor, hook: Any) -> None:
        pattern.copy_(first_key(pattern, hook))

    for function in (first_in_place, first_key):
        with recording("hook_z", "hook_v") as after:
            model.run_with_hooks(ids, [("blocks.0.attn.hook_pattern", function)])
        v = after["blocks.0.attn.hook_v"].repeat_interleave(model.n_heads // after["blocks.0.attn.hook_v"].shape[2], 2)
        torch.testing.assert_close(after["blocks.0.attn.hook_z"], v[:, :1].expand(-1, 6, -1, -1))
    expected = tracer.ablate.losses(model, ids, [[(1, 0)]])[0]
    off = [("blocks.1.attn.hook_z", lambda z, hook: z * (torch.arange(z.shape[2]) != 0)[:, None])]
    torch.testing.assert_close(tracer.probes.per_token_loss(model.run_with_hooks(ids, off), ids), expected)


def test_gradients_reach_what_a_function_kept() -> None:
    model, kept = build().requires_grad_(True), []
    logits = model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.hook_resid_post", lambda x, hook: kept.append(x))])
    (gradient,) = torch.autograd.grad(logits[..., 0].sum(), kept)
    assert gradient.shape == kept[0].shape and gradient.abs().max() > 0


def test_what_is_refused() -> None:
    """A name of none, with those that exist; a function that gives another shape, by its name and tap."""
    ours, theirs = build(), tracer.load_hf(causal("GPT-2"))
    ids = torch.arange(6)[None]
    with pytest.raises(ValueError, match=r"blocks.2.attn.hook_z is no tap of this model; it has hook_embed, .*"
                                         r"blocks.<0 to 1>.attn.hook_z"):  # fmt: skip
        ours.run_with_hooks(TOKENS, fwd_hooks=[("blocks.2.attn.hook_z", off)])
    with pytest.raises(ValueError, match=r"blocks.0.hook_resid_mid is no tap .* it has blocks.<0 to \d>.attn.hook_q"):
        theirs.run_with_hooks(ids, [("blocks.0.hook_resid_mid", off)])
    with pytest.raises(ValueError, match="names no tap; it has"):
        theirs.run_with_hooks(ids, [(lambda name: "mlp.hook_pre" in name, off)])
    with pytest.raises(ValueError, match=r"test_named_hooks:wide at blocks.0.attn.hook_z returned \[1, 6\]"):
        theirs.run_with_hooks(ids, [("blocks.0.attn.hook_z", wide)])
    with pytest.raises(ValueError, match="test_named_hooks:as_numbers at blocks.0.attn.hook_z returned ndarray, where"):
        theirs.run_with_hooks(ids, [("blocks.0.attn.hook_z", as_numbers)])


def wide(z: Tensor, hook: Any) -> Tensor:
    return z[:, :, 0, 0]


def as_numbers(z: Tensor, hook: Any) -> Any:
    return z.numpy()
