"""Models from disk, from memory and from checkpoints, opened as they are; whatever cannot be, said clearly."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import tracer
from tests.tiers import quick
from tracer import ablate
from tracer.watching.opening import CannotOpen

IDS = torch.randint(2, 50, (2, 9), generator=torch.Generator().manual_seed(0))
CAUSAL = ("gpt2", "llama", "neox", "mistral", "qwen2", "gemma2", "bloom")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, build: Callable[..., Any], tokenizer_of: Any) -> Path:
    """One directory a family, with a tokenizer in each."""
    root = tmp_path_factory.mktemp("models")
    for name in CAUSAL:
        build(name, "eager" if name in ("gemma2", "bloom") else "sdpa").save_pretrained(root / name)
        tokenizer_of(48).save_pretrained(root / name)  # some classes of tokenizers add words of their own
    return root


@pytest.mark.parametrize("name", quick(CAUSAL, ("gpt2", "llama")))
def test_a_directory_opens(saved: Path, here: Path, build: Callable[..., Any], name: str) -> None:
    model = tracer.load_hf(saved / name)
    kernel = "eager" if name in ("gemma2", "bloom") else "sdpa"
    with torch.no_grad():
        expected = build(name, kernel)(IDS).logits
        assert torch.equal(model(IDS), expected)
    assert (model.n_layers, model.n_ctx, model.d_vocab, model.bos) == (2, 64 if name != "bloom" else 1 << 20, 50, 0)
    run = tracer.open_hf(saved / name, name, rows=3)
    assert run.status == "finished" and run.steps == [0] and run.about.kind == "opened" and run.about.bos == 0
    trace = run.trace
    for measure in ("entropy", "induction", "val_loss", "repeat_loss", "weight_norm"):
        assert np.isfinite(trace[measure]).all(), measure
    again = run.model()
    assert torch.equal(again(IDS), expected) and run.tokenizer.get_vocab_size() >= 48
    assert np.isfinite(ablate.sweep(again, IDS)).all()


def test_weights_are_float32_unless_asked_otherwise(here: Path, build: Callable[..., Any]) -> None:
    build("llama").to(torch.bfloat16).save_pretrained(here / "coarse")
    cases: Any = ((None, torch.float32), ("auto", torch.bfloat16), (torch.float64, torch.float64))
    for asked, found in cases:
        model = tracer.load_hf(here / "coarse", dtype=asked)
        assert {weight.dtype for weight in model.parameters()} == {found}
        assert torch.isfinite(model(IDS)).all() and np.isfinite(ablate.sweep(model, IDS, layers=[1])).all()
    with pytest.raises(CannotOpen, match=r"a model in memory keeps its own"):
        tracer.load_hf(build("llama"), dtype=torch.float64)


def test_weights_may_stay_on_disk(saved: Path, here: Path, build: Callable[..., Any]) -> None:
    """A `device_map` of Accelerate, which brings a block's weights as it runs."""
    places = {"model": "disk", "lm_head": "cpu"}
    theirs: Any = transformers.LlamaForCausalLM.from_pretrained(
        saved / "llama", device_map=places, offload_folder=here / "offload", dtype=torch.float32
    )
    assert theirs.model.layers[0].mlp.down_proj.weight.is_meta
    model, whole = tracer.load_hf(theirs), tracer.load_hf(saved / "llama")
    assert torch.equal(model(IDS), whole(IDS))
    np.testing.assert_allclose(ablate.sweep(model, IDS), ablate.sweep(whole, IDS), atol=1e-6)
    with pytest.raises(ValueError, match="are offloaded .* this question reads weights"):
        tracer.logit_attribution(model, IDS)
    np.testing.assert_allclose(
        tracer.survey(model, IDS, tokens=18).entropy, tracer.survey(whole, IDS, tokens=18).entropy
    )


