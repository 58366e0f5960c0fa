"""Where a recorder writes: a name under checkpoints/, a path as it is."""

from pathlib import Path

import pytest
from torch import nn

import tracer


@pytest.mark.parametrize(("run", "folder"), [("n", "checkpoints/n"), ("./n", "n"), ("a/b", "a/b")])
def test_a_name_lies_under_checkpoints_and_a_path_where_it_says(here: Path, run: str, folder: str) -> None:
    recorder = tracer.watch(nn.TransformerEncoderLayer(16, 2, batch_first=True), run=run)
    recorder.close()
    assert str(recorder.dir) == folder
