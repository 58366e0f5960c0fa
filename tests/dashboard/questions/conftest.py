"""Runs that are written by hand, with the numbers that a test asks about and no training."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dashboard.loading.recorded_prompts import pooled
from tracer.files.sealed import pack
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run
from tracer.store.layout import FORMAT, snapshot_path
from tracer.store.trace import TraceWriter, Variable

Write = Callable[..., Run]
META = {
    "format": FORMAT, "kind": "watched", "class": "Reader", "status": "finished", "step": 0, "n_params": 7,
    "created": "2026-01-02T03:04:05+00:00", "layers": [],
}  # fmt: skip


def layer(name: str, n_heads: int, causal: bool = True, kind: str = "self") -> dict[str, Any]:
    return {"name": name, "n_heads": n_heads, "causal": causal, "kind": kind}


def trace_into(
    directory: Path, steps: Sequence[int], values: Mapping[str, tuple[Any, ...]],
    coords: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """A trace of these steps; each value is (dims after step, array [step ...], and attrs if it has any)."""
    arrays = {name: np.asarray(array) for name, (_, array, *_) in values.items()}
    variables = {
        name: Variable(tuple(dims), arrays[name].shape[1:], str(arrays[name].dtype), *attrs)
        for name, (dims, _, *attrs) in values.items()
    }
    writer = TraceWriter.create(directory / "trace.zarr", len(steps), variables, dict(coords or {}))
    for row, step in enumerate(steps):
        writer.append(step, {name: array[row] for name, array in arrays.items()})
    writer.close()


def drawn(
    key: tuple[object, ...], sizes: Sequence[tuple[int, int]], n_heads: int, step: int = 0,
    cells: tuple[int, int] = (4, 4), **fields: Any,
) -> PromptPatterns:  # fmt: skip
    """Random patterns of these queries and keys by layer, the same for the same step; their thumbs have these cells.

    The last head of each layer but the first does not exist.
    """
    draw = np.random.default_rng(step)
    whole = [draw.random((n_heads, *size)).astype(np.float32) for size in sizes]
    thumbs = draw.random((len(sizes), n_heads, *cells)).astype(np.float32)
    thumbs[1:, -1] = np.nan
    base = PromptPatterns(
        key, step, [f"t{i}" for i in range(sizes[0][0])], [True] * len(sizes), list(sizes), [], thumbs,
        lambda layer, head, rows, cols: whole[layer][head][rows, cols],
        lambda layer, head, size, pool: pooled(whole[layer][head], size, pool),
    )  # fmt: skip
    return replace(base, **fields)


def of_size(**sizes: int) -> Any:
    """A random GPT-2 of these sizes."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    known: dict[str, Any] = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 60, "n_positions": 48}
    known |= sizes
    return GPT2LMHeadModel(GPT2Config(**known, bos_token_id=0, eos_token_id=0, initializer_range=0.4))


def rebuildable(write: Write, name: str, model: Any, paths: Sequence[str], *recorded: Any, **meta: Any) -> Run:
    """A run of a Hugging Face model, with its weights at step 0 and half of them at step 2."""
    config = model.config.to_dict()
    layers = [layer(path, config["num_attention_heads" if "n_head" not in config else "n_head"]) for path in paths]
    facts = {"huggingface": config, "layers": layers, "d_vocab": config["vocab_size"], **meta}
    run = write(name, *recorded, **facts)
    for step in (0, 2):
        weights = {name: tensor / (1 + step / 2) for name, tensor in model.state_dict().items()}
        snapshot_path(run.dir, step).write_bytes(pack(weights))
    return run


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """write("name", steps, values, coords, n_ctx=4, ...): a run of somebody else's model; without steps no trace."""

    def written(
        name: str, recorded: Sequence[int] | None = None, values: Mapping[str, Any] | None = None,
        coords: Mapping[str, Any] | None = None, /, **meta: Any,
    ) -> Run:  # fmt: skip
        directory = tmp_path / name
        (directory / "snapshots").mkdir(parents=True)
        (directory / "run.json").write_text(json.dumps(META | meta))
        if recorded is not None:
            trace_into(directory, recorded, values or {}, coords)
        return Run(directory)

    return written
