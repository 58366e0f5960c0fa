"""A Hugging Face model, or every training checkpoint of one, measured and written as the steps of a run."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tracer.data import python_passages
from tracer.data.any_tokenizer import Words
from tracer.data.tokenizer import ids_of
from tracer.hooks.inputs import Inputs
from tracer.huggingface.architectures import Layout, layout_of, plain_values
from tracer.huggingface.loading import CannotOpen, first_line, from_pretrained, load_hf
from tracer.huggingface.wrapped import WrappedModel
from tracer.measures import gradients
from tracer.store import ROOT, Run, RunWriter, open_run, resolve, unused
from tracer.store.trace import rows_in
from tracer.watching.hub_cache import passing
from tracer.watching.probing import Probing

CHECKPOINT = re.compile(r"(?:checkpoint|step|revision)[-_]?(\d+)")
"""Names of a trainer's checkpoint folders (checkpoint-500) and of published revisions (step1000)."""

UNLISTED = re.compile(r"[0-9a-f]{40}|refs/.*")
"""Revisions that are neither branches nor tags: commits, and what others propose."""


def open_hf(
    model: str | Path, run: str | None = None, *, revisions: Sequence[str] | None = None, bos: bool | None = None,
    rows: int = 8, keep_weights: bool = True, progress: Any = None,
    layout: Layout | str | Path | None = None,
) -> Run:  # fmt: skip
    """Measure a model, or each checkpoint of it, and write that as a run that every page of the dashboard opens.

    What was stopped or killed on the way goes on where it was. Weights that are not finite make the run `diverged`.
    `revisions` are names on the hub (step0, step1000: the number is the step), or `all` branches called stepN, or those
    of `step1000:step5000`; in a local directory every `checkpoint-N` below it is a step. Weights stay where they are:
    the run remembers the place and reads them again. They are fetched one revision at a time; with `keep_weights=False`
    those that this call downloaded are removed from the cache once they are in memory, so it never holds more than one
    revision of them, and no page that needs weights works.
    `layout`: where a model of no known architecture keeps what writes to its residual stream (`tracer.Layout`, or a
    file of one).
    Text measures are over `rows` passages of Python source, the same ones for every model.
    Errors: CannotOpen for a model or a revision that is not there, or cannot be opened as it is.
    """
    if not keep_weights and Path(model).is_dir():
        raise CannotOpen(f"{model} is a local directory: its weights stay there, so keep_weights=False has no meaning")
    sources, told = _sources(model, revisions), layout_of(layout)
    facts = {
        "kind": "opened", "sources": {str(step): source for step, source in sources.items()}, "source": str(model),
        "keep_weights": keep_weights, **({} if told is None else {"layout": plain_values(told)}),
    }  # fmt: skip
    directory = resolve(run) if run else ROOT / _name(str(model))
    begun = _begun(directory, facts)
    if begun is None:
        directory = unused(directory)  # not the model's own, if that is here
    elif not rows_in(directory / "trace.zarr"):  # before its first: begin again, in the same place
        begun = None
    there = set() if begun is None else set(begun.trace["step"].values.tolist())
    ended = "diverged" if begun is not None and begun.meta.get("divergence") else "finished"
    left = [step for step in sources if step not in there]
    if begun is not None and not left:  # ended between its last record and its last word
        RunWriter.reopen(begun).close(ended, step=max(sources))
        return open_run(directory)
    fetch = contextlib.nullcontext if keep_weights else passing
    first = sources[left[0]]
    with fetch(first):
        foreign = load_hf(first["path"], revision=first["revision"], bos=bos, layout=told)
    words = Words(foreign.tokenizer)
    words.bos = foreign.bos
    inner, tokens = foreign.model, _text(foreign, rows)
    foreign.release()
    probing = Probing(inner, directory, Inputs.of((tokens,), {"use_cache": False}), words, facts)
    probing.begun = begun
    status = "stopped"
    try:
        for done, step in enumerate(left, len(there) + 1):
            if (source := sources[step]) is not first:
                with fetch(source):
                    inner.load_state_dict(from_pretrained(source["path"], source["revision"]).state_dict())
            row = probing.measure(step, with_patterns=True)
            with torch.no_grad():
                row |= gradients.fetch({"weight_norm": gradients.tensor_norms(probing.params)})
            assert probing.writer is not None
            facts = {"step": step}
            if ended == "finished" and (found := probing.not_finite(step)):
                ended, facts = "diverged", facts | {"divergence": found.facts(step)}
            probing.writer.record(step, row)
            probing.writer.flush()
            probing.writer.status("training", facts)
            if progress is not None:
                progress(done, len(sources), step)
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
    meta = {"keep_weights": True, **run.meta}  # as runs did before they could say so
    same = all(meta.get(name) == value for name, value in facts.items())
    return run if same and run.status in ("interrupted", "stopped") else None


