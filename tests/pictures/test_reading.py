"""What the token view is sent: readings of attention known by hand, and every number read back as the browser does."""

import zlib
from typing import Any

import numpy as np
import pytest

from tracer.pictures import token_view as reading
from tracer.pictures.payload import unpack

ATTENTION = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.25, 0.25]]


def test_readings_by_hand() -> None:
    found = reading.readings(ATTENTION, [1.0, 3.0, 0.0])
    expected = [
        ATTENTION,
        [[0, 0, 0], [0, 1, 0], [0, 0.5, 0.5]],
        [[1, 0, 0], [0.25, 0.75, 0], [0.4, 0.6, 0]],
        [[0, 0, 0], [0, 1, 0], [0, 1, 0]],
    ]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(reading.readings(ATTENTION), found[:2])


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (" self", " self"),
        ("\n    ", "\n    "),
        ("a\r\n\tb", "a\n\tb"),
        ("\u202eevil", "‹U+202E›evil"),
        ("\0", "‹U+0000›"),
        ("\r", "␍"),
        ("<script>", "<script>"),
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("x" * 300, "x" * 119 + "…"),
        ("a b " * 100, ("a b " * 100)[:119] + "…"),
    ],
)
def test_a_token_in_a_text(token: str, expected: str) -> None:
    assert reading.laid_out(token) == expected


@pytest.mark.parametrize(
    ("sizes", "causal", "expected"),
    [
        ((30, 2, 4), True, (30, True, 2)),
        ((256, 4, 4), True, (256, True, 2)),
        ((2000, 4, 4), True, (256, True, 2)),
        ((128, 12, 12), True, (128, True, 1)),
        ((256, 12, 12), True, (256, False, 2)),
        ((256, 12, 12), False, (256, False, 1)),
        ((256, 36, 20), True, (96, False, 2)),
        ((1, 1, 1), False, (1, True, 2)),
    ],
)
def test_a_plan_by_size(sizes: tuple[int, int, int], causal: bool, expected: tuple[int, bool, int]) -> None:
    found = reading.plan(*sizes, causal=causal)
    assert (found.n, found.whole, found.width) == expected


def model(n_layers: int, n_heads: int, n: int, causal: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Patterns [layer head query_pos key_pos] and norms [layer head key_pos]."""
    draw = np.random.default_rng(seed)
    scores = np.exp(2 * draw.normal(size=(n_layers, n_heads, n, n)))
    scores = np.tril(scores) if causal else scores
    return scores / scores.sum(-1, keepdims=True), draw.random((n_layers, n_heads, n)) + 0.1


def read_back(header: dict[str, Any], arrays: dict[str, np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Every reading [kind layer head query_pos key_pos] of the layers that are held, and the means."""
    first, last = header["layers"]
    cells = np.tril_indices(n) if header["triangle"] else np.indices((n, n)).reshape(2, -1)

    def decoded(codes: np.ndarray) -> np.ndarray:
        full = np.zeros((*codes.shape[:-1], n, n))
        full[..., cells[0], cells[1]] = codes / 65534 if codes.dtype == np.uint16 else (codes / 255) ** 2
        return full

    raw = decoded(arrays["shares"])
    sums = arrays["sums"][:, :-1].reshape(len(arrays["sums"]), last - first, -1, n)
    kinds = []
    for kind, total in enumerate(sums):
        x = raw * arrays["norms"][:, :, None] if kind > 1 else raw.copy()
        if kind % 2 and header["start"] == 0:
            x[..., 0] = 0
        kinds.append(np.divide(x, total[..., None], out=np.zeros_like(x), where=total[..., None] > 0))
    return np.stack(kinds), decoded(arrays["means"])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("start", "stop"), [(0, 9), (5, 9)])
