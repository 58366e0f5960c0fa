"""A training without heads, and a tracker: none is installed for the first tier."""

from pathlib import Path

import pytest

from tests.watching.headless import language, rows, train


def test_a_tracker_hears_of_it(here: Path) -> None:
    with pytest.warns(RuntimeWarning, match="records r without heads") as said:
        train(language(), rows(3), "r", every=1, track="tensorboard")
    assert len(said) == 1 and [*(here / "checkpoints" / "r" / "tensorboard").iterdir()]
