"""Links at every name of a stranger's run, for everything that is done with one."""

from pathlib import Path

import pytest

from tests.store.test_links import MOVING, WRITING, mine, run, test_nothing_is_changed_through_a_link  # noqa: F401
from tracer.store import Run
from tracer.store.writer import FILES

NAMES = (*sorted(FILES - {"run.json"}), "snapshots/000030.safetensors", "trace.zarr/zarr.json")
changed = test_nothing_is_changed_through_a_link
del test_nothing_is_changed_through_a_link


@pytest.mark.parametrize("deed", [*WRITING, *MOVING])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_changed_through_any_link(run: Run, mine: Path, name: str, deed: str) -> None:  # noqa: F811
    changed(run, mine, name, deed)
