"""What the Find page sends: pieces of text around a look, tokens as they stand there, heads that exist."""

import numpy as np
import pytest

from tracer.pictures import passages
from tracer.pictures.payload import unpack


@pytest.mark.parametrize(
    ("n", "query", "key", "expected"),
    [
        (100, 50, 40, [(26, 59)]),
        (100, 50, 50, [(26, 59)]),
        (100, 50, 26, [(26, 59)]),
        (100, 50, 25, [(21, 59)]),  # the piece around the key touches the other one
        (100, 50, 17, [(13, 59)]),  # only four tokens would be left out
        (100, 50, 16, [(12, 21), (26, 59)]),
        (100, 50, 3, [(0, 8), (26, 59)]),
        (100, 50, 90, [(26, 59), (86, 95)]),
        (100, 50, 99, [(26, 59), (95, 100)]),
        (10, 9, 1, [(0, 10)]),
        (1, 0, 0, [(0, 1)]),
    ],
)
def test_the_pieces_of_a_passage(n: int, query: int, key: int, expected: list[tuple[int, int]]) -> None:
    assert [(piece.start, piece.stop) for piece in passages.windows(n, query, key)] == expected


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (" the", " the"),
        ("\n    ", "⏎\n    "),
        ("\n\n", "⏎\n⏎\n"),
        ("a\tb", "a⇥b"),
        ("\u202edrow", "‹U+202E›drow"),
        ("\x00", "‹U+0000›"),
        ("<b>&amp;", "<b>&amp;"),
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("", ""),
        ("x" * 300, "x" * 39 + "…"),
        (" " * 300, " " * 39 + "…"),
        ("x" * 40, "x" * 40),
    ],
)
def test_a_token_as_it_stands_in_a_text(token: str, expected: str) -> None:
    assert passages.written(token) == expected


def test_passages_are_packed_with_their_shares() -> None:
    strings = [f" t{i}" for i in range(60)]
    shares = np.linspace(0, 0.03, 60)
    shares[3] = 0.7
    near = passages.Passage("top", 4, 10, 3, 0.9, 0.5, strings, shares)
    far = passages.Passage("typical", 2, 50, 3, 0.1, 0.25, strings, shares)
    header, arrays = unpack(passages.pack("L1H2", [near, far], causal=False))
    assert (header["label"], header["causal"], header["apart"]) == ("L1H2", False, False)
    one, two = header["passages"]
    assert (one["starts"], two["starts"]) == ([0], [0, 26])
    assert [len(piece) for piece in two["tokens"]] == [8, 33] and two["tokens"][1][0] == " t26"
    assert (one["query_token"], one["key_token"], one["group"], two["quantile"]) == ("·t10", "·t3", "top", 0.25)
    expected = np.concatenate([shares[0:19], shares[0:8], shares[26:59]])
    np.testing.assert_allclose(arrays["shares"] / 65534, expected, atol=1 / 131068)
    assert one["p"] == 0.7


def test_tokens_that_are_words_are_set_apart() -> None:
    one = passages.Passage("top", 0, 1, 0, 1.0, 0.0, ["5", "7"], [0.5, 0.5])
    assert unpack(passages.pack("L0H0", [one]))[0]["apart"]
    text = passages.Passage("top", 0, 1, 0, 1.0, 0.0, ["def", " f"], [0.5, 0.5])
    assert not unpack(passages.pack("L0H0", [text]))[0]["apart"]
    assert unpack(passages.pack("L0H0", []))[1]["shares"].shape == (0,)
