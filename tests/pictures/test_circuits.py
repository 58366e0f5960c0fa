"""What the Circuits page sends of compositions: only edges that exist."""

import numpy as np
import pytest

from tracer.pictures.bipartite import ALL, OTHERS, OWN, pack
from tracer.pictures.payload import unpack


def scores(seed: int) -> np.ndarray:
    """3 layers of 2 heads: edges from layer 0 to 1 and 2, and from 1 to 2."""
    found = np.random.default_rng(seed).random((3, 2, 3, 2))
    for layer1 in range(3):
        found[layer1, :, : layer1 + 1] = np.nan
    return found


def test_edges_and_their_scores() -> None:
    given = {"k": scores(0), "q": scores(1)}
    header, arrays = unpack(pack(given, 0.25, 0.01, 0.27))
    sure = [int((one > 0.27).sum()) for one in given.values()]
    assert {name: header[name] for name in ("kinds", "layers", "heads", "mean", "sd", "total", "sure")} == {
        "kinds": ["k", "q"], "layers": 3, "heads": 2, "mean": 0.25, "sd": 0.01, "total": 12, "sure": sure,
    }  # fmt: skip
    edges = [tuple(edge) for edge in arrays["edges"].tolist()]
    assert len(edges) == 12 == len(set(edges)) and all(a < b for a, _, b, _ in edges)
    for kind, row in zip(given.values(), arrays["scores"], strict=True):
        assert row.tolist() == [np.float32(kind[edge]) for edge in edges]


def test_one_layer_has_no_edges() -> None:
    _, arrays = unpack(pack({"k": np.full((1, 4, 1, 4), np.nan)}, 0.1, 0.01, 0.12))
    assert arrays["edges"].shape == (0, 4) and arrays["scores"].shape == (1, 0)


@pytest.mark.parametrize("given", [{"k": np.zeros((2, 3, 2, 4))}, {"k": scores(0), "q": np.zeros((2, 2, 2, 2))}])
def test_other_shapes_are_refused(given: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="layer1 head1 layer2 head2"):
        pack(given, 0.1, 0.01, 0.12)


def test_of_a_thousand_heads_the_strongest_are_sent() -> None:
    """Of 32 layers of 32 heads: every head has its own strongest, and all of them stay counted."""
    n = 32
    layer1, layer2 = np.arange(n)[:, None, None, None], np.arange(n)[:, None]
    k = np.where(layer1 < layer2, np.random.default_rng(0).random((n, n, n, n)), np.nan)
    blob = pack({"k": k, "q": k, "v": k}, 0.25, 0.125, 0.5)
    header, arrays = unpack(blob)
    assert len(blob) < 500_000 and header["total"] == n * n * n * (n - 1) // 2 > ALL
    assert header["sure"] == [int((k > 0.5).sum())] * 3
    found = {tuple(edge) for edge in arrays["edges"].tolist()}
    best = np.argsort(np.nan_to_num(k, nan=-1), axis=None)[::-1]
    assert {tuple(map(int, np.unravel_index(one, k.shape))) for one in best[:OTHERS]} <= found
    for head in ((0, 3), (16, 0), (31, 31)):
        for own, side in ((k[head], 0), (k[:, :, *head], 2)):
            most = np.argsort(np.nan_to_num(own, nan=-1), axis=None)[::-1][: min(OWN, np.isfinite(own).sum())]
            others = [tuple(map(int, np.unravel_index(one, own.shape))) for one in most]
            assert {(*head, *other) if side == 0 else (*other, *head) for other in others} <= found
