"""A loss of somebody's own in a fork, and in two processes."""

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import launch
from tests.training.test_own_loss import HERE, by_hand, equal, noisily, noisy  # noqa: F401 (a fixture)
from tests.training.thorough.test_scaling import SMALL
from tests.trainings import tiny
from tracer.store import Run, open_run
from tracer.training import loop

EACH = f"{HERE}each"


def test_a_fork_may_take_another_where_it_says_so(noisily: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"again, --loss {HERE}noisy"):
        loop.fork(noisily, 8, tiny(tmp_path / "unsaid", steps=12), quiet=True)
    back = loop.fork(noisily, 8, tiny(tmp_path / "back", steps=12), quiet=True, loss="next-token")
    assert "loss" not in back.meta and "loss_noisy" not in back.trace
    other = loop.fork(back, 12, tiny(tmp_path / "other", steps=13), quiet=True, loss=by_hand)
    assert other.meta["loss"] == f"{HERE}by_hand"


def test_two_processes_train_on_it_as_one(tmp_path: Path, free_port: int) -> None:
    found = []
    for world in (1, 2):
        run = tmp_path / str(world)
        small = ("--steps", "4", "--optim.batch-size", "8", *SMALL)
        said = launch(world, free_port, "train", "induction", "--run", str(run), *small, "--loss", EACH)
        assert f"trained on {EACH}; the losses below are of the next token" in " ".join(" ".join(said).split())
        found.append(open_run(run).trace)
    for name in ("loss_each", "train_loss", "val_loss"):
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-5, err_msg=name)


def test_who_goes_on_names_it_again(noisily: Run, tmp_path: Path) -> None:
    half = loop.train(tiny(tmp_path / "half", steps=4), quiet=True, loss=f"{HERE}noisy")
    for given in (None, "next-token", by_hand):
        with pytest.raises(ValueError, match=f"half was trained with loss={HERE}noisy, .*again, --loss {HERE}noisy$"):
            loop.resume(half.dir, steps=8, quiet=True, loss=given)
    whole = loop.resume(half.dir, steps=8, quiet=True, loss=noisy)
    assert equal(whole, noisily)
    np.testing.assert_array_equal(whole.trace["loss_noisy"].sel(step=[0, 4, 8]), noisily.trace["loss_noisy"].sel(
        step=[0, 4, 8]))  # fmt: skip
    plain = loop.train(tiny(tmp_path / "plain", steps=4), quiet=True)
    with pytest.raises(ValueError, match=f"with loss=nothing, not with {HERE}noisy.*leave --loss out$"):
        loop.resume(plain.dir, steps=8, quiet=True, loss=noisy)
