"""More runs than fit on a page: a table, found by words, ticked, compared: what the first tier leaves."""

import pytest

from dashboard.views.runs.many import MANY
from tests.dashboard.test_many import Open, cells, several  # noqa: F401
from tests.dashboard.words import written

pytestmark = pytest.mark.usefixtures("none_left")


def test_a_dozen_are_cards_and_more_are_a_table(open_page: Open, several: list[str]) -> None:
    app = open_page("runs")
    found = cells(app)
    assert found["Run"] == [*reversed(several), "tiny"] and found["seed"] == [*range(MANY, 0, -1), 0]
    assert found["lr"].count(0.5) == 2 and "batch_size" not in found
    assert found["Head"][0].startswith("L") and found["Held-out loss"][0] > 0
    assert not [button for button in app.button if (button.key or "").startswith("open ")]
    assert f"{MANY + 1} runs. Tick one" in written(app)
