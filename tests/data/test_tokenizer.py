"""The alphabet of byte-level tokenizers, and how much longer a stranger's rules may make a text."""

import pytest
from tokenizers import decoders
from tokenizers.pre_tokenizers import ByteLevel

from tracer.data.tokenizer import _byte_of, refuse_growth


def test_the_alphabet_of_bytes_is_that_of_the_library() -> None:
    assert set(_byte_of()) == set(ByteLevel.alphabet()) and sorted(_byte_of().values()) == list(range(256))
    for byte in range(128):
        (character,) = (one for one, of in _byte_of().items() if of == byte)
        assert decoders.ByteLevel().decode([character]) == chr(byte)


def test_what_rules_put_in_front_doubles_a_text_at_most() -> None:
    """16 characters before 16: six times is 64 times as long, which is read."""
    rule = {"type": "Prepend", "prepend": "1" * 16}
    refuse_growth({"normalizer": {"type": "Sequence", "normalizers": [rule] * 6}})
    with pytest.raises(ValueError, match="over 64 times as long"):
        refuse_growth({"normalizer": {"type": "Sequence", "normalizers": [rule] * 7}})
