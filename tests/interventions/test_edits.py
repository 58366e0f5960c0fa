"""Edits belong to the calling context: they do what they say, nest, end with their block, and never cross threads."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.models import exact
from tracer.ablate.edges_and_paths import Cut
from tracer.config import InitConfig, ModelConfig
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import Active, Edit, applied, recording
from tracer.model import Transformer

CONFIG = ModelConfig(
    n_layers=2, n_heads=4, d_model=16, n_ctx=10, d_vocab=13, mlp_hidden=(12,), init=InitConfig(attn=0.5)
)
TOKENS = torch.randint(0, 13, (3, 9), generator=torch.Generator().manual_seed(0))
Z = "blocks.0.attn.hook_z"
PATTERN = "blocks.0.attn.hook_pattern"


@pytest.fixture(scope="module")
def model() -> Transformer:
    return exact(CONFIG)


def run(model: Transformer, *edits: Edit) -> Tensor:
    with applied(edits):
        return model(TOKENS)


@pytest.mark.parametrize("heads", [(0,), (3,), (1, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("layer", [0, 1])
def test_zeroing_a_head_is_zeroing_its_slice_of_w_o(model: Transformer, layer: int, heads: tuple[int, ...]) -> None:
    twin = Transformer(CONFIG, seed=1).double().eval().requires_grad_(False)
    twin.get_parameter(f"blocks.{layer}.attn.W_O")[list(heads)] = 0
    ablated = run(model, Edit(f"blocks.{layer}.attn.hook_z", heads))
    assert (ablated - twin(TOKENS)).abs().max() < 1e-12
    assert (ablated - model(TOKENS)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("edit", "axis_of_heads", "axis_of_positions"),
    [
        (Edit(Z, (1, 3), (2, 5), instead=7.0), 2, 1),
        (Edit(Z, (2,), instead=7.0), 2, 1),
        (Edit(Z, None, (0, 8), instead=7.0), 2, 1),
        (Edit("blocks.1.attn.hook_q", (0,), (4,), instead=7.0), 2, 1),
        (Edit(PATTERN, (1, 3), (2, 5), instead=7.0), 1, 2),
        (Edit("blocks.1.attn.hook_attn_scores", (2,), instead=7.0), 1, 2),
        (Edit("blocks.1.hook_resid_pre", None, (3,), instead=7.0), 2, 1),
        (Edit("hook_embed", None, (0, 1), instead=7.0), 2, 1),
        (Edit("ln_final.hook_scale", instead=7.0), 2, 1),
    ],
)
def test_an_edit_changes_what_it_names_and_nothing_else(
    model: Transformer, edit: Edit, axis_of_heads: int, axis_of_positions: int
) -> None:
    with recording(edit.tap) as clean:
        model(TOKENS)
    with applied([edit]), recording(edit.tap) as edited:
        model(TOKENS)
    expected = clean[edit.tap].movedim((axis_of_heads, axis_of_positions), (0, 1)).clone()
    for head in range(len(expected)) if edit.heads is None else edit.heads:
        for position in range(expected.shape[1]) if edit.positions is None else edit.positions:
            expected[head, position] = 7.0
    assert torch.equal(edited[edit.tap], expected.movedim((0, 1), (axis_of_heads, axis_of_positions)))


@pytest.mark.parametrize(
    "instead", [torch.zeros(4, 4), torch.rand(1, 9, 4, 4), torch.rand(3, 9, 4, 4), torch.rand(3, 1, 1, 4)]
)
def test_instead_is_broadcast(model: Transformer, instead: Tensor) -> None:
    with applied([Edit(Z, (1,), instead=instead)]), recording(Z) as seen:
        model(TOKENS)
    assert torch.equal(seen[Z][:, :, 1], instead.double().expand(3, 9, 4, 4)[:, :, 1])


@pytest.mark.parametrize("shape", [(5, 9, 4, 4), (3, 8, 4, 4), (2, 3, 9, 4, 4)])
def test_instead_of_another_shape_is_refused(model: Transformer, shape: tuple[int, ...]) -> None:
    one = TOKENS[:1]  # the batch of the input would otherwise grow, silently
    with applied([Edit(Z, instead=torch.zeros(shape))]), pytest.raises(RuntimeError, match="expand"):
        model(one)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (Edit(Z, (7,)), "head 7 does not exist: this layer has heads 0 to 3"),
        (Edit(Z, (0, -1)), "head -1 does not exist: this layer has heads 0 to 3"),
        (Edit(PATTERN, (4,)), "head 4 does not exist: this layer has heads 0 to 3"),
        (Edit(Z, None, (70,)), "position 70 does not exist: the input has positions 0 to 8"),
        (Edit(PATTERN, (1,), (9,)), "position 9 does not exist: the input has positions 0 to 8"),
        (Edit("blocks.0.hook_resid_pre", None, (9,)), "position 9 does not exist: the input has positions 0 to 8"),
        (Edit("blocks.0.hook_resid_pre", (0,)), "blocks.0.hook_resid_pre has no heads to choose from"),
        (Edit("blocks.2.attn.hook_z"), "blocks.2.attn.hook_z is no tap of this model"),
        (Edit("hook_z"), "hook_z is no tap of this model; it has hook_embed, hook_pos_embed"),
    ],
)
def test_a_bad_edit_is_an_error(model: Transformer, edit: Edit, says: str) -> None:
    with applied([edit]), pytest.raises(ValueError) as error:
        model(TOKENS)
    assert says in str(error.value)


def test_twice_is_once(model: Transformer) -> None:
    edit = Edit(Z, (1, 2), (3, 4, 5))
    once = run(model, edit)
    assert torch.equal(run(model, edit, edit), once)
    with applied([edit]):
        assert torch.equal(run(model, edit), once)
    assert torch.equal(run(model, Edit(Z, (1,), (3, 4, 5)), Edit(Z, (2,), (3, 4, 5))), once)


def test_blocks_nest_and_the_inner_one_comes_last(model: Transformer) -> None:
    clean, one = model(TOKENS), run(model, Edit(Z, (0,), instead=1.0))
    two = run(model, Edit(Z, (0,), instead=2.0))
    with applied([Edit(Z, (0,), instead=1.0)]):
        with applied([Edit(Z, (0,), instead=2.0)]):
            assert torch.equal(model(TOKENS), two)
            with applied([]):
                assert torch.equal(model(TOKENS), two)
        assert torch.equal(model(TOKENS), one)
    assert torch.equal(model(TOKENS), clean)


@pytest.mark.parametrize("recorder_outside", [False, True])
def test_a_recording_sees_what_the_model_goes_on_with(model: Transformer, recorder_outside: bool) -> None:
    edits = applied([Edit(Z, (2,), instead=5.0)])
    if recorder_outside:
        with recording("hook_z") as seen, edits:
            logits = model(TOKENS)
    else:
        with edits, recording("hook_z") as seen:
            logits = model(TOKENS)
    assert (seen[Z][:, :, 2] == 5.0).all() and not (seen[Z][:, :, 1] == 5.0).any()
    assert torch.equal(run(model, *(Edit(name, instead=z) for name, z in seen.items())), logits)


def test_recordings_nest(model: Transformer) -> None:
    with recording("hook_q", Z) as outer:
        with recording("hook_z") as inner:
            model(TOKENS)
        assert set(inner) == {Z, "blocks.1.attn.hook_z"}
        assert set(outer) == {Z, "blocks.0.attn.hook_q", "blocks.1.attn.hook_q"}
        first = inner[Z]
        model(TOKENS[:, :4])
    assert inner[Z] is first and outer[Z].shape[1] == 4


def test_a_recording_is_what_run_with_cache_sees(model: Transformer) -> None:
    logits, cache = model.run_with_cache(TOKENS)
    with recording(*model.hook_dict) as seen:
        assert torch.equal(model(TOKENS), logits)
    assert list(seen) == list(cache.keys())
    for name, activation in seen.items():
        assert torch.equal(activation, cache[name]), name


def test_frozen_patterns_and_no_ablation_is_the_clean_run(model: Transformer) -> None:
    with recording("hook_pattern") as seen:
        clean = model(TOKENS)
    frozen = [Edit(name, instead=pattern) for name, pattern in seen.items()]
    assert torch.equal(run(model, *frozen), clean)
    last = Edit("blocks.1.attn.hook_z", (1,))  # nothing downstream of the last layer reads a pattern
    assert (run(model, *frozen, last) - run(model, last)).abs().max() < 1e-12
    first = Edit(Z, (1,))
    assert (run(model, *frozen, first) - run(model, first)).abs().max() > 1e-3


def test_a_pattern_can_be_written_by_hand(model: Transformer) -> None:
    twin = Transformer(CONFIG, seed=1).double().eval().requires_grad_(False)
    attend_to_self = Edit(PATTERN, (0,), instead=torch.eye(9))
    with applied([attend_to_self]), recording("blocks.0.attn.hook_v", Z) as seen:
        model(TOKENS)
    assert torch.equal(seen[Z][:, :, 0], seen["blocks.0.attn.hook_v"][:, :, 0])
    assert not torch.equal(run(model, attend_to_self), twin(TOKENS))


def test_an_exception_ends_the_block(model: Transformer) -> None:
    clean = model(TOKENS)
    with pytest.raises(KeyError), applied([Edit(Z)]), recording("hook_z"):
        raise KeyError
    with pytest.raises(ValueError, match="head 9"), applied([Edit(Z, (9,))]):
        model(TOKENS)
    with recording("hook_z") as seen:
        assert (model(TOKENS) - clean).abs().max() == 0
    assert seen[Z].abs().min() > 0


@dataclass(frozen=True)
class Times:
    factor: float

    def __call__(self, activation: Tensor) -> Tensor:
        return self.factor * activation


def test_what_is_there_may_be_changed_and_not_replaced(model: Transformer) -> None:
    with recording(Z) as clean:
        model(TOKENS)
    with applied([Edit(Z, (1, 2), (3,), Times(2.0)), Edit(Z, (2,), instead=Times(5.0))]), recording(Z) as seen:
        model(TOKENS)
    expected = clean[Z].clone()
    expected[:, 3, 1] *= 2
    expected[:, :, 2] *= 5
    expected[:, 3, 2] *= 2
    assert torch.equal(seen[Z], expected)
    assert Edit(Z, instead=Times(2.0)) == Edit(Z, instead=Times(2.0)) != Edit(Z, instead=Times(3.0))


def test_gradients_flow_through_an_edit() -> None:
    model = Transformer(CONFIG, seed=1)
    with applied([Edit(Z, (1,))]):
        model(TOKENS).logsumexp(-1).sum().backward()
    gradient = model.blocks[0].attn.W_V.grad
    assert gradient is not None
    assert gradient[1].abs().max() == 0
    assert gradient[0].abs().max() > 0


def test_threads_do_not_see_each_other() -> None:
    """8 threads, one model, 2400 forwards: half ablate (head, edge), a quarter record, and none is off by a bit."""
    model = Transformer(ModelConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=8, d_vocab=7), seed=2).eval()
    model.requires_grad_(False)
    tokens = torch.randint(0, 7, (1, 6), generator=torch.Generator().manual_seed(3))

    def ablated(edit: Edit) -> Callable[[], list[Tensor]]:
        def forward() -> list[Tensor]:
            with applied([edit]):
                return [model(tokens)]

        return forward

    def recorded() -> list[Tensor]:
        with recording("hook_pattern", "hook_z") as seen:
            logits = model(tokens)
        return [logits, *seen.values()]

    head, edge = Edit(Z, (0,)), Edit(PATTERN, instead=Cut(((1, 5, 2),), renormalise=True))
    kinds: list[Callable[[], list[Tensor]]] = [ablated(head), ablated(edge), recorded, lambda: [model(tokens)]] * 2
    expected, together = [kind() for kind in kinds], threading.Barrier(8)

    def work(index: int) -> int:
        together.wait()
        runs = [kinds[index]() for _ in range(300)]
        return sum(len(run) != len(expected[index]) or not all(map(torch.equal, run, expected[index])) for run in runs)

    assert len({tuple(logits.flatten().tolist()) for logits, *_ in (expected[0], expected[1], expected[3])}) == 3
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [0] * 8


def test_a_copied_context_takes_the_edits_along(model: Transformer) -> None:
    clean = model(TOKENS)
    with applied([Edit(Z)]):
        context, ablated = copy_context(), model(TOKENS)
        with ThreadPoolExecutor(1) as pool:
            assert torch.equal(pool.submit(model, TOKENS).result(), clean)
            assert torch.equal(pool.submit(context.run, model, TOKENS).result(), ablated)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("instead", [0.5, torch.full((), 0.5)])
def test_what_is_edited_keeps_its_precision(dtype: torch.dtype, instead: float | Tensor) -> None:
    z = torch.ones(2, 9, 4, 4, dtype=dtype)
    found = Edit(Z, (1,), (3,), instead)(z)
    assert found.dtype == dtype
    expected = z.clone()
    expected[:, 3, 1] = 0.5
    assert torch.equal(found, expected)


def test_every_visitor_sees_a_call_and_the_first_answer_stands() -> None:
    call = AttentionCall(0, torch.zeros(1, 2, 1, 1))
    seen: list[int] = []

    def visitor(number: int, z: Tensor | None) -> Callable[[AttentionCall], Tensor | None]:
        return lambda given: seen.append(number) or z

    first, second = torch.ones(1), torch.zeros(1)
    found = Active(visitors=(visitor(0, None), visitor(1, first), visitor(2, second))).visit(call)
    assert found is first and seen == [0, 1, 2]
    assert Active(visitors=(visitor(3, None),)).visit(call) is None
