"""What the eye sees is what the model does: patterns and means of every head of Hugging Face's models and torch's."""

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tracer
from tests.hooks.by_hand import BATCH, T
from tracer.watching.watcher import Watcher

IDS = torch.randint(2, 50, (BATCH, T), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [0] * 2 + [1] * 5])


def inputs_of(name: str) -> dict[str, Tensor]:
    if name == "vit":
        return {"pixel_values": torch.rand(BATCH, 3, 16, 16, generator=torch.Generator().manual_seed(0))}
    right = MASK.clone()
    right[2] = 1
    given = {"input_ids": IDS, "attention_mask": MASK if name not in ("bert", "t5", "bart") else right}
    if name in ("t5", "bart"):
        given |= {"decoder_input_ids": IDS.flip(1), "decoder_attention_mask": right.flip(0)}
    return given


def oracle(name: str, model: Any, given: dict[str, Tensor]) -> list[tuple[str, Tensor, Tensor]]:
    """(kind, pattern [batch head query key], real rows [batch query]) of each layer, in the order in which they run."""
    with torch.no_grad():
        out = model(**given, output_attentions=True)
    real = given.get("attention_mask")
    if name not in ("t5", "bart"):
        found = [("self", p) for p in out.attentions]
        return [(kind, p, torch.ones(p.shape[0], p.shape[2]) if real is None else real) for kind, p in found]
    assert real is not None
    layers = [("self", p, real) for p in out.encoder_attentions]
    for mine, cross in zip(out.decoder_attentions, out.cross_attentions, strict=True):
        theirs = given["decoder_attention_mask"]
        layers += [("self", mine, theirs), ("cross", cross, theirs)]
    return layers


def entropies(pattern: Tensor, real: Tensor) -> Tensor:
    """Mean over the real rows but the first of each sequence, in float64."""
    rows = torch.special.entr(pattern.double()).sum(-1)
    weight = (real.bool() & (real.cumsum(1) > 1))[:, None].double()
    return (rows * weight).sum((0, 2)) / weight.sum((0, 2))


KERNELS = [
    (name, kernel)
    for name in ("gpt2", "llama", "neox", "mistral", "qwen2", "bert", "t5", "bart", "vit", "gemma2", "bloom")
    for kernel in ("eager", "sdpa")
    if kernel == "eager" or name not in ("gemma2", "bloom")
]


@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_patterns_are_those_of_hugging_face(build: Callable[..., Any], name: str, kernel: str) -> None:
    model, given = build(name, kernel), inputs_of(name)
    expected = oracle(name, build(name, "eager"), given)
    with torch.no_grad():
        plain = model(**given)[0]
        with tracer.watch(model, keep=BATCH) as watcher:
            seen = model(**given)[0]
        real = torch.ones(plain.shape[:2]) if name == "vit" else given.get("decoder_attention_mask", MASK)
        real = given["attention_mask"] if name == "bert" else real
        assert (seen - plain)[real.bool()].abs().max() < 2e-5
    found = watcher.read()
    assert found["kind"].values.tolist() == [kind for kind, *_ in expected]
    decoder = {"self": True, "cross": False} if name not in ("bert", "vit") else {"self": False}
    wanted = [decoder[kind] and not (name in ("t5", "bart") and i < 2) for i, (kind, *_) in enumerate(expected)]
    assert found["causal"].values.tolist() == wanted
    for layer, (_, pattern, rows) in enumerate(expected):
        for head in range(pattern.shape[1]):
            for i in range(BATCH):
                got = watcher.pattern(layer, head, sequence=i)
                assert (got - pattern[i, head])[rows[i].bool()].abs().max() < 4e-6
        torch.testing.assert_close(
            torch.from_numpy(found["entropy"].values[layer]).double(), entropies(pattern, rows), atol=2e-6, rtol=0
        )
    n_keys = expected[-1][1].shape[-1]
    assert (entropies(*expected[-1][1:]) < math.log(n_keys) - 0.05).any()  # heads are far from uniform


