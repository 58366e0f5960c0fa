"""The weights of a model that can be built again, while they fit in a budget."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tracer.hooks.refusals import NoHeads
from tracer.hooks.sites import plain
from tracer.huggingface import building
from tracer.store import RunWriter
from tracer.store.layout import steps_in

if TYPE_CHECKING:
    from tracer.huggingface.architectures import Layout


class Snapshots:
    """Keeps the first state, and others up to so many megabytes in all. Room is kept for the last; a job that goes on
    with a run keeps its own last one besides."""

    def __init__(self, model: nn.Module, megabytes: float) -> None:
        self._model, self._megabytes = model, megabytes
        self._kept: set[int] | None = None
        self.at = -1
        """The step of the latest."""

    def take(self, writer: RunWriter | None, step: int, last: bool) -> None:
        if writer is None or not any(writer.meta.get(how) for how in ("huggingface", "transformer", "build")):
            return
        weights = distinct(self._model.state_dict())
        megabytes = sum(x.numel() * x.element_size() for x in weights.values()) / 1e6
        if self._kept is None:  # a run that is gone on with has some
            self._kept = set(steps_in(writer.dir / "snapshots"))
        n = min(2, len(self._kept | {step})) if last else len(self._kept | {step}) + 1
        if not self._kept or n * megabytes <= self._megabytes:
            self._kept.add(step)
            self.at = step
            writer.snapshot(step, weights)


def distinct(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor once: of tied weights the first name only, as safetensors wants it."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    kept = {}
    for name, x in weights.items():
        if (mark := (x.data_ptr(), tuple(x.shape))) not in seen or x.numel() == 0:
            seen.add(mark)
            kept[plain(name)] = x
    return kept


def rebuilding(
    model: nn.Module, build: str | None, layout: Layout | str | Path | None, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:  # fmt: skip
    """What run.json says of how to build the model again; ValueError where `build` makes another model than the one
    that is trained, one that gives no logits for tokens, or one whose `layout` is another. `config`: what `build` is
    called with."""
    from tracer.huggingface.architectures import family_of, layout_of, plain_values
    from tracer.huggingface.loading import load_hf

    told = layout_of(layout)
    said: dict[str, Any] = {} if told is None else {"layout": plain_values(told)}
    if build is None:
        return said
    made = building.built(build, config)
    ours, theirs = ({plain(name): tuple(x.shape) for name, x in one.state_dict().items()} for one in (model, made))
    if wrong := [name for name in (*ours, *theirs) if ours.get(name) != theirs.get(name)]:
        name = wrong[0]
        raise ValueError(
            f"build={build!r} builds another model than the one that is trained: {len(set(wrong))} tensors differ, the "
            f"first is {name}: {list(theirs.get(name, ())) or 'none'} there, {list(ours.get(name, ())) or 'none'} here"
        )
    with contextlib.suppress(NoHeads):  # nor will the recorder see any, and what it keeps is the weights
        load_hf(made, layout=told, n_ctx=None if config is None else config["model"]["n_ctx"]).release()
    return {"build": build, "family": family_of(made)} | said
