"""What tests of ablation share."""

import pytest

from tests.models import exact
from tracer.model import Transformer


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest) -> Transformer:
    """An exact model of the CONFIG of the test's own file."""
    return exact(request.module.CONFIG)
