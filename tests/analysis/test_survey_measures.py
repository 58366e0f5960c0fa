"""Measures of a user's over a corpus: mean and error as by hand, kept in the run, read where nobody has the code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tracer
from tests.causal_families import causal
from tracer.analysis import survey as surveying
from tracer.analysis.survey import kept_survey, survey
from tracer.config import ModelConfig
from tracer.interventions.edits import recording
from tracer.model import Transformer
from tracer.store import Run
from tracer.store.surveys import read_survey, write_survey

TINY = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=12, d_vocab=50)


@tracer.measure(label="On even tokens", unit="share", range=(0, 1), chance=0.5)
def on_even(rows: Any) -> Tensor:
    """Share of even tokens; of queries that are even themselves."""
    keys = rows.tokens[:, : rows.pattern.shape[-1]]
    found = torch.where(keys[:, None, None] % 2 == 0, rows.pattern, 0).sum(-1)
    odd = rows.tokens[:, list(rows.positions)] % 2 == 1
    return found.masked_fill(odd[:, None], float("nan"))


def of_scores(rows: Any) -> Tensor:
    return (rows.z.norm(dim=-1).transpose(1, 2) + rows.lse).where(rows.pattern.amax(-1) > 0.2, float("nan"))


def tokens(n: int = 9) -> Tensor:
    return torch.randint(2, 50, (n, 12), generator=torch.Generator().manual_seed(1))


def by_hand(pattern: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of a pattern [batch head query key], the mean over even queries from 1 on, and Cochran's error of a ratio."""
    even = (rows % 2 == 0).double()
    values = (pattern.double() * even[:, None, None]).sum(-1)[:, :, 1:]
    n = even[:, 1:].sum(-1)[:, None]
    total = (values * even[:, None, 1:]).sum(-1)
    mean = total.sum(0) / n.sum()
    left = ((total - mean * n) ** 2).sum(0) * len(rows) / (len(rows) - 1)
    return mean, left.sqrt() / n.sum()


@pytest.mark.parametrize("name", ["ours", "GPT-2", "BLOOM"])
def test_a_mean_over_the_corpus_is_that_of_the_patterns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "SAMPLE", 1)
    monkeypatch.setattr(surveying, "AT_ONCE", 48)  # several batches
    model: Any = Transformer(TINY).eval() if name == "ours" else tracer.load_hf(causal(name))
    rows = tokens()
    with torch.no_grad(), recording("hook_pattern") as seen:
        model(rows)
    found = survey(model, rows, measures=on_even)
    for layer in range(model.n_layers):
        mean, error = by_hand(seen[f"blocks.{layer}.attn.hook_pattern"][..., :12], rows)
        np.testing.assert_allclose(found.on_even[layer], mean, atol=1e-6)
        np.testing.assert_allclose(found.on_even_se[layer], error, atol=1e-6)
    assert found.on_even.attrs["chance"] == 0.5 and found.on_even.attrs["probe"] == "rows of tokens"


def test_rows_that_are_looked_at_know_where_they_are_and_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every third row: q, z and scores are those of the model at these positions."""
    monkeypatch.setattr(surveying, "SAMPLE", 3)
    model, rows, seen = Transformer(TINY).eval(), tokens(), []

    def looked(block: Any) -> Tensor:
        seen.append(block)
        return block.lse

    with torch.no_grad(), recording("hook_q", "hook_z", "hook_attn_scores") as taps:
        model(rows)
    survey(model, rows, measures=looked)
    starts = {block.positions.start for block in seen}
    assert starts == {1, 2, 3} and {block.positions.step for block in seen} == {3}
    by_layer = [seen[: len(seen) // 2], seen[len(seen) // 2 :]]
    for layer, blocks in enumerate(by_layer):
        for block in blocks:
            at, some = list(block.positions), [rows.tolist().index(row) for row in block.tokens.tolist()]
            for name, tap in (("q", "hook_q"), ("z", "hook_z")):
                wanted = taps[f"blocks.{layer}.attn.{tap}"][some][:, at]
                torch.testing.assert_close(getattr(block, name), wanted, atol=1e-5, rtol=1e-5)
            scores = taps[f"blocks.{layer}.attn.hook_attn_scores"][some][:, :, at]
            torch.testing.assert_close(block.lse, scores.logsumexp(-1), atol=1e-5, rtol=1e-5)


def test_one_that_goes_wrong_is_left_out_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it went well at first: a mean of half a corpus is not that of the corpus."""
    monkeypatch.setattr(surveying, "AT_ONCE", 12)
    calls: list[int] = []

    def fickle(rows: Any) -> Tensor:
        calls.append(1)
        if len(calls) > 5:
            raise RuntimeError("no more")
        return rows.lse

    model = Transformer(TINY).eval()
    with pytest.warns(RuntimeWarning, match="the measure fickle .* raised RuntimeError: no more") as said:
        found = survey(model, tokens(), measures=[fickle, on_even])
    assert len(said) == 1 and "fickle" not in found and np.isfinite(found.on_even).all()
    np.testing.assert_array_equal(found.entropy, survey(model, tokens()).entropy)


@pytest.mark.parametrize("name", ["sink", "row_kept", "entropy"])
def test_a_name_that_a_survey_has_is_refused(name: str) -> None:
    def other(rows: Any) -> Tensor:
        return rows.lse

    other.__name__ = name
    with pytest.raises(ValueError, match="name"):
        survey(Transformer(TINY), tokens(), measures=other)


def test_a_run_keeps_it_for_those_without_the_code(short_toy: Path, tmp_path: Path) -> None:
    run = Run(shutil.copytree(short_toy, tmp_path / "run"))
    plain = survey(run, tokens=512)
    made = survey(run, tokens=512, measures=[on_even, of_scores])
    assert "on_even" not in plain and np.isfinite(made.of_scores).any()
    kept = kept_survey(Run(run.dir), run.steps[-1])
    assert kept is not None and kept.identical(made)
    assert kept.on_even.attrs["long_name"] == "On even tokens" and kept.attrs["corpus"] == "held-out text"
    assert survey(run, tokens=512).identical(plain)

    def on_even_now(rows: Any) -> Tensor:
        return rows.pattern[..., 0]

    on_even_now.__name__ = "on_even"
    again = survey(run, tokens=512, measures=on_even_now)
    assert not np.allclose(again.on_even, made.on_even)
    np.testing.assert_allclose(again.on_even, again.sink)


def test_what_a_stranger_says_of_it_is_text_and_a_part_that_is_gone_is_damage(short_toy: Path, tmp_path: Path) -> None:
    run = Run(shutil.copytree(short_toy, tmp_path / "run"))
    survey(run, tokens=512, measures=on_even)
    (path,) = (run.dir / "surveys").iterdir()
    arrays, corpus, _ = read_survey(run.dir, path.stem) or ({}, "", "")
    for said in ("[", "[]", json.dumps({"on_even": [1]})):
        write_survey(run.dir, path.stem, arrays, corpus, said)
        found = kept_survey(run, run.steps[-1])
        assert found is not None and found.on_even.attrs["long_name"] == "On even"
    del arrays["own:on_even:looks"]
    write_survey(run.dir, path.stem, arrays, corpus)
    with pytest.raises(ValueError, match="damaged"):
        kept_survey(run, run.steps[-1])
