"""The token view on Heads: what is sent for short, long, kept and foreign prompts, and what a click changes.

What the first tier leaves.
"""

from typing import Any

import numpy as np

from tests.dashboard.test_heads import LONG
from tests.dashboard.test_reading import Open, exactly, taps
from tracer.store import Run


def test_a_long_prompt_is_read_in_parts(long_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="long", prompt=LONG, layer=1, head=0)
    header, arrays, _ = sent(app, "reading")
    pattern = taps(long_run, LONG)["blocks.1.attn.hook_pattern"][0]
    rows, cols = np.tril_indices(256)
    assert header["start"] == 344
    np.testing.assert_allclose(arrays["shares"][1, 0] / 65534, pattern[344:, 344:][rows, cols], atol=1e-5)
    assert app.select_slider(key="reading_page").options == ["0 to 255", "256 to 511", "344 to 599"]

    app.session_state["reading"] = {"pick": [500, [1, 0]]}  # a click does not turn the page
    app.run()
    assert sent(app, "reading")[0]["start"] == 344 and exactly(app).startswith("L1H0, exactly: 500 ")
    app.select_slider(key="reading_page").set_value(0).run()
    assert sent(app, "reading")[0]["start"] == 0 and app.session_state["selection"].token == 500
    app.session_state["reading"] = {"pick": [7, [1, 0]]}
    app.run()
    assert sent(app, "reading")[0]["start"] == 0
    again = open_page("heads", run="long", prompt=LONG, token=300)  # a link opens where its token is
    assert sent(again, "reading")[0]["start"] == 256