def test_same_tokens_of_a_decoder_are_its_own(build: Callable[..., Any]) -> None:
    """Encoder and decoder of one length look up in one table: copies are counted in the right tokens."""
    model = build("t5")
    encoder, decoder = torch.arange(2, 9)[None], torch.tensor([[5, 6, 5, 6, 5, 6, 5]])
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(input_ids=encoder, decoder_input_ids=decoder)
    found = watcher.read()
    duplicate = found["duplicate_token"].values
    assert (duplicate[:2] == 0).all() and (duplicate[[2, 4]] > 0).all()
    for name in ("duplicate_token", "induction", "current_token", "previous_token", "attended_distance"):
        assert found[name][[3, 5]].isnull().all() and not found[name][[0, 2]].isnull().any(), name


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("precision", ["bfloat16", "autocast"])
def test_half_precision_is_measured_from_what_enters_the_softmax(
    build: Callable[..., Any], kernel: str, precision: str
) -> None:
    exact, model = build("llama", "eager"), build("llama", kernel)
    if precision == "bfloat16":
        model = model.to(torch.bfloat16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
        plain = model(IDS).logits
        with tracer.watch(model) as watcher:
            seen = model(IDS).logits
    with torch.no_grad():
        true = exact(IDS).logits
    assert seen.dtype == plain.dtype and (seen - true).abs().max() < 1.5 * (plain - true).abs().max()
    assert all(torch.isfinite(torch.from_numpy(watcher.read()["entropy"].values)).flatten())
    expected = torch.stack(
        [entropies(p, torch.ones(BATCH, T)) for _, p, _ in oracle("llama", exact, {"input_ids": IDS})]
    )
    torch.testing.assert_close(
        torch.from_numpy(watcher.read()["entropy"].values).double(), expected, atol=0.05, rtol=0
    )  # fmt: skip


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", ["none", "causal", "padding", "both", "numbers"])
def test_multihead_attention(need_weights: bool, batch_first: bool, masks: str) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=batch_first, dropout=0.5).eval()
    x = torch.randn(BATCH, T, 16) * 3
    padding = MASK == 0 if masks in ("padding", "both") else None
    if padding is not None:
        padding[2, :2] = False  # a causal row that sees nothing is nan in torch
        padding[2, 4:] = True
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    mask = {"causal": future, "both": future, "numbers": torch.randn(T, T)}.get(masks)
    given = x if batch_first else x.transpose(0, 1)
    with torch.no_grad():
        options: dict[str, Any] = {"key_padding_mask": padding, "attn_mask": mask}
        plain, expected = layer(given, given, given, **options, average_attn_weights=False)
        with tracer.watch(layer, keep=BATCH) as watcher:
            seen = layer(given, given, given, **options, need_weights=need_weights)[0]
    assert (seen - plain).abs().max() < 1e-6
    assert watcher.layers[0].causal == (masks in ("causal", "both")) and watcher.layers[0].n_heads == 4
    rows = torch.ones(BATCH, T) if padding is None else (~padding).float()
    found = watcher.read()
    for head in range(4):
        for i in range(BATCH):
            got = watcher.pattern(0, head, sequence=i)
            assert (got - expected[i, head]).abs().max() < 1e-6
    torch.testing.assert_close(
        torch.from_numpy(found["entropy"].values[0]).double(), entropies(expected, rows), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("need_weights", [True, False])
def test_training_with_dropout_is_the_same_to_the_bit(need_weights: bool) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True, dropout=0.5).train()
    x = torch.randn(BATCH, T, 16)

    def step() -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        layer.zero_grad()
        out = layer(x, x, x, need_weights=need_weights)[0]
        out.square().sum().backward()
        return out.detach(), *(p.grad.clone() for p in layer.parameters() if p.grad is not None), torch.rand(3)

    plain = step()
    with tracer.watch(layer) as watcher:
        watched = step()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    with torch.no_grad():
        expected = layer.eval()(x, x, x, average_attn_weights=False)[1]
    assert (watcher.pattern(0, 3) - expected[0, 3]).abs().max() < 1e-6  # without the dropout


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # as unwatched
def test_torch_encoder_and_decoder() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True).eval()
    source, target = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    options: dict[str, Any] = {"tgt_mask": causal, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    with torch.no_grad():
        with torch.enable_grad():
            plain = model(source, target, **options)
        with tracer.watch(model, keep=2) as watcher:
            seen = model(source, target, **options)
    assert (seen - plain).abs().max() < 2e-6
    layers = [(one.name, one.kind, one.causal) for one in watcher.layers]
    assert layers == [
        ("encoder.layers.0.self_attn", "self", False), ("decoder.layers.0.self_attn", "self", True),
        ("decoder.layers.0.multihead_attn", "cross", False),
    ]  # fmt: skip
    found = watcher.read()["entropy"]
    for layer, real in ((0, ~padding), (1, torch.ones(2, 5)), (2, torch.ones(2, 5))):  # the decoder has no padding
        pattern = torch.stack([watcher.pattern(layer, 2, sequence=i) for i in range(2)])
        assert float(found[layer, 2]) == pytest.approx(float(entropies(pattern[:, None], real.float())), abs=1e-6)
    assert (watcher.pattern(2, 0, sequence=1)[:, 3:] == 0).all()


def test_patterns_do_not_outlive_their_layer(build: Callable[..., Any]) -> None:
    """Of a model that makes its own patterns, one is alive at a time."""
    model, alive = build("gpt2", "eager"), []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") == "softmax":
                alive.append((weakref.ref(result), sum(one() is not None for one, _ in alive)))
            return result

    with torch.no_grad(), Watcher(model, keep=1) as watcher, Spy():
        model(IDS)
        gc.collect()
        assert len(alive) == 2 and all(one() is None for one, _ in alive) and alive[1][1] == 0
        assert watcher.interceptor is not None and len(watcher.interceptor._soft) == 0
