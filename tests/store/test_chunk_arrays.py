"""What is read of a group is what zarr reads, whichever part of it is asked for, and no more than its chunks."""

import shutil
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from tracer.files.disk import Damaged
from tracer.store.chunks import ChunkFiles
from tracer.store.trace import read_trace

RNG = np.random.default_rng(0)
ARRAYS = {
    "step": (("step",), np.arange(5) * 10, (5,)),
    "whole": (("step", "layer"), RNG.normal(size=(5, 7)).astype("float32"), (5, 7)),
    "parts": (("step", "layer", "head"), RNG.normal(size=(5, 7, 3)).astype("float16"), (2, 3, 2)),
    "flags": (("layer",), RNG.random(7) < 0.5, (3,)),
    "words": (("head",), np.array(["a", "", "żółw"], object), (3,)),
    "empty": (("none", "layer"), np.zeros((0, 7), "int32"), (1, 7)),
}
KEYS = {
    "step": [slice(None), 3, -1, slice(1, 4), slice(None, None, 2), slice(None, None, -1), [4, 0, 0], [], slice(2, 2)],
    "layer": [slice(None), 6, slice(5, None), slice(None, None, 3), slice(6, 0, -2), [0, 6, 3, -1]],
    "head": [slice(None), 1, slice(1, 3), [2, 0]],
    "none": [slice(None)],
}


@pytest.fixture(scope="module", params=["checked", "of before"])
def folder(request, tmp_path_factory):
    """A group that zarr has written."""
    path = tmp_path_factory.mktemp("group") / "g.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=3)
    compressors = (ZstdCodec(level=0), Crc32cCodec()) if request.param == "checked" else (ZstdCodec(level=0),)
    for name, (dims, values, chunks) in ARRAYS.items():
        options: dict[str, Any] = {"dtype": str if values.dtype == object else values.dtype}
        if values.dtype != object and values.dtype != bool:
            options["fill_value"] = -1
        array = group.create_array(
            name, shape=values.shape, chunks=chunks, dimension_names=dims, compressors=compressors,
            config={"write_empty_chunks": True}, **options,
        )  # fmt: skip
        array[...] = values
    zarr.consolidate_metadata(path)
    return path


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_every_part_is_the_part_that_zarr_reads(folder):
    plain, trace = xr.open_zarr(folder, chunks=None, consolidated=True, decode_cf=False), read_trace(folder)
    for name in ARRAYS:
        keys: list[dict[Hashable, Any]] = [{}]
        for dim in map(str, plain[name].dims):
            keys = [{**key, dim: at} for key in keys for at in KEYS[dim]]
        for key in keys:
            wanted, found = plain[name].isel(key), trace[name].isel(key)
            assert found.dims == wanted.dims and found.dtype == wanted.dtype and found.attrs == wanted.attrs
            np.testing.assert_array_equal(found.values, wanted.values, strict=True)


def test_places_of_their_own_along_two_axes(folder):
    at = {"step": xr.DataArray([0, 4, 2], dims="place"), "layer": xr.DataArray([6, 1, 3], dims="place")}
    np.testing.assert_array_equal(read_trace(folder)["parts"].isel(at).values, ARRAYS["parts"][1][[0, 4, 2], [6, 1, 3]])


def test_only_the_chunks_that_are_asked_for_are_read(folder, monkeypatch):
    asked = []
    read = ChunkFiles.read
    monkeypatch.setattr(ChunkFiles, "read", lambda self, key: asked.append(key) or read(self, key))
    trace = read_trace(folder)
    assert asked.count("step/c/0") == 1 == len([key for key in asked if key.startswith("step/")])
    asked.clear()
    trace["parts"].isel(step=[0, 4], layer=6, head=slice(0, 2)).load()
    assert sorted(asked) == ["parts/c/0/2/0", "parts/c/2/2/0"]
    asked.clear()
    _ = trace["whole"].values, trace["whole"].values
    assert asked == ["whole/c/0/0"], "what was read once is kept"


def test_a_chunk_that_is_not_there(folder, tmp_path):
    """With checksums all were written, and one is lost; before them an empty one was not written."""
    path = shutil.copytree(folder, tmp_path / "g.zarr")
    (path / "parts" / "c" / "1" / "0" / "0").unlink()
    files = ChunkFiles(path)
    files.lay_out()
    parts = read_trace(path)["parts"]
    if files.arrays["parts"].checked:
        with pytest.raises(Damaged, match="a part of what was recorded is lost"):
            parts.load()
        return
    expected = ARRAYS["parts"][1].copy()
    expected[2:4, :3, :2] = -1
    np.testing.assert_array_equal(parts.values, expected)
