"""A Hugging Face model, or every training checkpoint of one, measured and written as the steps of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tracer.data import python_passages
from tracer.huggingface.loading import CannotOpen, from_pretrained, load_hf
from tracer.huggingface.wrapped import WrappedModel
from tracer.measures import gradients
from tracer.store import ROOT, Run, RunWriter, open_run, resolve, unused
from tracer.store.trace import rows_in
from tracer.watching.inputs import Inputs
from tracer.watching.probing import Probing
from tracer.watching.tokens import Words

CHECKPOINT = re.compile(r"(?:checkpoint|step|revision)[-_]?(\d+)")
"""Names of a trainer's checkpoint folders (checkpoint-500) and of published revisions (step1000)."""


def open_hf(
    model: str | Path, run: str | None = None, *, revisions: Sequence[str] | None = None, bos: bool | None = None,
    rows: int = 8, progress: Any = None,
) -> Run:  # fmt: skip
    """Measure a model, or each checkpoint of it, and write that as a run that every page of the dashboard opens.

    What was stopped or killed on the way goes on where it was. Weights that are not finite make the run `diverged`.
    `revisions` are names on the hub (step0, step1000: the number is the step); in a local directory every
    `checkpoint-N` below it is a step. Weights stay where they are: the run remembers the place and reads them again.
    Text measures are over `rows` passages of Python source, the same ones for every model.
    """
    sources = _sources(model, revisions)
    facts = {"kind": "opened", "sources": {str(step): source for step, source in sources.items()}, "source": str(model)}
    directory = resolve(run) if run else ROOT / _name(str(model))
    begun = _begun(directory, facts)
    if begun is None:
        directory = unused(directory)  # not the model's own, if that is here
    elif not rows_in(directory / "trace.zarr"):  # before its first: begin again, in the same place
        begun = None
    first = next(iter(sources.values()))
    foreign = load_hf(first["path"], revision=first["revision"], bos=bos)
    words = Words(foreign.tokenizer)
    words.bos = foreign.bos
    inner, tokens = foreign.model, _text(foreign, rows)
    foreign.release()
    probing = Probing(inner, directory, Inputs.of((tokens,), {"use_cache": False}), words, facts)
    probing.begun = begun
    there = set() if begun is None else set(begun.trace["step"].values.tolist())
    status, ended = "stopped", "diverged" if begun is not None and begun.meta.get("divergence") else "finished"
    try:
        for i, (step, source) in enumerate(sources.items()):
            if step not in there:
                if i:
                    _swap(inner, from_pretrained(source["path"], source["revision"]))
                row = probing.measure(step, with_patterns=True)
                row["weight_norm"] = _norms(probing.params)
                assert probing.writer is not None
                facts = {"step": step}
                if ended == "finished" and (found := probing.not_finite(step)):
                    ended, facts = "diverged", facts | {"divergence": found}
                probing.writer.record(step, row)
                probing.writer.flush()
                probing.writer.status("training", facts)
            if progress is not None:
                progress(i + 1, len(sources), step)
        status = ended
    finally:
        writer = probing.writer or (RunWriter.reopen(begun) if begun is not None else None)
        if writer is not None:
            writer.close(status, step=max(sources))
    return open_run(directory)


def _begun(directory: Path, facts: dict[str, Any]) -> Run | None:
    """The run of just these checkpoints that was killed or stopped before all were measured, to go on with."""
    if not (directory / "run.json").is_file():
        return None
    run = open_run(directory)
    same = all(run.meta.get(name) == value for name, value in facts.items())
    return run if same and run.status in ("interrupted", "stopped") else None


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
    with torch.no_grad():
        return gradients.fetch({"w": gradients.tensor_norms(params)})["w"]


def _text(model: WrappedModel, rows: int) -> Tensor:
    """Passages of Python source as the model reads them; random tokens for a model without a tokenizer."""
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
