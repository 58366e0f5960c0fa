"""torch's own modules, which take another kernel while nobody looks, return what they return unseen."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tracer

D, HEADS = 16, 4
MADE: dict[str, Callable[[], nn.Module]] = {
    "layer": lambda: nn.TransformerEncoderLayer(D, HEADS, 32, batch_first=True),
    "norm first": lambda: nn.TransformerEncoderLayer(D, HEADS, 32, batch_first=True, norm_first=True),
    "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(D, HEADS, 32, batch_first=True), 2),
    "attention": lambda: nn.MultiheadAttention(D, HEADS, batch_first=True),
}
PADDING = torch.arange(10) >= torch.tensor([[10], [7], [4]])


class Model(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.part, self.unembed = nn.Embedding(40, D), MADE[kind](), nn.Linear(D, 40)

    def forward(self, ids: Tensor, padding: Tensor | None = None) -> Tensor:
        x = self.embed(ids)
        if isinstance(self.part, nn.MultiheadAttention):
            return self.unembed(self.part(x, x, x, key_padding_mask=padding, need_weights=False)[0])
        return self.unembed(self.part(x, src_key_padding_mask=padding))


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(40, (3, 10), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("padding", [None, PADDING], ids=["whole", "padded"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@torch.no_grad()
def test_what_is_seen_is_what_would_be_unseen(kind: str, padding: Tensor | None, ids: Tensor) -> None:
    model = Model(kind).eval()
    own = model(ids, padding)
    with tracer.watch(model) as watcher:
        assert torch.equal(model(ids, padding), own)
        seen = watcher.read()["entropy"]
        with tracer.watch(model):
            assert torch.equal(model(ids, padding), own), "two at once"
        with watcher.ablate([(0, 1)], "zero"):
            assert not torch.allclose(model(ids, padding), own, atol=1e-3), "an edit counts"
    assert (seen > 0).all()
    assert torch.equal(model(ids, padding), own)


@torch.no_grad()
def test_what_would_be_in_parts_stays_in_parts(ids: Tensor) -> None:
    """A hook on a part makes torch compute the layer in parts, unseen as well: it runs once, and its change counts."""
    model, ran = Model("layer").eval(), []
    fused = model(ids)

    def twice(_module: nn.Module, _args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        ran.append(1)
        return 2 * output

    model.part.get_submodule("linear2").register_forward_hook(twice)
    own = model(ids)
    with tracer.watch(model):
        assert torch.equal(model(ids), own)
    assert len(ran) == 2 and not torch.allclose(own, fused, atol=1e-3)


@torch.no_grad()
def test_a_hook_on_the_module_itself_comes_after(ids: Tensor) -> None:
    model = Model("attention").eval()
    model.part.register_forward_hook(lambda _module, _args, output: (output[0] + 1, output[1]))
    own = model(ids)
    with tracer.watch(model):
        assert torch.equal(model(ids), own)


def test_an_evaluation_in_a_recorded_training(ids: Tensor, tmp_path) -> None:
    def evaluated(recorded: bool) -> Tensor:
        model, found = Model("encoder"), []
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        recorder = tracer.watch(model, run=tmp_path / "run", every=2) if recorded else None
        for step in range(4):
            torch.manual_seed(step)
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if recorder is not None:
                recorder.step(loss)
            model.eval()
            with torch.no_grad():
                found.append(model(ids))
            model.train()
        if recorder is not None:
            recorder.close()
        return torch.stack(found)

    assert torch.equal(evaluated(True), evaluated(False))
