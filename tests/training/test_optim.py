"""Muon over stacked heads is Muon over the merged matrices; every weight moves by exactly one optimiser."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import _muon

from tracer.config import ModelConfig, OptimConfig
from tracer.model import Transformer
from tracer.training import optim

TOKENS = torch.randint(0, 11, (4, 8), generator=torch.Generator().manual_seed(0))
MODEL = ModelConfig(
    n_layers=2, n_heads=2, d_model=8, d_head=6, n_ctx=8, d_vocab=11, mlp_hidden=(20, 12), attn_out_bias=True
)


def gradients(model: nn.Module) -> None:
    model.zero_grad()
    F.cross_entropy(model(TOKENS)[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten()).backward()


def step(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    gradients(model)
    for optimizer in optimizers:
        optimizer.step()


def merged(name: str, weight: Tensor) -> Tensor:
    """A stack of heads as the weight of the one nn.Linear [out, in] that does the same."""
    if name.endswith("W_O"):
        return torch.cat([head.T for head in weight], 1)
    return torch.cat([head.T for head in weight], 0) if weight.ndim == 3 else weight.T


@pytest.mark.parametrize("shape", [(2, 8, 6), (1, 8, 8), (4, 3, 2)])
@pytest.mark.parametrize("name", ["W_Q", "W_O", "W_in"])
def test_muon_is_torchs_on_the_merged_matrix(
    name: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's private function stands for all of its bfloat16; everything else of its step is compared to ours."""
    monkeypatch.setattr(
        _muon, "_zeropower_via_newtonschulz", lambda x, _, steps, eps: optim.orthogonalised(x, steps, eps)
    )
    generator = torch.Generator().manual_seed(1)
    weight = nn.Parameter(torch.randn(shape if name != "W_in" else shape[1:], generator=generator))
    matrix = nn.Parameter(merged(name, weight.detach()).clone())
    ours = optim.HeadMuon([{"params": [(f"blocks.0.attn.{name}", weight)], "lr": 0.02}], momentum=0.9, weight_decay=0.1)
    theirs = torch.optim.Muon([matrix], lr=0.02, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        before = weight.detach().clone()
        weight.grad = torch.randn(weight.shape, generator=generator)
        matrix.grad = merged(name, weight.grad).clone()
        ours.step()
        theirs.step()
        torch.testing.assert_close(merged(name, weight.detach()), matrix.detach(), rtol=1e-6, atol=1e-7)
        assert not torch.equal(weight, before)


@pytest.mark.parametrize("shape", [(8, 8), (12, 5), (5, 12)])
def test_an_update_is_orthogonal_and_torchs_up_to_its_bfloat16(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    found = optim.orthogonalised(matrix)
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    s, (a, b, c) = s / s.square().sum().sqrt(), optim.NEWTON_SCHULZ
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5
    torch.testing.assert_close(found.double(), u @ torch.diag(s) @ v, rtol=0, atol=2e-5)
    assert s.min() > 0.5 and s.max() < 1.3
    theirs = _muon._zeropower_via_newtonschulz(matrix, optim.NEWTON_SCHULZ, 5, 1e-7)
    torch.testing.assert_close(found, theirs.float(), rtol=0, atol=0.05)


@pytest.mark.parametrize("name", ["sgd", "adamw", "muon"])
@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_is_in_exactly_one_optimiser(name: Any, tied: bool) -> None:
    model = Transformer(ModelConfig(d_vocab=11, mlp_hidden=(8,), tie_embeddings=tied))
    optimizers = optim.build(model, OptimConfig(name=name))
    real = {id(matrix): weight for o in optimizers if isinstance(o, optim.HeadMuon) for weight, matrix, _ in o.pairs}
    driven = [id(real.get(id(p), p)) for o in optimizers for group in o.param_groups for p in group["params"]]
    assert sorted(driven) == sorted(id(p) for p in model.parameters())
    if name == "muon":
        muon = {id(weight) for weight in real.values()}
        names = {n for n, p in model.named_parameters() if id(p) in muon}
        assert names == {
            f"blocks.{layer}.{weight}"
            for layer in (0, 1)
            for weight in ("attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O", "mlp.W_in", "mlp.W_out")
        }


@pytest.mark.parametrize("name", ["sgd", "adamw", "muon"])
def test_a_step_moves_every_parameter(name: Any) -> None:
    model = Transformer(MODEL)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    step(model, optim.build(model, OptimConfig(name=name)))
    assert [n for n, p in model.named_parameters() if torch.equal(p, before[n])] == []


@pytest.mark.parametrize(("name", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adamw", 0.9), ("muon", 0.9)])
def test_qk_lr_factor_scales_the_steps_of_q_and_k_only(name: Any, momentum: float) -> None:
    moves = []
    for factor in (1.0, 3.0):
        model = Transformer(MODEL).double()
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        config = OptimConfig(name=name, lr=1e-3, qk_lr_factor=factor, momentum=momentum, weight_decay=0.0)
        step(model, optim.build(model, config))
        moves.append({n: (p - before[n]).norm().item() for n, p in model.named_parameters()})
    for n in moves[0]:
        assert moves[1][n] / moves[0][n] == pytest.approx(3.0 if n.endswith(("W_Q", "W_K")) else 1.0, rel=1e-4)


def test_the_update_ratio_of_plain_sgd_is_lr_g_over_w() -> None:
    model = Transformer(MODEL).double()
    optimizers = optim.build(model, OptimConfig(name="sgd", lr=0.05, momentum=0.0, weight_decay=0.0))
    gradients(model)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for optimizer in optimizers:
        optimizer.step()
    for n, p in model.named_parameters():
        if before[n].norm() == 0:
            continue
        assert p.grad is not None
        u = (p.detach() - before[n]).norm() / before[n].norm()
        assert u.item() == pytest.approx((0.05 * p.grad.norm() / before[n].norm()).item(), rel=1e-9)


def test_sgd_is_nesterov() -> None:
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    model = nn.ParameterDict({"w": weight})
    (sgd,) = optim.build(model, OptimConfig(name="sgd", lr=0.1, momentum=0.5, weight_decay=0.0))
    positions = []
    for gradient in (1.0, 1.0):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        sgd.step()
        positions.append(weight.item())
    # v1 = 1, step 1 + 0.5 v1 = 1.5; v2 = 1.5, step 1 + 0.5 v2 = 1.75
    assert positions == pytest.approx([1 - 0.15, 1 - 0.15 - 0.175])


SETTINGS = [
    ("sgd", [{"momentum": 0.8, "weight_decay": 0.3}]),
    ("adamw", [{"betas": (0.9, 0.7), "weight_decay": 0.3}]),
    ("muon", [{"momentum": 0.8, "weight_decay": 0.3}, {"betas": (0.9, 0.7), "weight_decay": 0.3}]),
]


@pytest.mark.parametrize(("name", "expected"), SETTINGS)
def test_settings_reach_every_optimiser(name: Any, expected: list[dict[str, Any]]) -> None:
    config = OptimConfig(name=name, momentum=0.8, beta2=0.7, weight_decay=0.3)
    for optimizer, settings in zip(optim.build(Transformer(MODEL), config), expected, strict=True):
        for group in optimizer.param_groups:
            assert {setting: group[setting] for setting in settings} == settings


def test_adamw_by_hand() -> None:
    """Gradients 1 and 3: v halves at each step, and is 0.5, then 4.75; m = 0.9 m + 0.1 g is 0.1, then 0.39."""
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    config = OptimConfig(name="adamw", lr=0.1, beta2=0.5, weight_decay=0.0)
    (adam,) = optim.build(nn.ParameterDict({"w": weight}), config)
    positions = []
    for gradient in (1.0, 3.0):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        adam.step()
        positions.append(weight.item())
    second = (0.39 / (1 - 0.9**2)) / (4.75 / (1 - 0.5**2)) ** 0.5
    assert positions == pytest.approx([1 - 0.1, 1 - 0.1 - 0.1 * second])


@pytest.mark.parametrize(
    ("warmup", "factors"), [(0, [1, 1, 1]), (1, [1, 1, 1]), (4, [0.25, 0.5, 0.75, 1, 1]), (2, [0.5, 1, 1])]
)
def test_warm_up(warmup: int, factors: list[float]) -> None:
    config = OptimConfig(name="muon", lr=0.4, adam_lr=0.1, qk_lr_factor=2.0, pos_lr_factor=3.0, warmup=warmup)
    optimizers = optim.build(Transformer(MODEL), config)
    for at, factor in reversed(list(enumerate(factors))):  # in any order: a pure function of the step
        assert optim.set_lr(optimizers, config, at) == pytest.approx(0.4 * factor)
        lrs = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
        assert sorted(lrs) == pytest.approx([0.1 * factor, 0.3 * factor, 0.4 * factor, 0.8 * factor])


@pytest.mark.parametrize("name", ["sgd", "adamw", "muon"])
def test_state_goes_on_in_a_copy_to_the_bit(name: Any) -> None:
    config = OptimConfig(name=name, lr=0.01)
    model = Transformer(MODEL)
    optimizers = optim.build(model, config)
    for _ in range(2):
        step(model, optimizers)
    twin = copy.deepcopy(model)
    fresh = Transformer(MODEL, seed=1)
    fresh.load_state_dict(model.state_dict())
    saved = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
    for _ in range(2):
        step(model, optimizers)
    for copied in (twin, fresh):
        others = optim.build(copied, config)
        for other, state in zip(others, saved, strict=True):
            other.load_state_dict(copy.deepcopy(state))
        for _ in range(2):
            step(copied, others)
        for (n, p), q in zip(model.named_parameters(), copied.parameters(), strict=True):
            assert torch.equal(p, q), n


def test_zero_grad_reaches_the_heads() -> None:
    model = Transformer(MODEL)
    optimizers = optim.build(model, OptimConfig(name="muon"))
    step(model, optimizers)
    for optimizer in optimizers:
        optimizer.zero_grad()
    assert [n for n, p in model.named_parameters() if p.grad is not None] == []
    (muon,) = (one for one in optimizers if isinstance(one, optim.HeadMuon))
    assert all(matrix.grad is None for _, matrix, _ in muon.pairs)  # nor is there a second copy of them


def test_muon_takes_a_closure() -> None:
    weight = nn.Parameter(torch.ones(1, 2, 2))
    muon = optim.HeadMuon([{"params": [("W_Q", weight)], "lr": 0.1}], momentum=0.0, weight_decay=0.0)

    def closure() -> float:
        loss = weight.square().sum()
        loss.backward()
        return loss.item()

    assert muon.step(closure) == 4.0
    assert (weight < 1).all()
