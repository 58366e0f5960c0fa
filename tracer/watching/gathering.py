"""One record of what all processes found.

Losses are averaged, tokens added up, largest logits maximised, squares of norms summed over shards, and heads that are
split over processes put side by side again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from tracer.diagnosis.objective import TARGETS
from tracer.watching.probing import Probing
from tracer.watching.ranks import Ranks, copies, side_by_side
from tracer.watching.signs import COUNTED
from tracer.watching.updates import row_of

Arrays = dict[str, np.ndarray]
"""By name."""
OF_BATCHES = {"shifted_loss": (len(TARGETS),), "silent_rows": ()} | dict.fromkeys(COUNTED, ())
"""What is said of each process's own batch, and their shapes; nan where they were not measured."""


class Gathering:
    """What the processes of one training tell each other at a record, and what they agreed on."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.next = -1
        """The step of the next record, of several processes,"""
        self.stop = False
        """and whether the training is asked to stop."""
        self.trouble = ""
        """What went wrong in this process, until the others are told."""
        self.under_way = False

    def of_all(
        self, row: dict[str, Any], step: int, updates: Arrays, norms: Arrays, largest: Tensor | None, probing: Probing,
        following: int, stop: bool,
    ) -> str:  # fmt: skip
        """Make the row of this step, and the updates, of this process those of all. `following`: the step of the next
        record, by this process's clock; `stop`: was it asked to? Why nothing more can be recorded; empty where all is
        well."""
        mine = part(row, updates, norms, largest, self._ranks, probing) | {
            "next": np.array(following), "stop": np.array(stop), "trouble": np.array(bool(self.trouble)),
        }  # fmt: skip
        self.under_way = True
        every = self._ranks.all(mine)
        self.under_way = False
        if any(one["trouble"] for one in every):
            return self.trouble or "another process could not measure; its own warning says why"
        self.next, self.stop = int(every[0]["next"]), bool(every[0]["stop"])
        together(every, row, step, updates, self._ranks, probing)
        return ""

    def may_wait(self, why: str) -> bool:
        """This process failed. May it go on to the next record, where the others are told?"""
        waits = self._ranks.world > 1 and self.next > 0 and not self.under_way
        self.trouble = self.trouble or (why if waits else "")
        return waits


def part(
    row: Mapping[str, Any], updates: Arrays, norms: Arrays, largest: Tensor | None, ranks: Ranks, probing: Probing
) -> Arrays:  # fmt: skip
    """What this process gives; of the same shapes in all."""
    shape = np.shape(row["entropy"]) if "entropy" in row else probing.shape  # (0, 0) of a model without heads
    given: Arrays = {
        "loss": updates["train_loss"], "tokens": updates["tokens"], "place": np.array(ranks.place),
        "largest": np.full(shape, np.nan) if largest is None else largest.cpu().numpy(),
    }  # fmt: skip
    given |= {f"norm/{name}": x for name, x in norms.items()}
    given |= {name: np.asarray(row.get(name, np.full(shape, np.nan))) for name, shape in OF_BATCHES.items()}
    if len(ranks.split) > 1:
        given |= {f"head/{name}": x for name, x in row.items() if np.shape(x)[:2] == shape or name == "pattern"}
    return given


def together(
    every: list[Arrays], row: dict[str, Any], step: int, updates: Arrays, ranks: Ranks, probing: Probing
) -> None:  # fmt: skip
    """Make the row of this step, and the updates, of this process those of all."""
    names = list(every[0])
    if ranks.world > 1:
        split = ranks.split if len(ranks.split) > 1 else []
        updates["train_loss"] = np.mean([one["loss"] for one in every], 0)
        row |= {name: np.mean([one[name] for one in every], 0) for name in OF_BATCHES}
        updates["tokens"] = np.sum([one["tokens"] for one in every], 0) / max(1, len(split))
        for name in (name.removeprefix("head/") for name in names if name.startswith("head/")):
            axis = 2 if name == "pattern" else 1
            row[name] = np.concatenate([every[rank][f"head/{name}"] for rank in split], axis)
    norms = [name.removeprefix("norm/") for name in names if name.startswith("norm/")]
    row |= row_of(
        _whole({name: [one[f"norm/{name}"] for one in every] for name in norms}, ranks, probing), probing.heads
    )
    if "max_logit" in row:
        row["max_logit"] = np.fmax(row["max_logit"], side_by_side(every)).astype(np.float32)
    if len(updates["step"]) and updates["step"][-1] == step:
        row["learning_rate"] = float(updates["learning_rate"][-1])
        if updates["told"][-1]:
            row["train_loss"] = float(updates["train_loss"][-1])


def _whole(norms: Mapping[str, list[np.ndarray]], ranks: Ranks, probing: Probing) -> Arrays:
    """Norms of whole weights from those of their parts."""
    if ranks.world == 1:
        return {name: x.astype(np.float32) for name, (x,) in norms.items()}
    times = copies(probing.model, probing.params, ranks.world)
    times = np.concatenate([times, np.full(len(norms["weight_norm"][0]) - len(times), float(ranks.world))])
    return {name: np.sqrt(np.sum(np.square(parts), 0) / times) for name, parts in norms.items()}