def _sources(model: str | Path, revisions: Sequence[str] | None) -> dict[int, dict[str, Any]]:
    """Where the weights of each step are: {step: {path, revision}}."""
    if revisions:
        if Path(model).is_dir():
            raise CannotOpen(
                f"{model} is a local directory, which has no revisions; its checkpoint-N folders are steps"
            )
        revisions = _named(str(model), revisions)
        numbered = {_step(one): {"path": str(model), "revision": one} for one in revisions}
        if len(numbered) < len(revisions):
            raise CannotOpen(f"revisions {', '.join(revisions)} are not all of different steps")
        return dict(sorted(numbered.items()))
    if not (folder := Path(model).expanduser()).is_dir():
        return {0: {"path": str(model), "revision": None}}
    folder = folder.resolve()
    found = {int(m[1]): path for path in folder.iterdir() if path.is_dir() and (m := CHECKPOINT.fullmatch(path.name))}
    return {step: {"path": str(path), "revision": None} for step, path in sorted((found or {0: folder}).items())}


def _named(model: str, revisions: Sequence[str]) -> list[str]:
    """The revisions meant, in the words of the repository: each is there, as far as the hub can be asked."""
    from huggingface_hub import HfApi

    spans = [_span(one) for one in revisions]
    try:
        refs = HfApi().list_repo_refs(model)
    except Exception as error:  # no network, no such repository, no access
        if any(spans):
            raise CannotOpen(
                f"the branches of {model!r} cannot be listed ({first_line(error)}): name each revision instead"
            ) from error
        return list(revisions)  # they may be in the cache
    names = [one.name for one in (*refs.branches, *refs.tags)]
    steps = sorted({one.name for one in refs.branches if CHECKPOINT.fullmatch(one.name)}, key=_step)
    found: dict[str, None] = {}
    for one, span in zip(revisions, spans, strict=True):
        meant = [name for name in steps if span[0] <= _step(name) <= span[1]] if span else [one]
        if not meant or not span and one not in names and not UNLISTED.fullmatch(one):
            listed = [*steps[:4], "...", *steps[-2:]] if len(steps) > 6 else steps or names
            raise CannotOpen(f"{model!r} has no revision {one!r}; it has {len(steps or names)}: {', '.join(listed)}")
        found |= dict.fromkeys(meant)
    return list(found)


def _span(revision: str) -> tuple[float, float] | None:
    """The first and the last step of `all` or of step0:step1000, which can be no name: git allows no colon."""
    first, colon, last = revision.partition(":")
    return (0, math.inf) if revision == "all" else (_step(first), _step(last)) if colon else None


def _step(revision: str) -> int:
    match = re.search(r"(\d+)", revision)
    if match is None:
        raise CannotOpen(f"revision {revision!r} has no number in its name to be its step")
    return int(match[1])


def _name(model: str) -> str:
    """A run's name for a model: the last part of its path."""
    return re.sub(r"[^\w.-]+", "-", model.rstrip("/").rpartition("/")[2]) or "model"


def _text(model: WrappedModel, rows: int) -> Tensor:
    """Passages of Python source as the model reads them; random tokens for a model without a tokenizer."""
    n = min(model.n_ctx, 128)
    words = Words(model.tokenizer)
    if words.tokenizer is None:
        return torch.randint(model.d_vocab, (rows, n), generator=torch.Generator().manual_seed(0))
    start = [] if model.bos is None else [model.bos]
    ids: list[list[int]] = []
    for passage in python_passages():
        encoded = [*start, *ids_of(words.tokenizer, passage)][:n]
        if len(encoded) == n:
            ids.append(encoded)
        if len(ids) == rows:
            break
    if not ids:
        raise CannotOpen("the tokenizer turns Python source into no tokens: it is not the tokenizer of this model")
    return torch.tensor(ids)