def test_every_number_comes_back(causal: bool, weighted: bool, start: int, stop: int) -> None:
    patterns, norms = model(2, 3, 9, causal)
    page = slice(start, stop)
    exists = np.array([[True, True, True], [True, True, False]])
    blob = reading.pack(
        lambda layer, head: patterns[layer, head, page], list("abcdefghi")[page], there=exists, causal=[causal] * 2,
        norms=norms if weighted else None, start=start,
    )  # fmt: skip
    header, arrays = unpack(blob)
    found, means = read_back(header, arrays, stop - start)
    expected = np.zeros((4 if weighted else 2, 2, 3, stop - start, stop - start))
    for layer, head in np.argwhere(exists):
        every = reading.readings(patterns[layer, head], norms[layer, head] if weighted else None)
        expected[:, layer, head] = every[:, page, page]
    np.testing.assert_allclose(found, expected, atol=2e-4)  # a share of 1/131068, over what the first token left
    np.testing.assert_allclose(means, expected.sum((1, 2)) / 5, atol=1e-5)
    for way, axis in enumerate((-1, -2)):  # where a query looks, who looks at a key
        np.testing.assert_allclose(arrays["strongest"][way] / 65534, expected.max(axis), atol=1e-5)
        np.testing.assert_array_equal(arrays["at"][way][:, exists], expected.argmax(axis)[:, exists])
    lost = 1 - arrays["sums"][1::2] / arrays["sums"][::2]
    of_first = [reading.readings(patterns[x, y], norms[x, y])[::2, page, 0] for x, y in np.argwhere(exists)]
    np.testing.assert_allclose(lost[:, [0, 1, 2, 3, 4]], np.stack(of_first, 1)[: len(lost)], atol=1e-6)
    np.testing.assert_allclose(lost[:, -1], np.mean(of_first, 0)[: len(lost)], atol=1e-6)
    assert (
        (header["start"], header["part"]) == (start, start > 0)
        and header["apart"]
        and (arrays["norms"].size > 0) == weighted
    )


def test_one_layer_where_all_are_too_many() -> None:
    """Every head's strongest link is there all the same."""
    patterns, norms = model(12, 12, 256, True)
    blob = reading.pack(
        lambda layer, head: patterns[layer, head], ["x"] * 256, there=np.ones((12, 12)), causal=[True] * 12,
        norms=norms, layer=7,
    )  # fmt: skip
    header, arrays = unpack(blob)
    assert header["layers"] == [7, 8] and arrays["shares"].shape == (1, 12, 256 * 257 // 2)
    assert sum(a.nbytes for a in arrays.values()) <= reading.BUDGET
    np.testing.assert_allclose(arrays["strongest"][0, 0] / 65534, patterns.max(-1), atol=1e-5)
    np.testing.assert_allclose(read_back(header, arrays, 256)[0][0, 0], patterns[7], atol=1e-5)


@pytest.mark.parametrize("sizes", [(64, 4, 4), (128, 12, 12), (192, 24, 16), (96, 36, 20), (256, 12, 12)])
@pytest.mark.parametrize("causal", [True, False])
def test_a_message_keeps_to_its_budget(sizes: tuple[int, int, int], causal: bool) -> None:
    _, n_layers, n_heads = sizes
    n = reading.plan(*sizes, causal=causal).n
    even = np.full((n, n), 1 / n)
    blob = reading.pack(
        lambda layer, head: even, ["x"] * n, there=np.ones((n_layers, n_heads)), causal=[causal] * n_layers,
        norms=np.ones((n_layers, n_heads, n)),
    )  # fmt: skip
    length = int.from_bytes(blob[:4], "little")
    assert len(zlib.decompress(blob[4 + length :])) <= reading.BUDGET


def test_a_byte_a_number_is_within_its_error() -> None:
    patterns, _ = model(12, 12, 128, True)
    blob = reading.pack(
        lambda layer, head: patterns[layer, head], ["x"] * 128, there=np.ones((12, 12)), causal=[True] * 12
    )
    header, arrays = unpack(blob)
    error = np.abs(read_back(header, arrays, 128)[0][0] - patterns)
    assert arrays["shares"].dtype == np.uint8 and error.max() <= 0.004


def test_rows_without_a_number_are_empty() -> None:
    """A run that diverged."""
    blob = reading.pack(
        lambda layer, head: np.full((2, 2), np.nan), ["a", "b"], there=[[True]], causal=[True], norms=[[[np.nan, 1]]]
    )
    header, arrays = unpack(blob)
    assert not read_back(header, arrays, 2)[0].any() and not arrays["strongest"].any()


def test_too_many_tokens_are_named() -> None:
    with pytest.raises(ValueError, match="257 tokens of 1 x 1 heads .* pass 256 of them"):
        reading.pack(lambda layer, head: [[]], ["x"] * 257, there=[[True]], causal=[True])
