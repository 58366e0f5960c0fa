"""The weights of a model that can be built again, while they fit in a budget."""

from __future__ import annotations

from torch import Tensor, nn

from tracer.store import RunWriter
from tracer.watching.sites import plain


class Snapshots:
    """Keeps the first state, and others up to so many megabytes in all; room is kept for the last."""

    def __init__(self, model: nn.Module, megabytes: float) -> None:
        self._model, self._megabytes, self._kept = model, megabytes, 0
        self.at = -1
        """The step of the latest."""

    def take(self, writer: RunWriter | None, step: int, last: bool) -> None:
        if writer is None or not writer.meta["huggingface"]:
            return
        weights = distinct(self._model.state_dict())
        megabytes = sum(x.numel() * x.element_size() for x in weights.values()) / 1e6
        if self._kept == 0 or (self._kept + (1 if last else 2)) * megabytes <= self._megabytes:
            self._kept += 1
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
