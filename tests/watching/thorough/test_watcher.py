"""Watching is measuring and nothing else: what is read is right, and the model is afterwards what it was.

What the first tier leaves.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import tracer


def test_a_model_that_is_saved_inside_needs_nothing_of_ours(tmp_path: Path) -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    with tracer.watch(model, run=tmp_path / "run"), tracer.watch(model):
        torch.save(model, tmp_path / "model.pt")
    code = (
        "import sys; sys.modules['tracer'] = None; import torch;"
        "model = torch.load(sys.argv[1], weights_only=False); print(model(torch.ones(1, 3, 8)).tolist())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model.pt"], capture_output=True, text=True, check=True
    )
    torch.testing.assert_close(torch.tensor(json.loads(said.stdout)), model(torch.ones(1, 3, 8)))
