"""What switching heads off costs at each snapshot: `effects.zarr`, one Zarr group a mode, written like a trace.

effects.zarr/zero            effect[step probe layer head]; mean and resample alike
effects.zarr/zero_frozen     the same with patterns held at the clean run's
effects.zarr/zero--kl-<hash> of another metric or other tokens (`--metric`, `--tokens`), which its attributes name
Rows stand in the order in which they were computed. A mode that was not swept at a step has no row there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.files.disk import beside, clear_partial
from tracer.store.layout import Lock
from tracer.store.trace import TraceWriter, Variable, read_trace

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

FROZEN = "_frozen"
OF = "--"
"""Between the mode and what another metric or other tokens are called: theirs are groups of their own."""
DRAWS = "resample"
"""The mode whose numbers depend on draws."""
SAME = {
    "zero": ("n_sequences",),
    "mean": ("n_sequences", "mean_of"),
    DRAWS: ("seed", "draws", "drawn_from", "n_sequences"),
}
"""Attributes that must agree between the sweeps of one mode: they stand side by side."""


class EffectsWriter:
    """The sweeping side of a run directory: one process at a time, rows committed last."""

    def __init__(
        self, directory: Path, coords: dict[str, Any], attrs: dict[str, Any], n_steps: int, of: str = ""
    ) -> None:
        self._dir, self._coords, self._attrs, self._n_steps, self._of = directory, coords, attrs, n_steps, of
        self._lock = Lock(directory, "effects.lock", busy="swept")
        clear_partial(directory / "effects.zarr")
        self._writers: dict[str, TraceWriter] = {}

    def steps(self, mode: str, frozen: bool) -> set[int]:
        """Steps that are there already; ValueError when they were measured in another way."""
        path = self._path(mode, frozen)
        if not path.exists():
            return set()
        theirs, ours = read_trace(path)["effect"].attrs, self._attrs
        if differ := [name for name in SAME[mode] if theirs.get(name) != ours[name]]:
            raise ValueError(
                f"{path} was swept with {', '.join(f'{name}={theirs.get(name)!r}' for name in differ)}, now "
                f"{', '.join(f'{name}={ours[name]!r}' for name in differ)}: sweep the same way, or remove that folder"
            )
        return self._writer(path).steps

    def append(self, mode: str, frozen: bool, step: int, effect: np.ndarray) -> None:
        """Commit one row, [probe layer head]."""
        path = self._path(mode, frozen)
        if not path.exists():
            self._create(path, mode, frozen, effect)
        writer = self._writer(path)
        writer.append(step, {"effect": effect})
        writer.flush()  # 4 ms, after as many forward passes as there are heads

    def close(self) -> None:
        """Cut off what was reserved, and let go of the lock."""
        try:
            for writer in self._writers.values():
                writer.close()
        finally:
            self._lock.release()

    def _path(self, mode: str, frozen: bool) -> Path:
        return self._dir / "effects.zarr" / (mode + FROZEN * frozen + (OF + self._of if self._of else ""))

    def _writer(self, path: Path) -> TraceWriter:
        if path.name not in self._writers:
            self._writers[path.name] = TraceWriter(path, any_order=True)
        return self._writers[path.name]

    def _create(self, path: Path, mode: str, frozen: bool, effect: np.ndarray) -> None:
        import numpy as np

        _, n_layers, n_heads = effect.shape
        layers = {"layer": (("layer",), np.arange(n_layers), {}), "head": (("head",), np.arange(n_heads), {})}
        attrs = {**self._attrs, "mode": mode, "frozen": frozen}
        elsewhere = set().union(*SAME.values()) - set(SAME[mode])
        attrs = {name: value for name, value in attrs.items() if name not in elsewhere}
        variable = Variable(("probe", "layer", "head"), effect.shape, "float32", attrs)
        coords = {**self._coords, **layers}
        self._writers[path.name] = TraceWriter.create(path, self._n_steps, {"effect": variable}, coords, any_order=True)


def take_back_effects(directory: Path, after: int) -> None:
    """Remove every sweep, where one holds a later step: rows stand in no order, so none can be cut off."""
    path = directory / "effects.zarr"
    if any((read_trace(folder)["step"] > after).any() for folder in path.glob("[!.]*")):
        aside = beside(path)
        path.rename(aside)
        shutil.rmtree(aside)


def others(path: Path) -> list[str]:
    """What other metrics and tokens are called that were swept (`of` of `read_effects`)."""
    return sorted({of for folder in path.glob("[!.]*") if (of := folder.name.partition(OF)[2])})


def read_effects(path: Path, of: str = "") -> xr.Dataset | None:
    """effect[step probe mode layer head] of all modes that were swept (effect_frozen likewise); None: none was.

    `of`: another metric or other tokens than the run's own ("": the loss on its probes). NaN where a step was swept in
    another mode only.
    """
    import xarray as xr

    plain, frozen = [], []
    for folder in sorted(path.glob("[!.]*"), reverse=True):  # zero first
        mode, _, theirs = folder.name.partition(OF)
        if theirs != of:
            continue
        rows = read_trace(folder)
        if rows.sizes["step"]:
            name = mode.removesuffix(FROZEN)
            (plain if name == mode else frozen).append(rows.sortby("step").expand_dims(mode=[name]))
    found = {
        name: xr.concat([rows["effect"] for rows in parts], "mode", join="outer", combine_attrs="drop_conflicts")
        for name, parts in (("effect", plain), ("effect_frozen", frozen))
        if parts
    }
    if not found:
        return None
    return xr.merge([found], join="outer").transpose("step", "probe", "mode", "layer", "head")
