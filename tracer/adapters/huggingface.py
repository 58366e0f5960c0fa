"""Hugging Face causal language models: open one, or every training checkpoint of one as the steps of a run.

Nothing is executed and nothing is unpickled: only architectures that the transformers library itself knows
(trust_remote_code stays off), only safetensors.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tracer.adapters.foreign import Foreign
from tracer.adapters.inputs import Inputs
from tracer.adapters.tokens import Words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracer.store import Run

CHECKPOINT = re.compile(r"(?:checkpoint|step|revision)[-_]?(\d+)")
"""Names of a trainer's checkpoint folders (checkpoint-500) and of published revisions (step1000)."""
FAR = 1 << 20
"""A context of a million tokens stands for: as many as fit in memory."""


class CannotOpen(ValueError):
    """A model that is not there, or that cannot be opened as it is; the message says what to do."""


def load_hf(
    model: str | Path | nn.Module, *, tokenizer: Any = None, revision: str | None = None, bos: bool | None = None,
    device: str = "cpu",
) -> Foreign:  # fmt: skip
    """A causal language model from a local directory, from the hub, or in memory, as a model whose heads can be seen.

    A model in memory is put in eval mode and otherwise used as it is, never changed.
    `bos`: whether prompts begin with the start token (default: when the tokenizer has one; plain Hugging Face adds it
    for some architectures only, and what a head does on the first token depends on it).
    Errors: CannotOpen when there is no such model, no network, no safetensors, or code of its own would have to run.
    """
    if isinstance(model, nn.Module):
        made = model.eval()
    else:
        made = _from_pretrained(str(model), revision).to(device).eval()
        tokenizer = tokenizer if tokenizer is not None else _tokenizer(str(model), revision)
    return _foreign(made, tokenizer, bos)


def open_hf(
    model: str | Path, run: str | None = None, *, revisions: Sequence[str] | None = None, bos: bool | None = None,
    rows: int = 8, progress: Any = None,
) -> Run:  # fmt: skip
    """Measure a model, or each checkpoint of it, and write that as a run that every page of the dashboard opens.

    `revisions` are names on the hub (step0, step1000: the number is the step); in a local directory every
    `checkpoint-N` below it is a step. Weights stay where they are: the run remembers the place and reads them again.
    Text measures are over `rows` passages of Python source, the same ones for every model.
    """
    from tracer.adapters.probing import Probing
    from tracer.adapters.recorder import unused
    from tracer.store import ROOT, open_run, resolve

    sources = _sources(model, revisions)
    directory = unused(resolve(run) if run else ROOT / _name(str(model)))  # not the model's own, if that is here
    first = next(iter(sources.values()))
    foreign = load_hf(first["path"], revision=first["revision"], bos=bos)
    words = Words(foreign.tokenizer)
    words.bos = foreign.bos
    inner, tokens = foreign.model, _text(foreign, rows)
    foreign.release()
    facts = {"kind": "opened", "sources": {str(step): source for step, source in sources.items()}, "source": str(model)}
    probing = Probing(inner, directory, Inputs.of((tokens,), {"use_cache": False}), words, facts)
    status = "stopped"
    try:
        for i, (step, source) in enumerate(sources.items()):
            if i:
                _swap(inner, _from_pretrained(source["path"], source["revision"]))
            row = probing.measure(step, with_patterns=True)
            row["weight_norm"] = _norms(probing.params)
            assert probing.writer is not None
            probing.writer.record(step, row)
            probing.writer.flush()
            probing.writer.status("training", {"step": step})
            if progress is not None:
                progress(i + 1, len(sources), step)
        status = "finished"
    finally:
        if probing.writer is not None:
            probing.writer.close(status, step=max(sources))
    return open_run(directory)


def recipe(model: nn.Module) -> dict[str, Any] | None:
    """What rebuilds a causal Hugging Face model around its weights: its config. None for every other model."""
    if not type(model).__module__.startswith("transformers."):
        return None
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    config: Any = getattr(model, "config", None)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or MODEL_FOR_CAUSAL_LM_MAPPING[type(config)] is not type(model):
        return None
    return {**config.to_diff_dict(), "model_type": config.model_type}


def rebuild(meta: dict[str, Any], source: dict[str, Any] | None, weights: dict[str, Tensor] | None) -> Foreign:
    """The model of a run, from where its weights are (`source`) or from those kept in the run."""
    from tracer.store import BrokenSnapshot

    if source is not None:
        made = _from_pretrained(source["path"], source["revision"])
        tokenizer = _tokenizer(source["path"], source["revision"])
    else:
        assert weights is not None
        made, tokenizer = _empty(meta["huggingface"]), None
        missing, unexpected = made.load_state_dict(weights, strict=False)
        made.tie_weights()
        tied = set(made.state_dict()) - {name for name, _ in made.named_parameters()}
        if unexpected or set(missing) - tied:
            raise BrokenSnapshot(
                f"the weights of this step do not fit the model's config: {len(missing)} missing "
                f"({', '.join(missing[:3])}), {len(unexpected)} unknown ({', '.join(unexpected[:3])})"
            )
    foreign = _foreign(made.eval().requires_grad_(False), tokenizer, None)
    foreign.bos = meta.get("bos")
    return foreign


