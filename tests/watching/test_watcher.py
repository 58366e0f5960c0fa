"""Watching is measuring and nothing else: what is read is right, and the model is afterwards what it was."""

import copy
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tracer
from tracer.ablate import derangement
from tracer.hooks.refusals import CannotWatch
from tracer.watching.watcher import MEASURED, Watcher

IDS = torch.randint(2, 20, (3, 9), generator=torch.Generator().manual_seed(0))

RUN_ONLY: Any = {"every": 3}


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("compiled", ["no", "compile(model)", "model.compile()"])
def test_the_model_is_afterwards_what_it_was(gpt: Callable[..., Any], compiled: str) -> None:
    model = gpt().eval()
    whole: Any = torch.compile(model, backend="eager") if compiled == "compile(model)" else model
    if compiled == "model.compile()":
        model.compile(backend="eager")
    before, parts = copy.deepcopy(model.state_dict()), list(model.modules())
    with torch.no_grad():
        plain = whole(IDS)[0]
        torch.manual_seed(5)
        with tracer.watch(whole) as watcher:
            seen = whole(IDS)[0]
        drawn = torch.rand(4)
        torch.manual_seed(5)
        assert torch.equal(drawn, torch.rand(4)) and (seen - plain).abs().max() < 2e-6
        assert torch.equal(whole(IDS)[0], plain)
    assert watcher.read()["entropy"].shape == (2, 4)
    assert hooks(model) == 0 and list(model.modules()) == parts and not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("flash", [True, False])
def test_with_gradients_nothing_changes_to_the_bit(gpt: Callable[..., Any], flash: bool) -> None:
    model = gpt(flash).train()

    def step() -> list[torch.Tensor]:
        torch.manual_seed(2)
        model.zero_grad()
        logits, loss = model(IDS, IDS)
        loss.backward()
        return [logits.detach(), *(p.grad.clone() for p in model.parameters()), torch.rand(2)]

    plain = step()
    with tracer.watch(model):
        watched = step()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


def test_measures_have_names_and_places(gpt: Callable[..., Any]) -> None:
    fast, slow = gpt().eval(), gpt(flash=False).eval()
    found = []
    for model in (fast, slow):
        with torch.no_grad(), tracer.watch(model, keep=2) as watcher:
            model(IDS[:1])
            model(IDS)  # the last pass counts
        found.append(watcher.read())
        assert watcher.n_kept == 2 and torch.equal(watcher.tokens, IDS) and watcher.d_vocab == 20  # pyrefly: ignore[bad-argument-type]
        assert (watcher.pattern(1, 2, slice(3, 6), slice(0, 4)) - watcher.pattern(1, 2)[3:6, :4]).abs().max() < 1e-6
    assert set(found[0].data_vars) == set(MEASURED)
    assert found[0]["module"].values.tolist() == ["h.0.attn", "h.1.attn"] and found[0]["causal"].all()
    for name in MEASURED:
        assert float(abs(found[0][name] - found[1][name]).max()) < 2e-6, name


def test_ablation_by_every_mode(gpt: Callable[..., Any]) -> None:
    """Beside the same model with z replaced by hand in front of its output map, while it computes."""
    model = gpt(flash=False).eval()
    reference = IDS.flip(0)
    z: list[torch.Tensor] = []
    with torch.no_grad():
        handle = model.h[1].attn.c_proj.register_forward_pre_hook(lambda _, args: z.append(args[0]))
        model(reference)
        handle.remove()
        instead = {"zero": torch.zeros(9, 6), "mean": z[0][..., 6:12].mean(0),
                   "resample": z[0][derangement(3, seed=4)][..., 6:12]}  # fmt: skip
        watcher = tracer.watch(model)
        with watcher:
            model(IDS)
        for mode, value in instead.items():

            def swap(_: Any, args: tuple[torch.Tensor, ...], value: torch.Tensor = value) -> torch.Tensor:
                mixed = args[0].clone()
                mixed[..., 6:12] = value
                return mixed

            handle = model.h[1].attn.c_proj.register_forward_pre_hook(swap)
            expected = model(IDS)[0]
            handle.remove()
            with watcher.ablate({(1, 1)}, mode, reference=lambda: model(reference), draw=4):
                off = model(IDS)[0]
            assert (off - expected).abs().max() < 2e-6 < 1e-3 < (off - model(IDS)[0]).abs().max(), mode
    assert hooks(model) == 0


