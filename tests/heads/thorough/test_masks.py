"""Grouped heads, masks, outputs and thumbnails against patterns made by hand in float64: what the first tier leaves."""

import torch

from tests.heads.test_masks import SCALE, qkv
from tracer.heads import definitions, pattern, stats


def test_distances_keep_their_digits_far_from_the_start() -> None:
    n = 4096
    q, k, _ = qkv(1, n, n, 1, 1, d=4)
    near = (torch.arange(n)[:, None] - torch.arange(n)).abs() < 3
    got = stats(q, k, scale=SCALE, mask=near)
    want = definitions.attended_distance(pattern(q.double(), k.double(), scale=SCALE, mask=near))
    torch.testing.assert_close(got["attended_distance"].double(), want, atol=5e-5, rtol=0, equal_nan=True)
