"""Packing for the browser: what goes in comes out, to the error that is promised."""

import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.pictures import atlas, curves, overview, pattern, payload


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
    header, arrays = payload.unpack(atlas.pack(patterns, {"induction": np.arange(6).reshape(2, 3)}))
    assert header["measures"] == ["induction"]
    assert (header["factors"], header["causal"], header["layers"]) == ([1, 1], [True, True], [])
    assert arrays["thumbs"].shape == (2, 3, 4, 4)
    assert arrays["thumbs"][1, 2, 3, 0] == 255
    assert arrays["thumbs"].sum() == 255
    assert arrays["values"][0, 1].tolist() == [3, 4, 5]
    assert arrays["there"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_atlas_is_its_own_pooled_thumbnails():
    patterns = np.random.default_rng(0).random((2, 3, 21, 21))
    thumbs, factor = payload.max_pool(patterns, 8)
    measures = {"entropy": np.full((2, 3), np.nan)}
    assert factor == 3
    assert atlas.pack(patterns, measures, pool_to=8) == atlas.pack_thumbs(thumbs, measures, n=21)


def test_thumbnails_of_layers_that_differ():
    """Two heads and one, causal and not, 40 queries over 9 keys: what is missing is told from what is zero."""
    thumbs = np.zeros((2, 2, 4, 3), np.float32)
    thumbs[1, 1] = np.nan
    thumbs[0, 1, 2] = np.nan  # a row without keys is not a head without a pattern
    measures = {"entropy": np.array([[0.5, np.nan], [1.0, np.nan]])}
    names = ["encoder.<b>0</b>", "decoder\n"]
    blob = atlas.pack_thumbs(thumbs, measures, n=(40, 9), causal=[False, True], layer_names=names)
    header, arrays = payload.unpack(blob)
    assert (header["factors"], header["causal"]) == ([10, 3], [False, True])
    assert header["layers"] == ["encoder.<b>0</b>", "decoder⏎"]
    assert arrays["there"].tolist() == [[1, 1], [1, 0]]
    assert arrays["thumbs"].sum() == 0
    np.testing.assert_array_equal(arrays["values"][0], measures["entropy"])


def test_atlas_without_measures():
    assert payload.unpack(atlas.pack(np.zeros((1, 1, 2, 2)), {}))[1]["values"].shape == (0, 1, 1)


def test_twelve_by_twelve_fits_its_budget():
    """144 heads at T = 64 in under 190 kB even where every share is noise, which nothing can compress further."""
    scores = np.random.default_rng(0).normal(0, 2, (12, 12, 64, 64))
    scores = np.where(np.tril(np.ones((64, 64))), np.exp(scores), 0)
    assert len(atlas.pack(scores / scores.sum(-1, keepdims=True), {})) < 190_000


def test_pattern_is_exact_to_three_decimals():
    shares = np.array([[1.0, 0.0], [0.482, 0.518]])
    header, arrays = payload.unpack(pattern.pack(shares, ["a", "b\n"], label="L0H0"))
    assert header["tokens"] == ["a", "b⏎"]
    assert header["breaks"] == [1]
    np.testing.assert_allclose(arrays["shares"] / 65534, shares, atol=1 / 131068)


def test_pattern_of_a_square_names_its_tokens_once():
    header, _ = payload.unpack(pattern.pack(np.eye(2), ["a", "b"], query_start=7, key_start=7))
    assert (header["starts"], header["keys"], header["key_breaks"]) == ([7, 7], None, [])
    twice = pattern.pack(np.eye(2), ["a", "b"], key_tokens=["a", "b"], query_start=7, key_start=7)
    assert payload.unpack(twice)[0]["keys"] is None


def test_pattern_of_a_window_names_both_axes():
    window = np.array([[0.25, 0.5, 0.0]])
    blob = pattern.pack(window, ["q"], key_tokens=["a", "b\n", " c"], causal=False, query_start=900, key_start=3)
    header, arrays = payload.unpack(blob)
    assert (header["tokens"], header["keys"]) == (["q"], ["a", "b⏎", "·c"])
    assert (header["breaks"], header["key_breaks"]) == ([], [1])
    assert (header["starts"], header["causal"]) == ([900, 3], False)
    np.testing.assert_allclose(arrays["shares"] / 65534, window, atol=1 / 131068)


def test_pattern_of_equal_words_in_two_places_is_a_window():
    blob = pattern.pack(np.eye(2), ["a", "b"], key_tokens=["a", "b"], query_start=2, key_start=0)
    assert payload.unpack(blob)[0]["keys"] == ["a", "b"]


def test_overview_of_largest_shares():
    blocks = np.array([[0.25, np.nan, 0.0], [1.0, 0.01, 0.5]])
    blob = overview.pack(blocks, n_query=7, n_key=11, factor_q=4, factor_k=4, label="L0H1", causal=False)
    header, arrays = payload.unpack(blob)
    assert (header["sizes"], header["factors"]) == ([7, 11], [4, 4])
    assert (header["label"], header["causal"], header["pool"], header["top"]) == ("L0H1", False, "max", 1.0)
    assert arrays["blocks"].tolist() == [[128, 0, 0], [255, 26, 180]]


@pytest.mark.parametrize(
    ("means", "top", "codes"), [([[0.001, 0.004]], 0.004, [[128, 255]]), ([[0.0, 0.0]], 1.0, [[0, 0]])]
)
def test_overview_of_means_reaches_to_the_largest(means, top, codes):
    blob = overview.pack(means, n_query=1, n_key=2, factor_q=1, factor_k=1, pool="mean")
    header, arrays = payload.unpack(blob)
    assert header["top"] == pytest.approx(top)
    assert arrays["blocks"].tolist() == codes


def test_overview_of_noise_fits_its_budget():
    """512 x 512 blocks under 200 kB even where nothing can be compressed but the masked half."""
    shares = np.tril(np.random.default_rng(0).random((512, 512)))
    assert len(overview.pack(shares, n_query=16384, n_key=16384, factor_q=32, factor_k=32)) < 200_000


def test_curves_keep_gaps_and_range():
    header, arrays = payload.unpack(curves.pack([0, 10, 20], [[1, np.nan, 3], [2, 2, np.inf]], ["train", "val"]))
    assert (header["lo"], header["hi"]) == (1, 3)
    assert arrays["lines"].tolist() == [[0, payload.MISSING, 65534], [32767, 32767, payload.MISSING]]
    assert arrays["steps"].tolist() == [0, 10, 20]


def test_a_band_without_an_end_leaves_the_others_where_they_are():
    ends = [[[0.0, 1.0, -np.inf]], [[2.0, 3.0, np.inf]]]
    header, arrays = payload.unpack(curves.pack([0, 1, 2], [[1.0, 2.0, np.inf]], ["u"], band=ends))
    assert header["band"] == [0, 3]
    assert (arrays["band"].reshape(2, 3) == payload.MISSING).tolist() == [[False, False, True]] * 2


def test_curves_on_a_log_axis_drop_what_has_no_logarithm():
    header, arrays = payload.unpack(curves.pack([0, 1, 2], [[0.01, 0, 1]], ["u"], log_y=True))
    assert (header["lo"], header["hi"]) == (-2, 0)
    assert arrays["lines"].tolist() == [[0, payload.MISSING, 65534]]


@pytest.mark.parametrize("values", [[[5.0, 5.0]], [[0.0, 0.0]], [[np.nan, np.nan]]])
def test_curves_without_spread(values):
    header, _ = payload.unpack(curves.pack([0, 1], values, ["x"]))
    assert header["hi"] > header["lo"]


def test_head_curves_name_and_group_heads():
    values = np.arange(12.0).reshape(2, 2, 3)
    header, arrays = payload.unpack(curves.pack_heads([0, 5], values))
    assert header["labels"] == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    assert header["groups"] == [0, 0, 0, 1, 1, 1]
    assert header["group_names"] == ["layer 0", "layer 1"]
    back = arrays["lines"] / 65534 * 11
    np.testing.assert_allclose(back[4], values[:, 1, 1], atol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: atlas.pack(np.zeros((2, 3, 4)), {}), r"\(2, 3, 4\)"),
        (lambda: atlas.pack(np.zeros((2, 3, 4, 4)), {"x": np.zeros((3, 2))}), "'x' has shape"),
        (lambda: atlas.pack_thumbs(np.zeros((3, 4, 4)), {}, n=4), r"\(3, 4, 4\)"),
        (lambda: atlas.pack_thumbs(np.zeros((2, 3, 4, 4)), {}, n=4, causal=[True]), "causal has 1 entries"),
        (lambda: atlas.pack_thumbs(np.zeros((2, 3, 4, 4)), {}, n=4, layer_names=["a"]), "there are 2 layers"),
        (lambda: pattern.pack(np.zeros((2, 2)), ["a"]), "1 query tokens and 1 key tokens"),
        (lambda: pattern.pack(np.zeros((2, 3)), ["a", "b"], key_tokens=["a"]), "2 query tokens and 1 key tokens"),
        (lambda: pattern.pack(np.eye(2), ["a", "b"], query_start=5), "query_start=5 and key_start=0"),
        (lambda: overview.pack(np.eye(2), n_query=9, n_key=8, factor_q=4, factor_k=4), r"make \(3, 2\)"),
        (lambda: overview.pack(np.eye(2), n_query=2, n_key=2, factor_q=1, factor_k=1, pool="sum"), "'sum'"),
        (lambda: curves.pack([0, 1], [[1, 2, 3]], ["a"]), "2 steps"),
        (lambda: curves.pack([0], [[1], [2]], ["a", "a"]), "repeat"),
    ],
)
def test_wrong_shapes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bands_of_curves_have_their_own_range() -> None:
    band = [[[0.5, np.nan, 2.0]], [[1.5, np.nan, 4.0]]]
    header, arrays = payload.unpack(curves.pack([0, 10, 20], [[1, 2, 3]], ["x"], band=band))
    assert (header["lo"], header["hi"], header["band"]) == (1, 3, [0.5, 4.0])
    assert arrays["band"].shape == (2, 1, 3)
    assert arrays["band"][:, 0, 0].tolist() == [0, round(65534 / 3.5)] and arrays["band"][1, 0, 2] == 65534
    assert (arrays["band"][:, 0, 1] == payload.MISSING).all()
    assert "band" not in payload.unpack(curves.pack([0, 10], [[1, 2]], ["x"]))[0]


def test_a_band_below_0_ends_below_a_logarithmic_axis() -> None:
    header, _ = payload.unpack(curves.pack([0, 1], [[0.01, 1]], ["x"], band=[[[-1.0, 0.5]], [[0.02, 2.0]]], log_y=True))
    assert header["band"] == pytest.approx([-3, np.log10(2)])


def test_the_bands_of_heads_stand_around_their_lines() -> None:
    values = np.arange(8.0).reshape(2, 2, 2)
    header, arrays = payload.unpack(curves.pack_heads([0, 5], values, [values - 0.5, values + 0.5]))
    assert header["band"] == [-0.5, 7.5] and arrays["band"].shape == (2, 4, 2)
    assert arrays["band"][0, 3].tolist() == [round(65534 * 3 / 8), round(65534 * 7 / 8)]
