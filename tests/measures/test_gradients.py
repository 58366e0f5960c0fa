"""g, w and u of tensors and heads, against loops and closed forms."""

import math

import numpy as np
import pytest
import torch

from tracer.measures import gradients

HEADS, D_MODEL, D_HEAD = 3, 6, 2


def weights(n_layers: int = 2, w_o: bool = True) -> dict[str, torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"embed.W_E": (5, D_MODEL)}
    for layer in range(n_layers):
        shapes |= {f"blocks.{layer}.attn.W_{m}": (HEADS, D_MODEL, D_HEAD) for m in "QKV"}
        if w_o:
            shapes |= {f"blocks.{layer}.attn.W_O": (HEADS, D_HEAD, D_MODEL), f"blocks.{layer}.attn.b_O": (D_MODEL,)}
    return {name: torch.nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in shapes.items()}


def backward(params: dict[str, torch.nn.Parameter]) -> None:
    torch.stack([(p**3).sum() for p in params.values()]).sum().backward()


@pytest.mark.parametrize(
    ("tensor", "norm"), [([3.0, 4.0], 5.0), ([[1.0, -1.0], [1.0, 1.0]], 2.0), ([0.0], 0.0), (2.0, 2.0)]
)
def test_norm_by_hand(tensor: list | float, norm: float) -> None:
    assert gradients.tensor_norms({"a": torch.tensor(tensor)}).tolist() == [norm]


def test_tensor_norms_keep_the_order() -> None:
    params = weights()
    expected = [math.sqrt(sum(x * x for x in p.flatten().tolist())) for p in params.values()]
    assert gradients.tensor_norms(params).tolist() == pytest.approx(expected, rel=1e-6)


def test_half_precision_is_summed_in_float32() -> None:
    norms = gradients.tensor_norms({"a": torch.full((2**16,), 0.5, dtype=torch.bfloat16)})
    assert norms.dtype == torch.float32
    assert norms.item() == 128


def test_head_norms_are_norms_of_slices() -> None:
    params = weights()
    got = gradients.head_norms(params)
    assert got.shape == (2, HEADS, 4)
    for layer in range(2):
        for head in range(HEADS):
            for index, matrix in enumerate(gradients.MATRICES):
                expected = params[f"blocks.{layer}.attn.W_{matrix}"][head].norm().item()
                assert got[layer, head, index].item() == pytest.approx(expected, rel=1e-6)


def test_heads_add_up_to_their_tensor() -> None:
    params = weights()
    names = list(params)
    whole = gradients.tensor_norms(params)[names.index("blocks.1.attn.W_V")]
    together = torch.linalg.vector_norm(gradients.head_norms(params)[1, :, 2])
    assert together.item() == pytest.approx(whole.item(), rel=1e-6)


def test_layers_beyond_nine_stay_in_order() -> None:
    params = dict(reversed(weights(n_layers=12).items()))
    got = gradients.head_norms(params)[:, 0, 0].tolist()
    assert got == pytest.approx([params[f"blocks.{layer}.attn.W_Q"][0].norm().item() for layer in range(12)], rel=1e-6)


def test_attention_without_w_o() -> None:
    got = gradients.head_norms(weights(w_o=False))
    assert got[..., 3].isnan().all()
    assert got[..., :3].isfinite().all()


def test_gradient_of_a_frozen_head_is_zero() -> None:
    params = weights()
    with torch.no_grad():
        keep = torch.ones(HEADS, 1, 1)
        keep[1] = 0
    frozen = params["blocks.0.attn.W_K"]
    frozen.register_hook(lambda grad: grad * keep)
    backward(params)
    g = gradients.head_norms(gradients.gradients(params))
    assert g[0, 1, 1] == 0
    assert (g > 0).sum() == g.numel() - 1


def test_gradient_of_a_frozen_tensor_is_zero() -> None:
    params = weights()
    params["embed.W_E"].requires_grad_(False)
    backward({name: p for name, p in params.items() if p.requires_grad})
    g = gradients.tensor_norms(gradients.gradients(params))
    assert g[0] == 0
    assert (g[1:] > 0).all()


def test_update_ratio_of_an_sgd_step_is_lr_g_over_w() -> None:
    params, lr = weights(), 0.01
    backward(params)
    old = gradients.copies(params)
    grads = gradients.gradients(params)
    g, w = gradients.tensor_norms(grads), gradients.tensor_norms(old)
    head_g, head_w = gradients.head_norms(grads), gradients.head_norms(old)
    torch.optim.SGD(params.values(), lr=lr).step()
    moved = gradients.differences(old, params)
    u = gradients.update_ratio(gradients.tensor_norms(moved), w)
    head_u = gradients.update_ratio(gradients.head_norms(moved), head_w)
    torch.testing.assert_close(u, lr * g / w, rtol=1e-5, atol=0)
    torch.testing.assert_close(head_u, lr * head_g / head_w, rtol=1e-5, atol=0)


def test_update_ratio_exactly_in_float64() -> None:
    params = {"a": torch.nn.Parameter(torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64))}
    params["a"].grad = torch.tensor([0.5, 1.0, -0.25], dtype=torch.float64)
    old = gradients.copies(params)
    g, w = gradients.tensor_norms(gradients.gradients(params)), gradients.tensor_norms(old)
    torch.optim.SGD(params.values(), lr=2.0**-4).step()
    u = gradients.update_ratio(gradients.tensor_norms(gradients.differences(old, params)), w)
    assert u.tolist() == (2.0**-4 * g / w).tolist()


def test_copies_do_not_follow_the_step() -> None:
    params = {"a": torch.nn.Parameter(torch.ones(2))}
    old = gradients.copies(params)
    with torch.no_grad():
        params["a"].add_(1)
    assert old["a"].tolist() == [1, 1]
    assert gradients.differences(old, params)["a"].tolist() == [1, 1]


def test_update_ratio_of_zero_weights_is_undefined() -> None:
    u = gradients.update_ratio(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 4.0]))
    assert u.isnan().tolist() == [True, True, False]
    assert u[2] == 0.25


def test_norms_together_are_what_clipping_sees() -> None:
    params = weights()
    backward(params)
    total = torch.linalg.vector_norm(gradients.tensor_norms(gradients.gradients(params)))
    assert total.item() == pytest.approx(torch.nn.utils.clip_grad_norm_(params.values(), 1.0).item(), rel=1e-6)


def test_fetch_of_nothing_is_nothing() -> None:
    assert gradients.fetch({}) == {}


def test_fetch_keeps_names_shapes_and_values() -> None:
    results = {"a": torch.arange(6.0).reshape(1, 2, 3), "b": torch.tensor(7.0), "c": torch.tensor([math.nan, -1])}
    fetched = gradients.fetch(results)
    assert list(fetched) == ["a", "b", "c"]
    for name, value in results.items():
        assert fetched[name].dtype == np.float32
        np.testing.assert_array_equal(fetched[name], value.numpy())