def _foreign(model: nn.Module, tokenizer: Any, bos: bool | None) -> Foreign:
    from tracer.adapters.probing import context

    config: Any = getattr(model, "config", None)
    embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None  # type: ignore[operator]
    d_vocab = getattr(embedding, "num_embeddings", None) or getattr(config, "vocab_size", None)
    if not isinstance(d_vocab, int):
        raise CannotOpen(f"{type(model).__name__} does not say how many tokens it knows: it is no language model")
    words = Words(tokenizer)
    words.check(d_vocab)
    start = words.bos if bos is not False else None
    if bos and start is None:
        raise CannotOpen("bos=True, but this tokenizer has no start token and no end-of-text token to begin with")
    return Foreign(
        model, n_ctx=context(model) or FAR, d_vocab=d_vocab, tokenizer=tokenizer, bos=start, run=_logits,
    )  # fmt: skip


def _logits(model: nn.Module, tokens: Tensor) -> Any:
    return model(input_ids=tokens, use_cache=False)


def _from_pretrained(name: str, revision: str | None) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)
        return AutoModelForCausalLM.from_pretrained(
            name, config=config, revision=revision, trust_remote_code=False, use_safetensors=True,
            dtype=torch.float32, attn_implementation=_kernel(config),
        )  # fmt: skip
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise CannotOpen(_why(name, revision, error)) from error


def _empty(config: dict[str, Any]) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {name: value for name, value in config.items() if name not in ("transformers_version", "model_type")}
    made = AutoConfig.for_model(config["model_type"], **settings)
    with torch.random.fork_rng([]):
        return AutoModelForCausalLM.from_config(made, attn_implementation=_kernel(made), dtype=torch.float32)


def _kernel(config: Any) -> str:
    """sdpa, which takes memory in proportion to the length; by hand where the architecture offers nothing else."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise CannotOpen(
            f"{type(config).__name__} is not a causal language model that transformers knows; for other models use "
            f"tracer.watch(model)"
        )
    return "sdpa" if getattr(MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], "_supports_sdpa", False) else "eager"


def _tokenizer(name: str, revision: str | None) -> Any:
    """The tokenizer beside the model, or None: the model can be looked at with token ids too."""
    from transformers import AutoTokenizer

    try:
        made = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError):
        return None
    # for some architectures transformers makes one up that knows its special tokens and no word
    return None if set(made.get_vocab().values()) <= set(made.all_special_ids) else made


def _why(name: str, revision: str | None, error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    at = f" at revision {revision!r}" if revision else ""
    if Path(name).is_dir():
        if not list(Path(name).glob("*.safetensors*")) and (Path(name) / "config.json").exists():
            return (
                f"{name} has no safetensors file: pickled weights are not opened, since they can run code; where you "
                f"trust it, load it and save it again with save_pretrained"
            )
        return f"{name}{at} is a directory, but not of a causal Hugging Face model that can be opened: {text}"
    if isinstance(error, OSError):
        return (
            f"{name!r}{at} is neither a directory here nor could it be fetched from the Hugging Face hub ({text}); "
            f"without a network give the path of a local directory"
        )
    return f"{name!r}{at} cannot be opened: {text}"


def _sources(model: str | Path, revisions: Sequence[str] | None) -> dict[int, dict[str, Any]]:
    """Where the weights of each step are: {step: {path, revision}}."""
    if revisions:
        if Path(model).is_dir():
            raise CannotOpen(
                f"{model} is a local directory, which has no revisions; its checkpoint-N folders are steps"
            )
        numbered = {_step(one): {"path": str(model), "revision": one} for one in revisions}
        if len(numbered) < len(revisions):
            raise CannotOpen(f"revisions {', '.join(revisions)} are not all of different steps")
        return dict(sorted(numbered.items()))
    folder = Path(model).expanduser()
    if folder.is_dir():
        folder = folder.resolve()
        found = {
            int(m[1]): path for path in folder.iterdir() if path.is_dir() and (m := CHECKPOINT.fullmatch(path.name))
        }
        if found:
            return {step: {"path": str(found[step]), "revision": None} for step in sorted(found)}
        return {0: {"path": str(folder), "revision": None}}
    return {0: {"path": str(model), "revision": None}}


def _step(revision: str) -> int:
    match = re.search(r"(\d+)", revision)
    if match is None:
        raise CannotOpen(f"revision {revision!r} has no number in its name to be its step")
    return int(match[1])


def _name(model: str) -> str:
    """A run's name for a model: the last part of its path."""
    return re.sub(r"[^\w.-]+", "-", model.rstrip("/").rpartition("/")[2]) or "model"


def _swap(model: nn.Module, other: nn.Module) -> None:
    """Another checkpoint's weights, in the model that is being measured."""
    model.load_state_dict(other.state_dict())


def _norms(params: Mapping[str, Tensor]) -> Any:
    from tracer import gradients

    with torch.no_grad():
        return gradients.fetch({"w": gradients.tensor_norms(params)})["w"]


def _text(model: Foreign, rows: int) -> Tensor:
    """Passages of Python source as the model reads them; random tokens for a model without a tokenizer."""
    from tracer.data import python_passages

    n = min(model.n_ctx, 128)
    words = Words(model.tokenizer)
    if words.tokenizer is None:
        return torch.randint(model.d_vocab, (rows, n), generator=torch.Generator().manual_seed(0))
    start = [] if model.bos is None else [model.bos]
    ids: list[list[int]] = []
    for passage in python_passages():
        encoded = [*start, *words.tokenizer.encode(passage, add_special_tokens=False).ids][:n]
        if len(encoded) == n:
            ids.append(encoded)
        if len(ids) == rows:
            break
    if not ids:
        raise CannotOpen("the tokenizer turns Python source into no tokens: it is not the tokenizer of this model")
    return torch.tensor(ids)