def test_a_mean_over_the_input_itself_leaves_each_sequence_out(gpt: Callable[..., Any]) -> None:
    """The oracle swaps what enters W_O, in float64; the plain mean, which holds the sequence, is another number."""
    model = gpt(flash=False).eval().double()
    ids = torch.cat([IDS, IDS.flip(1), IDS.roll(1, 1)])
    watcher, entered = tracer.watch(model), []
    with torch.no_grad():
        with watcher:
            model(ids)
        proj = model.h[1].attn.c_proj
        handle = proj.register_forward_pre_hook(lambda _, args: entered.append(args[0].clone()))
        model(ids)
        handle.remove()
        mixed = entered[0]
        assert mixed.dtype == torch.float64
        others = [torch.cat([mixed[:row], mixed[row + 1 :]]).mean(0) for row in range(len(ids))]
        mixed[..., 6:12] = torch.stack(others)[..., 6:12]
        handle = proj.register_forward_pre_hook(lambda _, args: (mixed,))
        expected = model(ids)[0]
        handle.remove()
        with watcher.ablate({(1, 1)}, "mean", reference=lambda: model(ids), same=True):
            off = model(ids)[0]
        with watcher.ablate({(1, 1)}, "mean", reference=lambda: model(ids)):
            whole = model(ids)[0]
    assert (off - expected).abs().max() < 1e-12 < 1e-4 < (whole - expected).abs().max()


def short(watcher: Watcher, model: Any, mode: Any) -> None:
    """Replacements from sequences of 3 tokens, for one of 9."""
    with torch.no_grad(), watcher.ablate({(0, 1)}, mode, reference=lambda: model(IDS[:2, :3])):
        model(IDS[:1])


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda w, m: w.pattern(2, 0), ValueError, "L2H0 does not exist: this model has layers 0 to 1"),
        (lambda w, m: w.pattern(1, 4), ValueError, "layer 1 has heads 0 to 3"),
        (lambda w, m: w.pattern(1, 0, sequence=-1), ValueError, "no sequence -1: they are counted from 0 on"),
        (lambda w, m: w.pattern(1, 0, sequence=1), ValueError, r"watch\(model, keep=2\)"),
        (lambda w, m: w.pattern(1, 0, sequence=3), ValueError, "no sequence 3: the last forward pass had 3, from 0"),
        (
            lambda w, m: w.ablate({(0, 1)}, "mean", reference=lambda: None).__enter__(),
            ValueError,
            "reference= did not run this GPT",
        ),
        (lambda w, m: w.ablate({(0, 7)}).__enter__(), ValueError, "layer 0 has heads 0 to 3"),
        (lambda w, m: w.ablate(set()).__enter__(), ValueError, "name at least one"),
        (lambda w, m: w.ablate({(0, 1)}, "mean").__enter__(), ValueError, "needs reference="),
        (lambda w, m: w.ablate({(0, 1)}, same=True).__enter__(), ValueError, "only for mode='mean', not 'zero'"),
        (
            lambda w, m: w.ablate({(0, 1)}, "mean", reference=lambda: m(IDS[:1]), same=True).__enter__(),
            ValueError,
            "here is only one",
        ),
        (
            lambda w, m: w.ablate({(0, 1)}, "nought").__enter__(),
            ValueError,
            "no ablation mode 'nought'; there are: zero",
        ),
        (lambda w, m: short(w, m, "mean"), ValueError, "1 sequences of 3 positions .* the input 1 of 9"),
        (lambda w, m: short(w, m, "resample"), ValueError, "2 sequences of 3 positions .* the input 1 of 9"),
        (lambda w, m: tracer.watch(m).read(), CannotWatch, "Did a forward pass run inside the watch"),
        (lambda w, m: tracer.watch(m).ablate({(0, 1)}).__enter__(), CannotWatch, "run the model once"),
        (lambda w, m: tracer.watch(m, **RUN_ONLY), TypeError, "every: only with run="),
    ],
)
def test_mistakes_are_answered(gpt: Callable[..., Any], ask: Any, error: type[Exception], says: str) -> None:
    model = gpt(flash=False).eval()
    with torch.no_grad(), tracer.watch(model, keep=4 if "no sequence" in says else 1) as watcher:
        model(IDS)
    with pytest.raises(error, match=says):
        ask(watcher, model)
    assert hooks(model) == 0


