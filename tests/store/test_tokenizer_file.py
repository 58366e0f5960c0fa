"""tokenizer.json of a run, as it may be written by others."""

import json

import pytest

from tracer.data.tokenizer import words
from tracer.store.tokenizer_file import read_tokenizer


def test_what_adds_no_tokens_may_leave_that_out() -> None:
    said = json.loads(words(5).to_str())
    del said["added_tokens"]
    assert read_tokenizer(json.dumps(said).encode(), None).encode("1 3").ids == [1, 3]
    with pytest.raises(ValueError, match="it is no tokenizer"):
        read_tokenizer(json.dumps({**said, "added_tokens": {"a": 1}}).encode(), None)
