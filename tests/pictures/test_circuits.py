"""What the Circuits page sends of compositions: only edges that exist."""

import numpy as np
import pytest

from tracer.pictures.bipartite import pack
from tracer.pictures.payload import unpack


def scores(seed: int) -> np.ndarray:
    """3 layers of 2 heads: edges from layer 0 to 1 and 2, and from 1 to 2."""
    found = np.random.default_rng(seed).random((3, 2, 3, 2))
    for layer1 in range(3):
        found[layer1, :, : layer1 + 1] = np.nan
    return found


def test_edges_and_their_scores() -> None:
    given = {"k": scores(0), "q": scores(1)}
    header, arrays = unpack(pack(given, 0.25, 0.01))
    assert {name: header[name] for name in ("kinds", "layers", "heads", "mean", "sd")} == {
        "kinds": ["k", "q"], "layers": 3, "heads": 2, "mean": 0.25, "sd": 0.01,
    }  # fmt: skip
    edges = [tuple(edge) for edge in arrays["edges"].tolist()]
    assert len(edges) == 12 == len(set(edges)) and all(a < b for a, _, b, _ in edges)
    for kind, row in zip(given.values(), arrays["scores"], strict=True):
        assert row.tolist() == [np.float32(kind[edge]) for edge in edges]


def test_one_layer_has_no_edges() -> None:
    _, arrays = unpack(pack({"k": np.full((1, 4, 1, 4), np.nan)}, 0.1, 0.01))
    assert arrays["edges"].shape == (0, 4) and arrays["scores"].shape == (1, 0)


@pytest.mark.parametrize("given", [{"k": np.zeros((2, 3, 2, 4))}, {"k": scores(0), "q": np.zeros((2, 2, 2, 2))}])
def test_other_shapes_are_refused(given: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="layer1 head1 layer2 head2"):
        pack(given, 0.1, 0.01)
