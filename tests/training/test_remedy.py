"""What would have helped: as it was equals the run, each change is judged by the same rule, and nothing is lost."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.trainings import diverging
from tracer.config import ModelConfig, OptimConfig, TrainConfig
from tracer.diagnosis import examine
from tracer.diagnosis.causes import lasting_causes, smaller_steps
from tracer.diagnosis.findings import Advice, Finding
from tracer.diagnosis.futures import made_for
from tracer.diagnosis.remedies import named, remedies
from tracer.store import Run
from tracer.store.check import check
from tracer.training import interrupts, loop
from tracer.training.remedy import remedy


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = loop.train(diverging(tmp_path_factory.mktemp("runs") / "sick"), quiet=True)
    assert run.status == "diverged"
    return run


def test_what_helps_is_told_from_what_does_not(sick: Run) -> None:
    step = sick.meta["divergence"]["step"]
    seen = []
    found = remedy(sick, tries=("rate", "dropout"), until=step + 20, quiet=True, progress=seen.append)
    was, rate, dropout = found
    assert seen == found and [one.name for one in found] == ["as it was", "rate", "dropout"]
    assert was.run.meta["divergence"]["step"] == was.since == step and was.run.status == "diverged"
    for name in ("train_loss", "entropy", "grad_norm"):  # bit for bit what the run recorded
        n = sick.trace.sizes["step"]
        np.testing.assert_array_equal(was.run.trace[name][: n - 1], sick.trace[name][: n - 1])
    assert (was.named, rate.named, dropout.named) == (False, True, False) and not was.helped
    assert rate.run.config.optim.lr == 0.25 and rate.run.config.model == sick.config.model
    assert rate.words == "learning rate 0.25, not 1"
    for one in (rate, dropout):
        assert one.helped == ("divergence" not in [f.kind for f in examine(one.run).findings])
        assert one.since == (one.run.meta.get("divergence") or {}).get("step") and not check(one.run.dir).damaged
    assert [one.dir for one in made_for(sick, "divergence")] == [one.run.dir for one in found]


def test_what_is_there_is_not_trained_again(sick: Run) -> None:
    until = sick.meta["divergence"]["step"] + 20
    before = [(one.dir, one.meta["created"]) for one in (f.run for f in remedy(sick, tries=("rate",), until=until))]
    again = remedy(sick, tries=("rate",), until=until, quiet=True)
    assert [(one.run.dir, one.run.meta["created"]) for one in again] == before
    with pytest.raises(ValueError, match="another stretch: move that folder away"):
        remedy(sick, tries=("rate",), until=until + 1, quiet=True)


def test_a_change_of_the_model_begins_at_0(sick: Run) -> None:
    (norm,) = (one for one in remedies(sick.config) if one.name == "norm")
    assert not norm.keeps_model and norm.config.model.norm == "rms"
    found = remedy(sick, tries=("norm",), until=sick.meta["divergence"]["step"] + 20, quiet=True)
    assert found[1].run.meta["parent"] is None and found[1].run.config.model.norm == "rms"
    assert found[1].run.meta["remedy"]["name"] == "norm" and found[1].run.config.seed == sick.config.seed


def test_each_change_is_of_what_the_run_had() -> None:
    config = TrainConfig(
        model=ModelConfig(attn_scale="none", norm="none", dropout=0.45),
        optim=OptimConfig(name="muon", lr=0.02, adam_lr=0.004, warmup=30, clip=None, weight_decay=0.02),
    )
    tried = {one.name: one for one in remedies(config)}
    moved = ["rate", "faster", "warmup", "clip", "decay", "no-decay", "qk-clip", "sigma"]
    assert list(tried) == [*moved, "dropout", "scale", "qk-norm", "sink", "soft-cap", "norm"]
    o = {name: one.config.optim for name, one in tried.items()}
    assert (o["rate"].lr, o["rate"].adam_lr) == (0.005, 0.001) and (o["faster"].lr, o["faster"].adam_lr) == (
        0.08,
        0.016,
    )
    assert (o["warmup"].warmup, o["clip"].clip, o["decay"].weight_decay, o["no-decay"].weight_decay) == (120, 1, 0.2, 0)
    m = {name: one.config.model for name, one in tried.items()}
    assert (m["dropout"].dropout, m["scale"].attn_scale, m["norm"].norm) == (0.5, "d_head", "rms")
    assert o["sigma"].reparam == "sigma"
    assert (o["qk-clip"].qk_clip, m["qk-norm"].qk_norm, m["soft-cap"].attn_softcap) == (30, True, 30)
    assert [name for name, one in tried.items() if not one.keeps_model] == [
        "scale",
        "qk-norm",
        "sink",
        "soft-cap",
        "norm",
    ]
    for name, one in tried.items():  # one thing at a time
        parts = [part for part in ("model", "optim") if getattr(one.config, part) != getattr(config, part)]
        assert len(parts) == 1 and one.words.count(" not ") + one.words.startswith("no ") >= 1, name
    late = [one.name for one in remedies(replace(config, model=replace(config.model, dropout=0.5)), start=119)]
    assert "warmup" not in late and "dropout" not in late and "warmup" in [r.name for r in remedies(config, start=118)]
    plain = TrainConfig(optim=OptimConfig(clip=2.0, weight_decay=0.0, warmup=10))
    less = {one.name: one.config.optim for one in remedies(plain)}
    assert "no-decay" not in less and "norm" not in less and less["decay"].weight_decay == 0.1
    assert less["clip"].clip == 0.5 and less["warmup"].warmup == 100
    clipped = {one.name: one.config.optim for one in remedies(replace(plain, optim=OptimConfig(qk_clip=8.0)))}
    assert clipped["qk-clip"].qk_clip == 2 and not {"qk-norm", "sink", "soft-cap", "sigma"} & clipped.keys()
    with_sink = [one.name for one in remedies(replace(plain, model=ModelConfig(sink="zero")))]
    assert "qk-norm" in with_sink and not {"qk-clip", "sink"} & {*with_sink}
    normed = [one.name for one in remedies(replace(plain, model=ModelConfig(qk_norm=True)))]
    assert "qk-clip" not in normed and "qk-norm" not in normed
    capped = [one.name for one in remedies(replace(plain, model=ModelConfig(attn_softcap=30)))]
    assert not {"qk-clip", "soft-cap"} & {*capped}
    made = [one.name for one in remedies(replace(plain, optim=OptimConfig(reparam="sigma")))]
    assert not {"qk-clip", "sigma"} & {*made}


def test_the_advice_names_its_changes() -> None:
    def of(*candidates: str, remedy: str = "") -> set[str]:
        return named(Finding("scores", "bad", "", 0, (), "", Advice(remedy, candidates), ""))

    none = {"config": {"optim": {"clip": None, "warmup": 0, "lr": 0.3}, "model": {"norm": "none"}}}
    assert of(*lasting_causes(none)) == {"rate", "clip", "warmup", "norm"}
    assert of(*lasting_causes({"config": {"optim": {"clip": 1, "warmup": 9}, "model": {"norm": "rms"}}})) == {"rate"}
    decayed = {"config": {"optim": {"lr": 1.0, "weight_decay": 0.5}, "model": {}}}
    assert of(remedy=smaller_steps(decayed, None, []).remedy) == {"no-decay"}  # pyrefly: ignore[bad-argument-type]
    assert of("no decay of W_Q and W_K", "scores that are not divided by sqrt(d_head)") == {"decay", "scale"}
    assert of(remedy="raise the learning rate: no tensor moved faster") == {"faster"}
    assert of("too little regularisation (dropout, weight decay, a smaller model)") == {"decay", "dropout"}
    assert of("q and k that nothing normalises") == {"qk-norm"}
    assert of("q and k, or W_Q and W_K, that nothing normalises") == {"qk-norm", "sigma"}
    assert of("steps of W_Q and W_K that are too large") == {"rate", "qk-clip"}


def test_it_works_in_one_process(sick: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "processes", lambda: SimpleNamespace(num_processes=2))
    with pytest.raises(ValueError, match="works in one process: start it without `accelerate launch` .here are 2."):
        remedy(sick, quiet=True)
