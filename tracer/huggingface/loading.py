"""Causal language models of others: from a directory, from the hub, in memory, or from the weights that a run keeps.

Nothing that lies in a file is executed and nothing is unpickled: only architectures that the transformers library
itself knows (trust_remote_code stays off), only safetensors; other code runs where a person names it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tracer.data.any_tokenizer import Words
from tracer.files.disk import MOST_TOKENIZER, BrokenSnapshot, regular
from tracer.files.sealed import shapes, weight_files
from tracer.hooks.inputs import context, logits_of
from tracer.huggingface.architectures import Layout, layout_of
from tracer.huggingface.building import Build, built
from tracer.huggingface.wrapped import WrappedModel, alone
from tracer.named_code import kind_of

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MOST_LAYERS = 1000
FAR = 1 << 20
"""A context of a million tokens stands for: as many as fit in memory."""


class CannotOpen(ValueError):
    """A model that is not there, or that cannot be opened as it is; the message says what to do."""


def load_hf(
    model: str | Path | nn.Module, *, tokenizer: Any = None, revision: str | None = None, bos: bool | None = None,
    device: str = "cpu", dtype: torch.dtype | Literal["auto"] | None = None,
    layout: Layout | str | Path | None = None, n_ctx: int | None = None,
) -> WrappedModel:  # fmt: skip
    """A causal language model from a local directory, from the hub, or in memory, as a model whose heads can be seen.

    A model in memory is put in eval mode and otherwise used as it is, never changed. It need not be of Hugging Face:
    any module does that takes token ids and gives logits, nanoGPT's too, which gives all of them only with targets.
    `bos`: whether prompts begin with the start token (default: when the tokenizer has one; plain Hugging Face adds it
    for some architectures only, and what a head does on the first token depends on it).
    `dtype`: of the weights, "auto" for the one that the checkpoint has. Default: float32 whatever that is, because sums
    are proved to 1e-4 there and only to a few percent in bfloat16, which a CPU without AVX-512 emulates, at half the
    speed; it takes twice the memory of a bfloat16 checkpoint. A model in memory keeps its own.
    `layout`: where a model of no known family keeps what writes to its stream (`tracer.Layout`, or a YAML or JSON file
    of its fields): Circuits, logit attribution, logit lens and `tracer.why` then work. Refused where the model lacks a
    module that it names, or its parts do not add up to the stream. `n_ctx`: tokens that a model takes which does not
    say so itself.
    Errors: CannotOpen when there is no such model, no network, no safetensors, or code of its own would have to run.
    """
    if isinstance(model, nn.Module):
        if dtype is not None:
            raise CannotOpen(
                f"dtype={dtype} is of weights that are read: a model in memory keeps its own, or model.to(dtype)"
            )
        made = model.eval()
    else:
        made = from_pretrained(str(model), revision, torch.float32 if dtype is None else dtype).to(device).eval()
        tokenizer = tokenizer if tokenizer is not None else _tokenizer(str(model), revision)
    seen = _foreign(made, tokenizer, bos, n_ctx, layout_of(layout))
    if layout is not None:
        try:
            seen.check_layout()
        except BaseException:
            seen.release()
            raise
    return seen


def rebuild(
    meta: dict[str, Any], source: dict[str, Any] | None, weights: dict[str, Tensor] | None, build: Build | None = None,
    layout: Layout | None = None,
) -> WrappedModel:  # fmt: skip
    """The model of a run, from where its weights are (`source`) or from those kept in the run.

    `build`: what makes a model of others, around which the weights are put. `layout`: of its residual stream; where it
    is wrong, `why_no_stream` says so.
    """
    if source is not None:
        path = here(source["path"], source["revision"])
        made, tokenizer = from_pretrained(path, None), _tokenizer(path, None)
    else:
        assert weights is not None
        made: Any = None
        tokenizer = None
        if build is not None:
            made = built(build, meta.get("built_with"))
            _refuse_others(made, weights)
        try:
            made = _empty(meta["huggingface"], {name: x.shape for name, x in weights.items()}) if made is None else made
            missing, unexpected = made.load_state_dict(weights, strict=False)
            if hasattr(made, "tie_weights"):
                made.tie_weights()
        except CannotOpen:
            raise
        except Exception as error:  # a stranger's config: transformers raises whatever it runs into
            raise BrokenSnapshot(f"no model can be made of the run's config: {first_line(error)}") from error
        tied = set(made.state_dict()) - {name for name, _ in made.named_parameters()}
        missing = [name for name in missing if name not in tied]
        if unexpected or missing:
            raise BrokenSnapshot(
                f"the weights of this step do not fit the model: {len(missing)} missing "
                f"({', '.join(missing[:3])}), {len(unexpected)} unknown ({', '.join(unexpected[:3])})"
            )
    foreign = _foreign(made.eval().requires_grad_(False), tokenizer, None, meta.get("n_ctx"), layout)
    foreign.bos = meta.get("bos")
    return foreign


def _refuse_others(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """BrokenSnapshot where a tensor of the run has another shape in this model."""
    there = model.state_dict()
    if other := [name for name, x in weights.items() if name in there and there[name].shape != x.shape]:
        name = other[0]
        raise BrokenSnapshot(
            f"the weights of this step are those of another model: {len(other)} differ in shape, the first is {name}: "
            f"{list(weights[name].shape)} in the run, {list(there[name].shape)} in the model"
        )


def here(name: str, revision: str | None) -> str:
    """A directory, or where on this machine that model of the hub was downloaded to: run.json may be a stranger's word,
    so it never makes this machine ask the network."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if Path(name).is_dir():
        return name
    try:
        config = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:  # a path that is not there
        config = None
    if not isinstance(config, str):
        at = f" --revisions {revision}" if revision else ""
        raise CannotOpen(
            f"the weights of this step are those of {name!r}, which is not on this machine, and a run is never a "
            f"reason to download: `tracer open {name}{at}` does, where you trust it"
        )
    return str(Path(config).parent)


