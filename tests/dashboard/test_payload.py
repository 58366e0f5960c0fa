"""Packing for the browser: what goes in comes out, to the error that is promised."""

import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.components import payload


def test_layout_is_length_then_json_then_deflated_arrays():
    blob = payload.pack({"a": 1}, x=np.array([1, 2], np.uint16), y=np.array([[7]], np.uint8))
    (n,) = struct.unpack("<I", blob[:4])
    header = json.loads(blob[4 : 4 + n])
    assert header["a"] == 1
    assert header["arrays"] == [
        {"name": "x", "dtype": "uint16", "shape": [2]},
        {"name": "y", "dtype": "uint8", "shape": [1, 1]},
    ]
    assert zlib.decompress(blob[4 + n :]) == bytes([1, 0, 2, 0, 7])


def test_unpack_inverts_pack():
    arrays = {
        "u": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "f": np.array([0.5, -1], np.float32),
        "none": np.zeros((0, 4)),
    }
    header, out = payload.unpack(payload.pack({"t": "</script>\u202e"}, **arrays))
    assert header["t"] == "</script>\u202e"
    for name, a in arrays.items():
        assert out[name].dtype == a.dtype
        np.testing.assert_array_equal(out[name], a)


def test_big_endian_arrays_arrive_little_endian():
    _, out = payload.unpack(payload.pack({}, x=np.array([1, 258], ">u2")))
    assert out["x"].tolist() == [1, 258]


def test_version_follows_content():
    def version(header, a):
        return payload.unpack(payload.pack(header, x=np.array(a, np.uint8)))[0]["version"]

    assert version({"t": 1}, [1, 2]) == version({"t": 1}, [1, 2])
    assert len({version({"t": 1}, [1, 2]), version({"t": 1}, [1, 3]), version({"t": 2}, [1, 2])}) == 3


@pytest.mark.parametrize(
    ("share", "code"), [(0.0, 0), (1.0, 255), (0.25, 128), (0.01, 26), (-0.1, 0), (1.2, 255), (np.nan, 0)]
)
def test_quantise_sqrt(share, code):
    assert payload.quantise_sqrt([share]).tolist() == [code]


@given(st.floats(0, 1), st.sampled_from([39, 255]))
def test_quantise_sqrt_error(share, levels):
    back = (payload.quantise_sqrt([share], levels=levels)[0] / 255) ** 2
    step = 1 / levels + 1 / 255  # the second rounding, to a byte
    assert abs(back - share) <= step * np.sqrt(share) + step**2


@pytest.mark.parametrize(
    ("value", "code"), [(0, 0), (2, 65534), (1, 32767), (-5, 0), (9, 65534), (np.nan, payload.MISSING)]
)
def test_quantise_linear(value, code):
    assert payload.quantise_linear([value], 0, 2).tolist() == [code]


@given(st.floats(-3, 7))
def test_quantise_linear_error(value):
    back = payload.quantise_linear([value], -3, 7)[0] / 65534 * 10 - 3
    assert abs(back - value) <= 10 / 131068 + 1e-12


def test_max_pool_keeps_the_peak_of_each_block():
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    out, factor = payload.max_pool(a, 2)
    assert factor == 2
    assert out.tolist() == [[5, 7], [13, 15]]


def test_max_pool_pads_so_the_last_row_and_column_survive():
    a = np.zeros((1, 1, 256, 256), np.float32)
    a[0, 0, 255, 255], a[0, 0, 255, 0] = 0.9, 0.4
    out, factor = payload.max_pool(a, 96)
    assert (factor, out.shape) == (3, (1, 1, 86, 86))
    assert out[0, 0, 85, 85] == np.float32(0.9)
    assert out[0, 0, 85, 0] == np.float32(0.4)


@pytest.mark.parametrize(
    ("size", "pool_to", "factor"), [(64, 96, 1), (96, 96, 1), (97, 96, 2), (512, 96, 6), (1, 96, 1)]
)
def test_max_pool_factor(size, pool_to, factor):
    out, got = payload.max_pool(np.zeros((size, size)), pool_to)
    assert got == factor
    assert out.shape[0] <= pool_to


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" def", "·def"),
        ("\n", "⏎"),
        ("\t\r", "⇥␍"),
        ("\u202eevil", "‹U+202E›evil"),
        ("\x00", "‹U+0000›"),
        ("<script>", "<script>"),
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("\u200d", "‹U+200D›"),
        ("עברית", "עברית"),
        ("x" * 300, "x" * 39 + "…"),
        ("\x00" * 300, "‹U+0000›" * 4 + "‹U+0000…"),
        ("", ""),
    ],
)
def test_visible(token, shown):
    assert payload.visible(token) == shown


