"""The trace: labelled arrays over `step` in a Zarr v3 group.

Every array is created at its full planned length, so that a flush only ever replaces chunk files (atomically) and never
an array's shape. The `step` coordinate is written last, when the rest is on the disk: a row exists once its step is
there. A killed writer leaves rows with step = -1 at the end; everything before them is complete. Every chunk of a
committed row is written, NaN too, and ends in a checksum: one that is missing or changed is an error where it is read.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.files.disk import Damaged, beside, flush, read_json
from tracer.store.layout import UNCOMMITTED

if TYPE_CHECKING:
    import numpy as np

    from tracer.store.chunk_store import ChunkStore

CHUNK_STEPS = 64
CHUNK_BYTES = 4 << 20

Rows = list[tuple[int, "dict[str, np.ndarray]"]]


@dataclass(frozen=True)
class Variable:
    """An array of the trace: [step, *dims]; `attrs` say what it is (label, unit, formula, source, probe)."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str = "float32"
    attrs: dict[str, Any] = field(default_factory=dict)
    chunk_steps: int = CHUNK_STEPS

    def chunks(self) -> tuple[int, ...]:
        """Many steps of a small array in one chunk; a large array (patterns) is one chunk a step."""
        import numpy as np  # takes 0.1 s, which commands that read no trace save

        row = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return (max(1, min(self.chunk_steps, CHUNK_BYTES // (16 * max(row, 1)))), *self.shape)


def _open(path: Path, mode: str) -> tuple[Any, ChunkStore]:
    """The group and its store; what is not of our kind is refused before it is opened."""
    import zarr

    from tracer.store.chunk_store import ChunkStore

    store = ChunkStore(path)
    with _strangers(path):
        if mode != "w":
            store.files.lay_out()
        return zarr.open_group(store, mode=mode, zarr_format=3), store  # pyrefly: ignore[bad-argument-type]


@contextmanager
def _strangers(path: Path) -> Iterator[None]:
    """Damaged, whatever zarr or xarray raise over metadata that means nothing: it may be a stranger's."""
    try:
        yield
    except (Damaged, OSError):
        raise
    except Exception as error:
        raise Damaged(f"{path} is damaged or not of manyeyes: {error!r:.300}") from error


WHOLE = {"write_empty_chunks": True}
"""A chunk of NaN is written as well: one that is missing is then known to be lost."""


def _create(group: Any, name: str, shape: tuple[int, ...], dtype: Any, **options: Any) -> Any:
    """Its chunks are files of one folder, not below a folder an axis; only `step` has its where followers look: c/0."""
    from zarr.codecs import Crc32cCodec, ZstdCodec

    compressors = (ZstdCodec(level=0), Crc32cCodec())
    keys: Any = {"name": "default", "separator": "/" if name == "step" else "."}
    return group.create_array(
        name, shape=shape, dtype=dtype, compressors=compressors, chunk_key_encoding=keys, config=WHOLE, **options
    )


def _lay_out(group: Any, name: str, variable: Variable, n_rows: int, overwrite: bool = False) -> Any:
    return _create(
        group, name, (n_rows, *variable.shape), variable.dtype, chunks=variable.chunks(), fill_value=math.nan,
        dimension_names=("step", *variable.dims), attributes=variable.attrs, overwrite=overwrite,
    )  # fmt: skip


def _consolidate(group: Any, store: ChunkStore) -> None:
    import zarr

    store.commit()
    with warnings.catch_warnings():  # zarr warns that other implementations may ignore the consolidated copy
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(group.store)
    store.commit()


class TraceWriter:
    """Buffers rows, writes them in blocks, commits them by their step."""

    def __init__(self, path: Path, any_order: bool = False) -> None:
        self._any_order = any_order
        self._group, self._store = _open(path, "r+")
        with _strangers(path):
            every = dict(self._group.arrays())
            self._arrays = {
                name: array.with_config(WHOLE)
                for name, array in every.items()
                if array.metadata.dimension_names[:1] == ("step",)
            }
            self.others = set(every) - set(self._arrays) | {"step"}
            """Names of arrays that are no variables: coordinates, and what is said of prompts."""
            self._step = self._arrays.pop("step")
            sizes = [self._group[axis].shape[0] for axis in ("layer", "head") if axis in self._group]
        self.heads: tuple[int, int] | None = (sizes[0], sizes[1]) if len(sizes) == 2 else None
        """Layers, and heads in each; None where nothing is measured of heads."""
        self._rows: Rows = []
        self._count(self._step[:])
        self._taken_at, self._cost = time.perf_counter(), 0.0

    def _count(self, steps: np.ndarray) -> None:
        self._committed = self._store.files.committed = committed(steps)
        self.last_step = int(steps[self._committed - 1]) if self._committed else -1
        """The last step with a row, committed or buffered; -1 when there is none."""
        self.steps = set(steps[: self._committed].tolist())
        """Those with a row, committed or buffered."""

    @classmethod
    def create(
        cls, path: Path, n_rows: int, variables: dict[str, Variable], coords: dict[str, Any], any_order: bool = False
    ) -> TraceWriter:
        """Lay out the arrays; `coords` maps a name to (dims, values, attrs) of arrays without a step.

        It is done aside and renamed: whoever reads, also what a killed writer left, finds all arrays or none.
        """
        import numpy as np

        aside = beside(path)
        group, store = _open(aside, "w")
        steps = _create(
            group, "step", (n_rows,), "int64", chunks=(max(n_rows, 1),), fill_value=UNCOMMITTED,
            dimension_names=("step",),
            attributes={"long_name": "step", "note": "updates made so far; -1: not yet recorded"},
        )  # fmt: skip
        steps[:] = UNCOMMITTED
        for name, variable in variables.items():
            _lay_out(group, name, variable, n_rows)
        for name, (dims, values, attrs) in coords.items():
            values = np.asarray(values)
            is_text = values.dtype.kind == "U"
            dtype = str if is_text else values.dtype
            array = _create(group, name, values.shape, dtype, dimension_names=dims, attributes=attrs)
            array[...] = values.astype(object) if is_text else values
        group.attrs["coordinates"] = " ".join(coords)
        _consolidate(group, store)
        aside.rename(path)
        flush([path.parent])
        return cls(path, any_order)

    @property
    def names(self) -> set[str]:
        """Of the variables that there are."""
        return set(self._arrays)

    def dims(self, name: str) -> tuple[str, ...] | None:
        """The dimensions of a variable besides `step`; None where there is no such variable."""
        return tuple(self._arrays[name].metadata.dimension_names[1:]) if name in self._arrays else None

    def add(self, variables: dict[str, Variable]) -> None:
        """Lay out those that the run lacks; its rows so far are NaN. ValueError for the name of another array."""
        new = {name: variable for name, variable in variables.items() if name not in self._arrays}
        if taken := sorted(new.keys() & self.others):
            raise ValueError(
                f"the trace has an array {taken[0]!r} that is no variable over steps, and is never written over: "
                f"choose another name"
            )
        for name, variable in new.items():
            # whoever was killed in here has left an array that nobody knows of
            self._arrays[name] = _lay_out(self._group, name, variable, self._step.shape[0], overwrite=True)
            self._arrays[name][: self._committed] = math.nan
        if new:
            _consolidate(self._group, self._store)

    def extend(self, n_rows: int, from_step: int | None = None) -> None:
        """Make room for `n_rows` in all, and take back the rows at and after `from_step`, if one is given."""
        steps = self._step[:]
        if from_step is not None:
            steps[steps >= from_step] = UNCOMMITTED
            self._step[:] = steps
            self._store.commit()
            self._count(steps)
        if n_rows != len(steps):
            self._resize(max(n_rows, self._committed))

    def _resize(self, n_rows: int) -> None:
        for array in (*self._arrays.values(), self._step):
            array.resize((n_rows, *array.shape[1:]))
        _consolidate(self._group, self._store)

    def append(self, step: int, values: dict[str, np.ndarray]) -> None:
        """Buffer a row; variables that it lacks stay NaN. A step that is there already is left as it is.

        Steps rise, unless the writer was opened with `any_order`.
        """
        # a resumed run passes again, to the bit, through steps that were committed
        if step in self.steps if self._any_order else step <= self.last_step:
            return
        unknown = set(values) - set(self._arrays)
        assert not unknown, f"the trace has no variable {unknown}"
        self._rows.append((step, values))
        self.last_step = step
        self.steps.add(step)

    def due(self) -> bool:
        """Time to write: at most every 2 seconds, and so seldom that it stays below 1 % of the time."""
        return bool(self._rows) and time.perf_counter() - self._taken_at > max(2.0, 100 * self._cost)

    def flush(self) -> None:
        """Write what is buffered, now."""
        self.write(self.take())

    def take(self) -> Rows:
        """The buffered rows, for `write`, which may run in another thread."""
        rows, self._rows, self._taken_at = self._rows, [], time.perf_counter()
        return rows

    def write(self, rows: Rows) -> None:
        """Write rows, one block a variable, then commit them."""
        import numpy as np

        if not rows:
            return
        began = time.perf_counter()
        at = slice(self._committed, self._committed + len(rows))
        if at.stop > self._step.shape[0]:  # nobody said how long the run would be
            self._resize(max(at.stop, 2 * self._step.shape[0]))
        for name, array in self._arrays.items():
            empty = np.full(array.shape[1:], math.nan, array.dtype)
            array[at] = np.stack([np.asarray(values.get(name, empty), array.dtype) for _, values in rows])
        self._store.commit()
        self._step[at] = np.array([step for step, _ in rows])
        self._store.commit()
        self._committed = self._store.files.committed = at.stop
        self._cost = time.perf_counter() - began

    def close(self) -> None:
        """Flush, and cut off rows that were reserved and never used."""
        self.flush()
        if self._committed != self._step.shape[0]:
            self._resize(self._committed)


def read_trace(path: Path) -> Any:
    """The committed rows as an xarray.Dataset; arrays are read, and verified, when they are used.

    Errors: `files.Damaged` here, or where an array is read, names the part that is missing, changed or not ours.
    """
    import xarray as xr

    from tracer.store.chunk_arrays import ChunkArrays
    from tracer.store.chunks import ChunkFiles

    files = ChunkFiles(path)
    with _strangers(path):
        files.lay_out()
        # values are what is written: no attribute (scale_factor, units, ...) makes others of them
        dataset = xr.open_dataset(files, engine=ChunkArrays, decode_cf=False)  # pyrefly: ignore[bad-argument-type]
        names = str(dataset.attrs.pop("coordinates", "")).split()
        dataset = dataset.set_coords([name for name in names if name in dataset])
        files.committed = n_rows = committed(dataset["step"].values)
    return dataset.isel(step=slice(0, n_rows))


FAR = 1 << 62
"""Beyond every step; of a larger number numpy makes an error."""


def nearest_row(steps: Sequence[int] | np.ndarray, step: int | None) -> int:
    """The index of the step nearest to the wanted one, the first of two as near; of the last where none is wanted."""
    import numpy as np

    if step is None:
        return len(steps) - 1
    return int(np.abs(np.asarray(steps) - max(-FAR, min(step, FAR))).argmin())


def is_laid_out(path: Path) -> bool:
    """Are the arrays there, or has their writer only begun? What cannot be read is for `read_trace` to name."""
    from tracer.store.chunks import MOST_METADATA

    if not (path / "zarr.json").exists():
        return False
    told = read_json(path / "zarr.json", path.parent, MOST_METADATA)
    return not isinstance(told, dict) or bool(told.get("consolidated_metadata"))


def rows_in(path: Path) -> int:
    """How many rows are committed; 0 where none is laid out yet. Damaged where that cannot be told."""
    try:
        return read_trace(path).sizes["step"] if is_laid_out(path) else 0
    except (OSError, KeyError, RuntimeError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error


def committed(steps: np.ndarray) -> int:
    """Rows before the first one that is only reserved."""
    reserved = steps == UNCOMMITTED
    return int(reserved.argmax()) if reserved.any() else len(steps)