def _foreign(
    model: nn.Module, tokenizer: Any, bos: bool | None, n_ctx: int | None = None, layout: Layout | None = None
) -> WrappedModel:
    """`n_ctx`: taken where the model doesn't say its own."""
    config: Any = getattr(model, "config", None)
    embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None  # pyrefly: ignore[not-callable]
    d_vocab = getattr(embedding, "num_embeddings", None) or getattr(config, "vocab_size", None)
    run = _logits
    if _takes_ids_alone(model):
        run, seen = _how(model)
        d_vocab = d_vocab or seen
    if not isinstance(d_vocab, int):
        raise CannotOpen(f"{type(model).__name__} does not say how many tokens it knows: it is no language model")
    words = Words(tokenizer)
    words.check(d_vocab)
    start = words.bos if bos is not False else None
    if bos and start is None:
        raise CannotOpen("bos=True, but this tokenizer has no start token and no end-of-text token to begin with")
    return WrappedModel(
        model, n_ctx=context(model) or n_ctx or FAR, d_vocab=d_vocab, tokenizer=tokenizer, bos=start, run=run,
        layout=layout,
    )  # fmt: skip


def _logits(model: nn.Module, tokens: Tensor) -> Any:
    return model(input_ids=tokens, use_cache=False)


def _takes_ids_alone(model: nn.Module) -> bool:
    """Not in the way of `transformers`, whose models are called with input_ids=."""
    taken = inspect.signature(model.forward).parameters.values()
    return not any(one.name == "input_ids" or one.kind is inspect.Parameter.VAR_KEYWORD for one in taken)


def _with_targets(model: nn.Module, tokens: Tensor) -> Any:
    return model(tokens, tokens)


@torch.no_grad()
def _how(model: nn.Module) -> tuple[Callable[[nn.Module, Tensor], Any], int]:
    """The way to call it that gives logits of every token, and of how many tokens they are."""
    like = next(model.parameters(), torch.empty(0))
    tokens = torch.zeros(1, 2, dtype=torch.int64, device=like.device)
    trouble = ""
    for way in (alone, _with_targets):
        try:
            logits = logits_of(way(model, tokens), tokens)
        except Exception as error:  # somebody's code, called in a way that it may not be made for
            trouble = trouble or f": {type(error).__name__}: {first_line(error)}"
            continue
        if logits is not None:
            return way, logits.shape[-1]
    raise CannotOpen(
        f"{type(model).__name__} gives no logits [batch pos d_vocab] for token ids [batch pos], alone or with targets"
        f"{trouble}. For other models use tracer.watch(model)"
    )


