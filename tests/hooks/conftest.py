"""The models that tests of watching use too."""

from tests.watching.conftest import build, gpt, nobody_listens

__all__ = ["build", "gpt", "nobody_listens"]
