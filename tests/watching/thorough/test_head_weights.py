"""Which rows of which weight are a head's, where attention is written by hand and neither q nor k is seen.

What the first tier leaves.
"""

import torch

from tests.watching.test_head_weights import Packed, recorded
from tracer.store import open_run


def test_what_rotary_embeddings_turn_is_not_known(here: object) -> None:
    """No two stretches have the products of the scores: the layer is nan, and the one above is not."""
    torch.manual_seed(0)
    attentions = [Packed("by head", turned=True), Packed("by head")]
    expected = recorded(*attentions)
    norms = torch.from_numpy(open_run("r").trace["head_weight_norm"].values[-1])
    assert norms[0].isnan().all()
    torch.testing.assert_close(norms[1].T, torch.stack(expected[1]), rtol=1e-5, atol=0)
