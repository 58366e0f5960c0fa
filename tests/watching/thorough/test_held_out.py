"""The loss on what is held out, beside the same taken by hand in float64: what the first tier leaves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tracer
from tests.watching.test_held_out import MASKED, ROWS, Masked
from tracer.store import open_run


def test_labels_and_padding_count_as_hugging_face_counts_them(here: Path, build: Callable[..., Any]) -> None:
    model, mask = build("llama").train(), torch.ones(22, 17, dtype=torch.long)
    for i in range(22):
        mask[i, 17 - i % 6 :] = 0
    labels = torch.where(mask.bool(), ROWS, -100)
    parts = list(zip(ROWS.split(4), mask.split(4), labels.split(4), strict=True))
    labelled = [{"input_ids": x, "attention_mask": m, "labels": y} for x, m, y in parts]
    bare = [{"input_ids": x, "attention_mask": m} for x, m, _ in parts]
    with torch.no_grad():
        logits = model.eval()(ROWS, attention_mask=mask).logits.double()
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
    for run, given in (("labelled", labelled), ("bare", bare)):
        recorder = tracer.watch(model.train(), run=run, every=1, held_out=given)
        model(input_ids=ROWS[:4], labels=ROWS[:4])
        recorder.close()
        np.testing.assert_allclose(
            open_run(run).trace["val_loss"][0], float(expected), rtol=2e-3 if given is labelled else 1e-5
        )


@pytest.mark.parametrize("targets", [MASKED, torch.ones_like(MASKED).tril()], ids=["masked", "a mask"])
def test_a_list_that_may_be_batch_or_batches_is_left_out(here: Path, gpt: Callable[..., Any], targets: Tensor) -> None:
    recorder = tracer.watch(model := Masked(gpt()), run="r", held_out=[ROWS[:, :-1], targets])
    with pytest.warns(RuntimeWarning, match=r"as a tuple, \(x, y\), and batches of ids as lists of one, "):
        model(ROWS[:4, :-1], ROWS[:4, 1:])
    assert recorder.off is None
    recorder.close()
    assert np.isnan(open_run("r").trace["val_loss"]).all()