def from_pretrained(name: str, revision: str | None, dtype: torch.dtype | Literal["auto"] = torch.float32) -> Any:
    """The model in its most economical kernel; CannotOpen says what is in the way."""
    from transformers import AutoConfig, AutoModelForCausalLM

    load: Any = AutoModelForCausalLM.from_pretrained
    try:
        config = AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)
        _refuse_pickles(name, revision, config)
        made, told = load(
            name, config=config, revision=revision, trust_remote_code=False, use_safetensors=True,
            dtype=dtype, attn_implementation=_kernel(config), output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told, and refused below
        )  # fmt: skip
    except CannotOpen:
        raise
    except Exception as error:  # a stranger's config and weights: transformers raises whatever they run into
        raise CannotOpen(_why(name, revision, error)) from error
    if differ := _differences(told):
        raise CannotOpen(
            f"the weights in {name}{_at(revision)} are not those of {kind_of(made)} of its config: {differ}"
        )
    return made


def _differences(told: dict[str, Any]) -> str:
    """In words, tensors that the weights lack, hold besides, or hold in another shape; empty where all fit."""
    found = {
        "missing": sorted(told["missing_keys"]),
        "unknown": sorted(name for name in told["unexpected_keys"] if name.rpartition(".")[2] not in BUFFERS),
        "of another shape": sorted(name for name, *_ in told["mismatched_keys"]),
    }
    return "; ".join(f"{len(names)} {how} ({', '.join(names[:3])})" for how, names in found.items() if names)


BUFFERS = ("inv_freq", "masked_bias")
"""Ends of names of what older checkpoints hold besides weights: tables that are computed."""


def _refuse_pickles(name: str, revision: str | None, config: Any) -> None:
    """CannotOpen unless what would be read is safetensors, by its name and, in a directory, by its content."""
    from transformers.utils.hub import cached_file

    if getattr(config, "transformers_weights", None):
        raise CannotOpen(f"the config.json of {name} names a weight file of its own, which is not opened")
    single, index = Path(name) / WEIGHTS, Path(name) / INDEX
    try:
        if not Path(name).is_dir():
            quiet = {f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors")}
            found = cached_file(name, INDEX, revision=revision, **quiet)
            _ = weight_files(Path(found)) if found is not None else None
        elif single.exists() or index.exists():  # what else is there is not opened
            files = [single] if single.exists() else weight_files(index)
            _refuse_larger(config, {key: shape for path in files for key, shape in shapes(path, None).items()})
    except (OSError, ValueError) as error:
        raise CannotOpen(str(error)) from error


def _refuse_larger(config: Any, kept: Mapping[str, Sequence[int]]) -> None:
    """CannotOpen when a model of this config holds more numbers than its weights: before memory is taken for it."""
    from transformers import AutoModelForCausalLM

    n_layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if not isinstance(n_layers, int) or n_layers > MOST_LAYERS:
        raise CannotOpen(f"num_hidden_layers={n_layers!r:.40} is more than {MOST_LAYERS}")
    kernel = _kernel(config)
    with torch.device("meta"), torch.random.fork_rng([]):
        made = AutoModelForCausalLM.from_config(config, attn_implementation=kernel)
    wanted, numbers = sum(p.numel() for p in made.parameters()), sum(map(math.prod, kept.values()))
    if wanted > numbers:
        names = [name for name, p in made.named_parameters() if tuple(kept.get(name, ())) != tuple(p.shape)]
        raise CannotOpen(
            f"{kind_of(made)} of its config holds {wanted:,} numbers and its weights only {numbers:,}: "
            f"{len(names)} tensors are missing or of another shape ({', '.join(names[:3])})"
        )


def _empty(config: dict[str, Any], kept: Mapping[str, Sequence[int]]) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {name: value for name, value in config.items() if name not in ("transformers_version", "model_type")}
    made = AutoConfig.for_model(config["model_type"], **settings)
    _refuse_larger(made, kept)
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

    own = Path(name) / "tokenizer.json"
    try:
        if own.exists():
            regular(own, None, MOST_TOKENIZER)
        made: Any = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
    except BaseException as error:  # tokenizers panics, which is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        if own.exists():
            raise CannotOpen(
                f"{own} cannot be read ({first_line(error)}); without that file the model opens with token ids only"
            ) from error
        return None
    # for some architectures transformers makes one up that knows its special tokens and no word
    return None if set(made.get_vocab().values()) <= set(made.all_special_ids) else made


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _at(revision: str | None) -> str:
    return f" at revision {revision!r}" if revision else ""


def _why(name: str, revision: str | None, error: Exception) -> str:
    text, at = first_line(error), _at(revision)
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