def test_patterns_too_large_to_keep_are_refused(gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracer.watching.watcher.KEPT_BYTES", 4 * 9 * 9 * 4 - 1)
    for flash in (False, True):  # of q and k, any size is kept
        model = gpt(flash).eval()
        with torch.no_grad(), tracer.watch(model) as watcher:
            model(IDS)
        assert watcher.read()["entropy"].notnull().all()
        if flash:
            assert watcher.pattern(0, 0).shape == (9, 9)
        else:
            with pytest.raises(CannotWatch, match="use F.scaled_dot_product_attention"):
                watcher.pattern(0, 0)


def test_what_is_not_finite_is_told_by_its_layer(gpt: Callable[..., Any]) -> None:
    model = gpt().eval()
    with torch.no_grad(), tracer.watch(model) as watcher:
        model.h[1].attn.c_attn.weight[0, 0] = float("nan")
        model(IDS)
    with pytest.warns(UserWarning, match=r"first seen in layer 1, h\.1\.attn"):
        found = watcher.read()
    assert found["entropy"][0].notnull().all() and found["entropy"][1, 0].isnull()


def test_a_kernel_that_hides_is_named(build: Callable[..., Any]) -> None:
    """An attention of another package is a call that nothing can look into."""
    model = build("llama")
    with torch.no_grad(), tracer.watch(model) as watcher:
        model.model.embed_tokens(IDS)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(CannotWatch, match="attn_implementation='sdpa'"):
        watcher.read()


def test_another_thread_passes_by(gpt: Callable[..., Any]) -> None:
    """It neither is measured nor breaks, though it began before the watch and ends inside or after it."""
    model = gpt().eval()
    inside, go = threading.Event(), threading.Event()
    gate = model.h[0].ln_1.register_forward_hook(lambda *_: (inside.set(), go.wait(300), None)[-1] if other() else None)
    result: list[Any] = []

    def other() -> bool:
        return threading.current_thread() is thread

    def run() -> None:
        try:
            with torch.no_grad():
                result.append(model(IDS.flip(1))[0])
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    inside.wait(300)
    with torch.no_grad(), tracer.watch(model) as watcher:
        plain = model(IDS)
        go.set()
        thread.join()
    gate.remove()
    with torch.no_grad():
        torch.testing.assert_close(result[0], model(IDS.flip(1))[0])  # sums of a thread of its own may be other ones
    assert torch.equal(watcher.tokens, IDS) and plain[0].shape == (3, 9, 20)  # pyrefly: ignore[bad-argument-type]


def test_two_threads_watch_one_model(gpt: Callable[..., Any]) -> None:
    """A pass of the other begins and ends between two layers of the first."""
    model, first = gpt().eval(), threading.get_ident()
    found, inside, go = {}, threading.Event(), threading.Event()

    def look(name: str, ids: torch.Tensor) -> None:
        with torch.no_grad(), tracer.watch(model) as watcher:
            model(ids)
        found[name] = watcher.read()

    def pause(*_: Any) -> None:
        if threading.get_ident() == first and not go.is_set():
            inside.set()
            go.wait(300)

    def other() -> None:
        inside.wait(300)
        try:
            look("other", IDS[:2, :5])
        finally:
            go.set()

    thread = threading.Thread(target=other)
    thread.start()
    gate = model.h[0].register_forward_hook(pause)
    look("beside", IDS)
    thread.join()
    gate.remove()
    look("alone", IDS)
    for name in MEASURED:
        assert float(abs(found["beside"][name] - found["alone"][name]).max()) < 1e-6, name
    assert found["beside"]["duplicate_token"].notnull().all() and found["other"]["entropy"].notnull().all()


def test_a_copy_that_is_made_inside_is_not_watched(gpt: Callable[..., Any]) -> None:
    """An average of the weights, say: it can be saved, and its passes are nobody's."""
    model = gpt().eval()
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(IDS)
        twin = copy.deepcopy(model)
        twin(IDS[:1, :4])
        torch.save(twin, io.BytesIO())
    assert torch.equal(watcher.tokens, IDS)  # pyrefly: ignore[bad-argument-type]


def test_layers_with_the_same_mask_keep_it_once(build: Callable[..., Any]) -> None:
    model, mask = build("llama", num_hidden_layers=4), torch.ones_like(IDS)
    mask[0, :3] = 0
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(input_ids=IDS, attention_mask=mask)
        model(input_ids=IDS, attention_mask=mask)
    masks = [call.mask for calls in watcher._calls.values() for call in calls]
    assert len(masks) == 4 and masks[0] is not None and all(one is masks[0] for one in masks)
    assert (watcher.pattern(3, 0)[4:, :3] == 0).all()


def test_a_part_of_the_model_may_be_called_again_and_again() -> None:
    """Each call is a forward pass of its own; running something without attention afterwards forgets nothing."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(bos_token_id=0, eos_token_id=0, vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=4)
    ).eval()
    ids = torch.randint(40, (2, 12))
    with torch.no_grad(), tracer.watch(model) as watcher:
        first = model.transformer(ids)
        once = watcher.read()
        model.transformer(ids[:1])
        model.lm_head(first[0])
    twice = watcher.read()
    assert twice.entropy.shape == once.entropy.shape == (2, 4)
    assert watcher.pattern(1, 3).shape == (12, 12)
    with torch.no_grad(), tracer.watch(model) as alone:
        model(ids[:1])
    assert torch.equal(torch.tensor(twice.entropy.values), torch.tensor(alone.read().entropy.values))


def test_two_models_are_two_models(gpt: Callable[..., Any]) -> None:
    """A teacher and a student watched side by side: each measures and switches off its own heads only."""
    teacher, student = gpt(seed=1).eval(), gpt(seed=2, flash=False).eval()
    alone = []
    for model in (teacher, student):
        with torch.no_grad(), tracer.watch(model) as watcher:
            model(IDS)
        alone.append(watcher.read())
        with torch.no_grad(), watcher.ablate({(0, 1)}):
            alone.append(model(IDS)[0])
    with torch.no_grad(), tracer.watch(teacher) as one, tracer.watch(student) as other:
        teacher(IDS)
        plain = student(IDS)[0]
        for watcher, expected in ((one, alone[0]), (other, alone[2])):
            for name in MEASURED:
                assert float(abs(watcher.read()[name] - expected[name]).max()) < 1e-6, name
        with one.ablate({(0, 1)}):
            assert (teacher(IDS)[0] - alone[1]).abs().max() < 1e-5
            assert torch.equal(student(IDS)[0], plain)
            with other.ablate({(0, 1)}):
                assert (student(IDS)[0] - alone[3]).abs().max() < 1e-5
    assert (alone[3] - plain).abs().max() > 1e-3
