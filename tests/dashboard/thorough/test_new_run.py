"""What takes long of tests/dashboard/test_new_run.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.dashboard.conftest import APP
from tests.store.thorough.test_remote import bucket, server  # noqa: F401
from tracer.store import Run, open_run

pytestmark = pytest.mark.usefixtures("none_left")


def test_a_run_in_a_bucket_opens(workplace: Path, small_run: Run, bucket: Any) -> None:  # noqa: F811
    for name in ("one", "other"):
        bucket.put(str(small_run.dir), f"bucket/runs/{name}", recursive=True)
    app = AppTest.from_file(str(APP), default_timeout=300).run()

    def asked(url: str) -> str:
        app.text_input(key="open_path").set_value(url).run()
        app.button(key="open_other").click().run()
        assert not app.exception
        return "".join(text.value for text in app.text if "://" in text.value)

    assert asked("http://127.0.0.1:9/one").startswith("http://127.0.0.1:9/one cannot be read: Cannot connect")
    assert asked("s3://bucket/nothing").startswith("s3://bucket/nothing")
    assert "is no run but a folder with runs" in (said := asked("s3://bucket/runs")) and "one" in said
    asked("s3://bucket/runs/one")
    assert [title.value for title in app.title] == ["Heads"]
    assert app.session_state["selection"].run == str(open_run("s3://bucket/runs/one").dir)