def test_checkpoints_are_steps(saved: Path, here: Path, build: Callable[..., Any]) -> None:
    """Numbered as their folders, in order of their numbers; each with its own weights, in the trace as in the model."""
    logits, entropies = {}, {}
    for step in (100, 20, 3):
        model = build("gpt2").requires_grad_(False)
        for weight in model.parameters():
            weight.mul_(1 + 1 / step)
        model.save_pretrained(here / "suite" / f"checkpoint-{step}")
        logits[step] = model(IDS).logits
    run = tracer.open_hf("suite")
    assert tracer.open_hf("suite").name == "suite-2" and run.dir == Path("checkpoints/suite")
    assert run.name == "suite" and run.steps == [3, 20, 100] == run.trace["step"].values.tolist()
    for step in run.steps:
        again = run.model(step)
        assert torch.equal(again(IDS), logits[step])
        ids = torch.from_numpy(run.trace["prompt_tokens"].values[:2].astype(np.int64))
        with torch.no_grad(), tracer.watch(again.model, keep=2) as watcher:  # pyrefly: ignore[missing-attribute]
            again.model(ids)  # pyrefly: ignore[missing-attribute]
        entropies[step] = run.trace["pattern"].sel(step=step)[1, 1, 3].values
        np.testing.assert_allclose(entropies[step], watcher.pattern(1, 3, sequence=1), atol=1e-3)
    assert not np.allclose(entropies[3], entropies[100], atol=1e-2)
    with pytest.raises(ValueError, match="no snapshot of step 21; the nearest is 20"):
        run.model(21)


def test_a_model_in_memory_stays_as_it_is(tmp_path: Path, build: Callable[..., Any]) -> None:
    inner = build("llama")
    before = {name: value.clone() for name, value in inner.state_dict().items()}
    model = tracer.load_hf(inner)
    assert model.bos is None and model.tokenizer is None
    ablate.sweep(model, IDS)
    assert list(inner.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in inner.state_dict().items())
    inner.save_pretrained(tmp_path / "again")
    assert torch.equal(tracer.load_hf(tmp_path / "again")(IDS), inner(IDS).logits)


def test_the_start_token_is_a_choice(saved: Path) -> None:
    assert tracer.load_hf(saved / "neox", bos=False).bos is None and tracer.load_hf(saved / "neox", bos=True).bos == 0


def _pickled(folder: Path, model: Any) -> None:
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def _own_code(folder: Path, model: Any) -> None:
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text("raise SystemExit('their code ran')")


BROKEN: dict[str, tuple[Callable[[Path, Any], Any], str]] = {
    "pickle": (_pickled, "has no safetensors file"),
    "own code": (_own_code, "cannot be opened|that can be opened"),
    "empty": (lambda folder, model: None, "is a directory, but not of a causal Hugging Face model"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_directories_that_are_refused(tmp_path: Path, build: Callable[..., Any], what: str) -> None:
    make, says = BROKEN[what]
    make(tmp_path, build("gpt2"))
    with pytest.raises(CannotOpen, match=says):
        tracer.load_hf(tmp_path)


def test_what_is_no_causal_language_model_is_refused(tmp_path: Path, build: Callable[..., Any]) -> None:
    for name in ("t5", "vit"):
        build(name).save_pretrained(tmp_path / name)
        with pytest.raises(CannotOpen, match=r"is not a causal language model.*tracer.watch\(model\)"):
            tracer.load_hf(tmp_path / name)


def test_words_that_do_not_fit_are_refused(saved: Path, build: Callable[..., Any], tokenizer_of: Any) -> None:
    for ask, says in (
        (lambda: tracer.load_hf("nobody/nothing"), r"neither a directory here nor .* without a network give the path"),
        (lambda: tracer.load_hf(build("gpt2"), tokenizer=tokenizer_of(51)), "51 tokens and the model's embedding 50"),
        (lambda: tracer.load_hf(build("gpt2"), bos=True), "bos=True, but this tokenizer has no start token"),
        (lambda: tracer.open_hf(saved / "gpt2", revisions=["step1"]), "a local directory, which has no revisions"),
        (lambda: tracer.open_hf("nobody/nothing", revisions=["step1", "v1"]), "are not all of different steps"),
        (lambda: tracer.open_hf("nobody/nothing", revisions=["main"]), "'main' has no number"),
    ):
        with pytest.raises(ValueError, match=says):
            ask()
