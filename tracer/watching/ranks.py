"""The processes that train one model together: who is there, and a way for what each found.

1. Before anything is sent, all say through the rendezvous store that they are there (`absent`): nobody waits for long
   for a process in which nobody called `tracer.watch`, nor for a stage of a pipeline, which gets there later.
2. Every process measures the same kept sequences, those of rank 0, in step: where weights are sharded (FSDP) no process
   can run the model by itself. Heads that are split (tensor parallel) are put side by side again.
3. Once a record, one all-gather of one vector, of which `gathering` makes one record. Rank 0 writes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate, Shard

from tracer.hooks.refusals import CannotWatch
from tracer.torch_internals import default_store
from tracer.tracking.tracking import say
from tracer.watching.pipelines import in_stage

PATIENCE, SOON = timedelta(seconds=60), timedelta(seconds=5)
"""How long a process waits for the others to say that they are there, and after what it says that it does."""
_COUNT = itertools.count()


class Ranks:
    """All processes of the default group, or this one alone."""

    def __init__(self, model: nn.Module, run: Path) -> None:
        """`model` is what this process watches, `run` where it was asked to record."""
        there = dist.is_available() and dist.is_initialized()
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if there else (0, 1)
        self._name = ""
        self._group: Any = None
        self.split: list[int] = [self.rank]
        """The ranks that have the heads of this model between them, in order of these heads; this one where all are
        here."""
        if self.world > 1:
            told = json.dumps([str(run.resolve()), [name for name, _ in model.named_parameters()]])
            while not self._name or self._is_over(told):
                self._name = f"manyeyes/{next(_COUNT)}"
            default_store().set(f"{self._name}/watches/{self.rank}", told)

    def _is_over(self, told: str) -> bool:
        """Did others record something else under this name, without this process?"""
        store = default_store()
        there = [key for rank in range(self.world) if store.check([key := f"{self._name}/watches/{rank}"])]
        return store.check([f"{self._name}/watches/absent"]) and all(store.get(key) != told.encode() for key in there)

    @property
    def place(self) -> int:
        """Which part of the heads this process has."""
        return self.split.index(self.rank) if self.rank in self.split else 0

    def absent(self, what: str) -> list[int]:
        """The ranks that have not come here within PATIENCE: the same answer in all that have, the first one given."""
        if self.world == 1:
            return []
        store = default_store()
        keys = [f"{self._name}/{what}/{rank}" for rank in range(self.world)]
        if not store.check([keys[self.rank]]):
            store.set(keys[self.rank], "here")

        def missing() -> list[int]:
            return [] if store.check(keys) else [rank for rank, key in enumerate(keys) if not store.check([key])]

        for patience in (SOON, PATIENCE - SOON):
            with contextlib.suppress(RuntimeError):  # what the store raises when time is up
                store.wait(keys, patience)
            if not (waited_for := missing()):
                break
            if what == "watches" and patience == SOON:
                say(
                    f"manyeyes waits {PATIENCE.total_seconds():g} s at most for {_named(waited_for)}, where "
                    "tracer.watch has not been called yet: call it in every process, before the first pass"
                )
        return json.loads(store.compare_set(f"{self._name}/{what}/absent", "", json.dumps(missing())))

    def meet(self, model: nn.Module) -> str | None:
        """Find out, at the model's first call, who records together; why this process records nothing, if so."""
        absent = self.absent("watches")
        if self._stages(absent):
            return None
        lacking = f"{_named(absent)} did not call tracer.watch before the first pass"
        if not absent and (absent := self.absent("join")):
            lacking = f"{_named(absent)} did not call the model that tracer.watch was given there"
        if absent and sharded(model):
            raise CannotWatch(
                f"its weights are sharded over processes, so no process can run it by itself, and {lacking}: every "
                "process has to"
            )
        if absent:
            first = min(set(range(self.world)) - set(absent))
            if self.rank != first:
                return f"{lacking}, so rank {first} records alone"
            self._alone()
        elif self.world > 1:  # a way of our own beside that of the training
            self._group = dist.new_group(backend="gloo")
        return None

    def _stages(self, absent: list[int]) -> bool:
        """Has each process a module of its own, and a run of its own? Then each records alone, from now on.

        ValueError where they have different modules and one run. What a process has is told when `tracer.watch` is
        called, since in a pipeline no stage comes to its first pass before the one in front of it has left it.
        """
        if self.world == 1:
            return False
        store = default_store()
        there = [f"{self._name}/watches/{rank}" for rank in range(self.world) if rank not in absent]
        folders, modules = zip(*(json.loads(store.get(key)) for key in there), strict=True)
        if not in_stage() and all(module == modules[0] for module in modules):
            return False
        if len(set(folders)) < len(folders):
            raise CannotWatch(
                "each process watches another module, as stages of a pipeline do, and a stage knows its own layers "
                'only: give each a run of its own, tracer.watch(stage, run=f"my-run-{rank}")'
            )
        self._alone()
        return True

    def _alone(self) -> None:
        self.world, self.rank, self.split = 1, 0, [0]

    def leave(self) -> None:
        if self._group is not None and dist.is_initialized():
            dist.destroy_process_group(self._group)
        self._group = None

    def first(self, value: Any) -> Any:
        """Rank 0's value, in every process."""
        if self.world == 1:
            return value
        held = [value if self.rank == 0 else None]
        dist.broadcast_object_list(held, src=0, group=self._group)
        return held[0]

    def all(self, values: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """What every process gives by these names, arrays of the same shapes: one collective."""
        given = {name: np.asarray(x, np.float64) for name, x in values.items()}
        if self.world == 1:
            return [given]
        mine = torch.from_numpy(np.concatenate([x.ravel() for x in given.values()]))
        theirs = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(theirs, mine, group=self._group)
        ends = np.cumsum([x.size for x in given.values()])[:-1]
        cut = [zip(given.items(), np.split(one.numpy(), ends), strict=True) for one in theirs]
        return [{name: part.reshape(x.shape) for (name, x), part in one} for one in cut]


def _named(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def side_by_side(every: list[dict[str, np.ndarray]]) -> np.ndarray:
    """The largest logits of all processes, [layer head], where each has all heads or the part of its `place`."""
    places = sorted({int(one["place"]) for one in every})
    return np.concatenate([np.fmax.reduce([one["largest"] for one in every if one["place"] == p]) for p in places], 1)


def local(x: Tensor) -> Tensor:
    """This process's part of a tensor; of ZeRO-3's, which are whole only while a pass needs them, without what fills
    the last one up."""
    mine: Tensor | None = getattr(x, "ds_tensor", None)
    if mine is not None:
        total, group = (getattr(x, name) for name in ("ds_numel", "ds_process_group"))
        return mine[: max(0, total - dist.get_rank(group) * mine.numel())]
    return x.to_local() if isinstance(x, DTensor) else x


def sharded(model: nn.Module) -> bool:
    """Do its weights lie in parts on several processes?"""
    whole = (FSDPModule, FullyShardedDataParallel)
    parts = any(isinstance(p, DTensor) or hasattr(p, "ds_tensor") for p in model.parameters())
    return parts or any(isinstance(m, whole) for m in model.modules())


def data_parallel(model: nn.Module, world: int) -> int:
    """Into how many parts a global batch is cut."""
    dtensors = [p for p in model.parameters() if isinstance(p, DTensor)]
    fsdp = any(isinstance(m, FSDPModule) for m in model.modules())
    split = [p.device_mesh.ndim - 1 if fsdp else p.device_mesh.ndim for p in dtensors]
    if not any(split):
        return world
    mesh = max((p.device_mesh for p in dtensors), key=lambda mesh: mesh.ndim)
    return world // mesh.size(mesh.ndim - 1)


def copies(model: nn.Module, params: Mapping[str, Tensor], world: int) -> np.ndarray:
    """How many processes hold the same part of each weight: squares summed over all count it so many times."""
    flat = any(isinstance(m, FullyShardedDataParallel) for m in model.modules())
    found = []
    for p in params.values():
        if not isinstance(p, DTensor):
            found.append(1 if flat or hasattr(p, "ds_tensor") else world)
            continue
        mesh = p.device_mesh
        parts = [mesh.size(i) for i, place in enumerate(p.placements) if not isinstance(place, Replicate)]
        found.append(world // int(np.prod(parts)))
    return np.array(found, float)


def split_over(module: nn.Module) -> list[int] | None:
    """The ranks that share the heads of an attention that is running (so that FSDP has put its weights together)."""
    for p in module.parameters():
        if isinstance(p, DTensor) and p.device_mesh.ndim == 1 and any(isinstance(x, Shard) for x in p.placements):
            return p.device_mesh.mesh.tolist()
    return None
