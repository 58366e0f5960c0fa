"""Text that a model writes token by token, with keys and values kept: its heads stay the heads that they are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import tracer

IDS = torch.randint(2, 50, (3, 8), generator=torch.Generator().manual_seed(1))
PADDED = torch.tensor([[1] * 8, [0] * 3 + [1] * 5, [0] * 6 + [1] * 2])
HOW = {
    "plain": {},
    "padded": {"attention_mask": PADDED},
    "static cache": {"cache_implementation": "static"},
    "padded and static": {"attention_mask": PADDED, "cache_implementation": "static"},
}
FAMILIES = [("gpt2", "c_proj"), ("llama", "o_proj"), ("mistral", "o_proj"), ("qwen2", "o_proj")]


def written(model: Any, how: dict[str, Any]) -> Tensor:
    return model.generate(IDS, max_new_tokens=6, do_sample=False, pad_token_id=0, **{"attention_mask": IDS > 0, **how})


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize(("name", "out"), FAMILIES)
@pytest.mark.filterwarnings("ignore:.*cache.*")
def test_watching_and_ablating_while_it_writes(
    build: Callable[..., Any], name: str, out: str, kernel: str, how: str
) -> None:
    model = build(name, kernel)
    plain = written(model, HOW[how])
    with tracer.watch(model) as watcher:
        assert torch.equal(written(model, HOW[how]), plain)
    found = watcher.read()
    assert set(found["kind"].values) == {"self"} and found["causal"].all() and found["entropy"].notnull().all()
    n_heads = found.sizes["head"]
    last = watcher.pattern(0, n_heads - 1)
    assert last.shape[0] == 1 and float(last.sum()) == pytest.approx(1)

    layer = watcher.layers[0].name
    width = model.get_submodule(layer).get_submodule(out).weight.shape[0 if out == "c_proj" else 1] // n_heads
    off = slice(width, 2 * width)

    def without(_module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = args[0].clone()
        x[..., off] = 0
        return (x,)

    handle = model.get_submodule(layer).get_submodule(out).register_forward_pre_hook(without)
    expected = written(model, HOW[how])
    handle.remove()
    with watcher.ablate({(0, 1)}):
        assert torch.equal(written(model, HOW[how]), expected)
    assert not torch.equal(expected, plain)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_what_goes_on_from_kept_keys_is_the_end_of_the_whole(build: Callable[..., Any], kernel: str) -> None:
    model = build("llama", kernel)
    with torch.no_grad():
        with tracer.watch(model) as whole:
            model(IDS)
        kept = model(IDS[:, :5]).past_key_values
        with tracer.watch(model) as rest:
            model(IDS[:, 5:], past_key_values=kept)
    assert [(one.kind, one.causal) for one in rest.layers] == [("self", True)] * 2
    for layer in range(2):
        for head in range(6):
            torch.testing.assert_close(
                rest.pattern(layer, head), whole.pattern(layer, head, slice(5, 8)), atol=1e-5, rtol=0
            )
    rows = torch.special.entr(torch.stack([rest.pattern(0, head) for head in range(6)])).sum(-1)
    with torch.no_grad(), tracer.watch(model) as one:
        model(IDS[:1, 5:], past_key_values=model(IDS[:1, :5]).past_key_values)
    torch.testing.assert_close(torch.from_numpy(one.read()["entropy"].values[0]), rows.mean(1), atol=1e-5, rtol=0)


def test_a_single_token_is_no_fault(build: Callable[..., Any]) -> None:
    """It has no row that sees two keys, so no measure is known; nothing is broken."""
    model = build("llama")
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(IDS[:, :1])
    assert watcher.read()["entropy"].isnull().all() and watcher.first_broken() is None
