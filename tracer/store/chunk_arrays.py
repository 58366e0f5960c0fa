"""The arrays of a group as xarray reads them: lazily, and no more than the chunks that are asked for.

zarr reads them too, at 1.3 ms an array, most of it in handing over between threads: a third of what a page took to show
a run. The format is zarr's; files and metadata have been verified by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from tracer.store.chunks import ChunkFiles


class ChunkArrays(BackendEntrypoint):
    """A group, given as its files."""

    open_dataset_parameters = ("filename_or_obj", "drop_variables")

    def open_dataset(self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None) -> xr.Dataset:
        files = filename_or_obj
        lazy = {name: indexing.LazilyIndexedArray(ChunkArray(files, name)) for name in files.arrays}
        return xr.Dataset(
            {name: xr.Variable(one.dims, lazy[name], one.attrs) for name, one in files.arrays.items()},
            attrs=files.attrs,
        )


class ChunkArray(BackendArray):
    """An array of a group."""

    def __init__(self, files: ChunkFiles, name: str) -> None:
        self._files, self._name = files, name
        self._chunks = files.arrays[name]
        self.shape, self.dtype = self._chunks.shape, self._chunks.numpy

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[int | slice | np.ndarray, ...]) -> np.ndarray:
        """`key`: what is wanted along each axis."""
        wanted = [np.arange(*at.indices(n)) if isinstance(at, slice) else np.asarray(at) % n
                  for at, n in zip(key, self.shape, strict=True)]  # fmt: skip
        sizes = self._chunks.chunk
        touched = [np.unique(at // size) for at, size in zip(wanted, sizes, strict=True)]
        found = np.full([len(at) * n for at, n in zip(touched, sizes, strict=True)], self._chunks.fill, self.dtype)
        for block in product(*map(range, map(len, touched))):
            place = tuple(int(at[i]) for at, i in zip(touched, block, strict=True))
            if (values := self._files.chunk(self._name, place)) is not None:
                found[tuple(slice(i * n, (i + 1) * n) for i, n in zip(block, sizes, strict=True))] = values
        for axis in reversed(range(len(sizes))):  # a number takes its axis away, and with it none that comes before
            at, size = wanted[axis], sizes[axis]
            within = np.searchsorted(touched[axis], at // size) * size + at % size
            found = found[(slice(None),) * axis + (_as_slice(within),)]
        return np.asarray(found, self.dtype)


def _as_slice(at: np.ndarray) -> np.ndarray | slice:
    """Of places one behind the other, which then need no copy."""
    whole = at.ndim and len(at) and at[-1] - at[0] == len(at) - 1 and (np.diff(at) == 1).all()
    return slice(int(at[0]), int(at[-1]) + 1) if whole else at
