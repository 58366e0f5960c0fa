"""Which of many runs are meant, and in what they differ."""

import re
import shutil

import pytest

from tracer.store.choosing import differences, found_by, last_values, names_in, settings, values_of, wanted
from tracer.store.meta import write_meta

RUN = {
    "run": "first-try", "preset": "demo", "status": "finished", "kind": "trained", "author": "", "note": "Warm start",
    "created": "2026-11-22T23:58:52+00:00", "step": 300, "n_params": 45_376, "optim.lr": 0.02, "optim.adam_lr": None,
    "optim.clip": 1.0, "seed": 1, "model.tie_embeddings": False, "model.mlp_hidden": [64, 64], "model.d_head": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "demo", "FIRST", "warm start", "lr>0.01", "lr>=0.02", "optim.lr<1", "lr=2e-2", "seed=1 demo step>=300",
        "seed!=2", "tie_embeddings=false", "d_head=null", "mlp_hidden=[64,64]", "created>2026-11-22T20", "preset=demo",
        "n_params<1e5", "adam_lr!=1", "mlp_hidden!=[64]", "lr!=fast", "step<=300", "step<=301", "step>299", "step<301",
        "lr<0.01 or seed=1", "not lr<0.01", "demo and not seed=2", "seed=2 or demo seed=1", "not seed=1 or demo",
        "seed=2, or demo", "demo, seed=1 & lr<1",
    ],
)  # fmt: skip
def test_what_holds(text):
    assert wanted(text)(RUN)


@pytest.mark.parametrize(
    "text",
    [
        "lr<0.01", "seed=2", "demo seed=2", "nothing=1", "clip!=1", "trained-by-me", "tie_embeddings=true", "d_head>3",
        "d_head=64", "created>2027", "run=first", "not demo", "lr<0.01 or seed=2", "demo, seed=2",
        "step<300", "step>300", "step<=299", "step>=301", "mlp_hidden!=[64,64]",
    ],
)  # fmt: skip
def test_what_does_not(text):
    assert not wanted(text)(RUN)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lr>abc", "“abc” is no number: lr> needs one after it, or a date"), ("lr>", "lr> needs a value after it"),
        ("lr>3abc", "“3abc” is no number"), ("tag>a", "tag>a: a run has a tag (=) or has it not (!=)"),
        ("preset < demo", "“demo” is no number: preset< needs one"), ("seed=1 >3", "“>” compares nothing"),
        (">3", "“>” compares nothing: write a name before it, as in lr>0.01"), ("=", "“=” compares nothing"),
        ("lr == 3", "lr== is no comparison: there are =, !=, <, <=, >, >="), ("lr=>3", "lr=> is no comparison"),
        ("demo or", "The end of the line is not expected here"), ("or demo", "“or” is not expected here"),
        ("not", "The end of the line is not expected here"),
        ("2>1", "“2” is not a name that can be compared, as lr is in lr>1"),
    ],
)  # fmt: skip
def test_what_is_no_question_says_so(text, why):
    for read in (wanted, names_in):
        with pytest.raises(ValueError, match="^" + re.escape(why)):
            read(text)


def test_differences_leave_facts_out():
    other = {**RUN, "run": "second", "step": 20, "note": "", "seed": 2, "optim.extra": 3}
    assert differences([RUN, other]) == {"seed": [1, 2], "optim.extra": [None, 3]}
    assert differences([RUN, {**RUN, "run": "copy"}]) == {} == differences([RUN]) == differences([])


def test_settings_are_those_of_run_json(run):
    found = settings(run)
    assert found["run"] == run.name and found["model.n_layers"] == run.config.model.n_layers
    assert found["optim.lr"] == run.config.optim.lr and "config" not in found and found["status"] == run.status
    assert wanted(f"seed={run.config.seed} n_layers>=1 {run.name}")(found)


def test_a_setting_that_is_newer_than_the_run_has_its_default(run):
    before, meta = settings(run), run.meta
    del meta["config"]["record"]["state_every"]
    write_meta(run.dir, meta)
    assert settings(run) == before and before["record.state_every"] == 100


def test_the_last_numbers_of_a_trace_are_asked_for_where_no_setting_has_the_name(run):
    row = run.trace.isel(step=-1)
    top, least = float(row["induction"].max()), float(row["induction"].min())
    assert sorted(last_values(run, "induction")) == sorted(row["induction"].values.ravel().tolist())
    assert last_values(run, "learning_rate") == [run.trace["learning_rate"].values[-2]]  # the last row has no update
    assert last_values(run, "pattern") == last_values(run, "nothing") == []
    for text, holds in ((f"induction>={top}", True), (f"induction>{top}", False), (f"induction<={least}", True),
                        ("nothing<1", False), (f"induction>={top} seed={run.config.seed}", True)):  # fmt: skip
        assert found_by(text)(run) == holds
    assert wanted("lr=0.02 lr<1")(RUN, lambda name: [2.0])  # a setting comes first


def test_a_trace_that_cannot_be_read_holds_no_numbers(run):
    shutil.rmtree(run.dir / "trace.zarr")
    assert last_values(run, "induction") == [] and not found_by("induction>=0")(run)


def test_a_comparison_may_have_spaces_and_names_what_it_is_about() -> None:
    assert names_in("lr >= 2e-3 tag=mine first induction>0.5 lr<1") == ["lr", "induction"]
    assert wanted("optim.lr  >=  0.02 lr < 1")(RUN) and not wanted("lr > 0.02")(RUN)


def test_what_a_name_says_of_a_run(run) -> None:
    assert values_of(run, "seed") == [run.config.seed] and values_of(run, "nothing") == []
    assert sorted(values_of(run, "induction")) == sorted(run.trace["induction"].values[-1].ravel().tolist())
