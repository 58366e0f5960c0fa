"""The models that tests of watching use too."""

from tests.watching.conftest import build, here, tokenizer_of

__all__ = ["build", "here", "tokenizer_of"]
