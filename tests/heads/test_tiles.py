"""Every score in exactly one tile, no tile too large."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracer.heads.tiles import MAX_ROWS, tiles

SIZES = st.tuples(*[st.integers(1, 5)] * 3, st.integers(1, 300), st.integers(1, 300))


@given(SIZES, st.integers(1, 10**5), st.integers(1, 300))
def test_every_score_once(sizes: tuple[int, ...], scores: int, cell: int) -> None:
    batch, kv_head, group, query_pos, key_pos = sizes
    cut = tiles(batch, kv_head, group, query_pos, key_pos, scores, cell)
    covered = torch.zeros(batch, kv_head, group, query_pos)
    for b in cut.sequences:
        for rows in cut.rows:
            for kv, g in cut.heads:
                tile = covered[b, kv, g, rows]
                tile += 1
                assert tile.numel() * key_pos <= cut.largest <= max(scores, key_pos)
                assert tile.shape[1] == 1 or tile.shape[2] == group
                assert tile.shape[0] == 1 or tuple(tile.shape[1:3]) == (kv_head, group)
    assert covered.min() == covered.max() == 1


@pytest.mark.parametrize("cell", [1, 5, 32, 100, 128, 171, 400])
def test_rows_stay_within_cells_or_hold_whole_ones(cell: int) -> None:
    for rows in tiles(1, 1, 1, 1000, 1000, 10**6, cell).rows:
        assert rows.stop - rows.start <= MAX_ROWS
        inside_one = rows.start // cell == (rows.stop - 1) // cell
        assert inside_one or (rows.start % cell == 0 and (rows.stop % cell == 0 or rows.stop == 1000))
