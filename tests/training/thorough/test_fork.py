"""What of tests/training/test_fork.py needs a tracker of others."""

from dataclasses import replace

from tests.training.test_fork import tiny
from tracer.training import loop


def test_a_fork_tells_the_trackers_of_its_parent(tmp_path):
    parent = loop.train(tiny(tmp_path / "told", steps=2), quiet=True, track="tensorboard")
    child = loop.fork(parent, 0, replace(parent.config, run=str(tmp_path / "child")), quiet=True)
    alone = loop.fork(parent, 0, replace(parent.config, run=str(tmp_path / "alone")), quiet=True, track=())
    assert child.meta["track"] == ["tensorboard"] and alone.meta["track"] == []
    assert list(child.dir.rglob("events.out.tfevents*")) and not list(alone.dir.rglob("events.out.tfevents*"))