def test_atlas_holds_thumbnails_and_measures():
    patterns = np.zeros((2, 3, 4, 4))
    patterns[1, 2, 3, 0] = 1
    header, arrays = payload.unpack(payload.atlas(patterns, {"induction": np.arange(6).reshape(2, 3)}))
    assert header["measures"] == ["induction"]
    assert (header["n"], header["factor"], header["causal"]) == (4, 1, True)
    assert arrays["thumbs"].shape == (2, 3, 4, 4)
    assert arrays["thumbs"][1, 2, 3, 0] == 255
    assert arrays["thumbs"].sum() == 255
    assert arrays["values"][0, 1].tolist() == [3, 4, 5]


def test_atlas_without_measures():
    assert payload.unpack(payload.atlas(np.zeros((1, 1, 2, 2)), {}))[1]["values"].shape == (0, 1, 1)


def test_twelve_by_twelve_fits_its_budget():
    """144 heads at T = 64 in under 190 kB even where every share is noise, which nothing can compress further."""
    scores = np.random.default_rng(0).normal(0, 2, (12, 12, 64, 64))
    scores = np.where(np.tril(np.ones((64, 64))), np.exp(scores), 0)
    assert len(payload.atlas(scores / scores.sum(-1, keepdims=True), {})) < 190_000


def test_pattern_is_exact_to_three_decimals():
    pattern = np.array([[1.0, 0.0], [0.482, 0.518]])
    header, arrays = payload.unpack(payload.pattern(pattern, ["a", "b\n"], label="L0H0"))
    assert header["tokens"] == ["a", "b⏎"]
    assert header["breaks"] == [1]
    np.testing.assert_allclose(arrays["shares"] / 65534, pattern, atol=1 / 131068)


def test_curves_keep_gaps_and_range():
    header, arrays = payload.unpack(payload.curves([0, 10, 20], [[1, np.nan, 3], [2, 2, np.inf]], ["train", "val"]))
    assert (header["lo"], header["hi"]) == (1, 3)
    assert arrays["lines"].tolist() == [[0, payload.MISSING, 65534], [32767, 32767, payload.MISSING]]
    assert arrays["steps"].tolist() == [0, 10, 20]


def test_curves_on_a_log_axis_drop_what_has_no_logarithm():
    header, arrays = payload.unpack(payload.curves([0, 1, 2], [[0.01, 0, 1]], ["u"], log_y=True))
    assert (header["lo"], header["hi"]) == (-2, 0)
    assert arrays["lines"].tolist() == [[0, payload.MISSING, 65534]]


@pytest.mark.parametrize("values", [[[5.0, 5.0]], [[0.0, 0.0]], [[np.nan, np.nan]]])
def test_curves_without_spread(values):
    header, _ = payload.unpack(payload.curves([0, 1], values, ["x"]))
    assert header["hi"] > header["lo"]


def test_head_curves_name_and_group_heads():
    values = np.arange(12.0).reshape(2, 2, 3)
    header, arrays = payload.unpack(payload.head_curves([0, 5], values))
    assert header["labels"] == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    assert header["groups"] == [0, 0, 0, 1, 1, 1]
    assert header["group_names"] == ["layer 0", "layer 1"]
    back = arrays["lines"] / 65534 * 11
    np.testing.assert_allclose(back[4], values[:, 1, 1], atol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: payload.atlas(np.zeros((2, 3, 4)), {}), r"\(2, 3, 4\)"),
        (lambda: payload.atlas(np.zeros((2, 3, 4, 4)), {"x": np.zeros((3, 2))}), "'x' has shape"),
        (lambda: payload.pattern(np.zeros((2, 2)), ["a"]), "1 tokens"),
        (lambda: payload.curves([0, 1], [[1, 2, 3]], ["a"]), "2 steps"),
        (lambda: payload.curves([0], [[1], [2]], ["a", "a"]), "repeat"),
    ],
)
def test_wrong_shapes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
