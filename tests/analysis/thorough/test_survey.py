"""What takes long of tests/analysis/test_survey.py."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import tracer
from tests.analysis.test_survey import (
    TINY,
    rows,
    run,  # noqa: F401
)
from tests.ranks import launch
from tests.tiers import quick
from tracer.analysis.head_jobs import head_jobs
from tracer.analysis.survey import FIELDS, kept_survey, survey
from tracer.config import InitConfig
from tracer.model import Transformer
from tracer.presets import preset
from tracer.store import Run

LOOKS = [f"{field}_{kind}" for field in FIELDS for kind in ("strongest", "kept")]


TOGETHER = """
import sys, tracer
found = tracer.survey(tracer.open_run(sys.argv[1]), tokens=5 * 4096, progress=lambda *done: print(*done))
print(repr(found.entropy.values.tolist()))
"""


def test_two_processes_share_the_rows(run: Run, tmp_path: Path, free_port: int) -> None:
    """Five batches: the last turn has work for one of them only."""
    shared, alone = (Path(shutil.copytree(run.dir, tmp_path / name)) for name in ("shared", "alone"))
    first, second = (out.splitlines() for out in launch(2, free_port, str(shared), program=("-c", TOGETHER)))
    one = survey(tracer.open_run(alone), tokens=5 * 4096)
    n = one.attrs["tokens_read"]
    assert [line.split()[1] for line in first[:-1]] == [str(n)] * 3 and first[-2].split()[0] == str(n)
    assert second == first[-1:]
    two = kept_survey(tracer.open_run(shared), run.steps[-1])
    assert two is not None and two.attrs == one.attrs
    xr.testing.assert_allclose(two.drop_vars(LOOKS), one.drop_vars(LOOKS), atol=1e-6)
    for kind in ("strongest", "kept"):  # of equal scores another look may be first
        here, there = (np.sort(x[f"score_{kind}"].values, -1) for x in (one, two))
        np.testing.assert_array_equal(here, there)


def test_standard_errors_are_how_surveys_differ() -> None:
    """Of other rows: the spread of 60 surveys of 64 rows beside the error that each says."""
    config = replace(TINY, n_ctx=20, n_layers=1, init=InitConfig(attn=0.5))
    model, many = Transformer(config).eval(), rows(60 * 64, 20)
    found = [survey(model, some) for some in many.split(64)]
    for name in ("entropy", "sink", "sharpest", "mass"):
        spread = np.std([one[name] for one in found], axis=0, ddof=1)
        said = np.mean([one[f"{name}_se"] for one in found], axis=0)
        np.testing.assert_allclose(spread, said, rtol=0.4, atol=1e-6)
    alone = survey(model, many[:1])
    assert np.isnan(alone.entropy_se).all() and np.isfinite(alone.entropy).all()


@pytest.mark.parametrize("name", quick(["demo", "induction"], ("induction",)))
def test_an_untrained_model_has_no_jobs(name: str) -> None:
    """Its heads attend evenly, so what they write changes smoothly with the place of the query."""
    config = preset(name).config
    tokens = torch.from_numpy(np.random.default_rng(0).zipf(1.4, (256, 64)) % 64)
    for seed in (0, 1):
        model = Transformer(replace(config.model, d_vocab=65), seed=seed).eval()
        found = survey(model, tokens, tokens=2**14)
        assert [len(head_jobs(model, found, *head).jobs) for head in np.ndindex(2, 4)] == [1] * 8
