"""The Circuits page: what it sends is the model's own algebra, and what is not defined is said in one line.

What the first tier leaves.
"""

import pytest

from tests.dashboard.test_circuits_page import Open


@pytest.mark.usefixtures("elsewhere")
def test_a_model_that_cannot_be_run_says_so(open_page: Open) -> None:
    app = open_page("circuits", run="patches")
    assert "not in the run, so there are no circuits to read" in app.info[0].value and not app.get("bidi_component")
