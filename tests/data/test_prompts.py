import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers

from tracer.data import PromptTooLong, encode_prompt, prompts, token_strings
from tracer.data.tokenizer import encode_stream, train_bpe, words

TEXT = ["def hello(world):\n    return 'naïve €5 \N{GRINNING FACE}'\n"] * 20
BPE = train_bpe(TEXT, 280)
WORDS = words(10)


@pytest.mark.parametrize(
    "text", ["hello", " hello", "a\n\tb", "€ and \N{GRINNING FACE}", "\x00\r", "ĠĊ", "<b>&amp;</b>", "日本"]
)
def test_token_strings_are_the_text(text):
    ids = BPE.encode(text).ids
    strings = token_strings(BPE, ids)
    assert len(strings) == len(ids)
    if all("\\x" not in s for s in strings):
        assert "".join(strings) == text
    else:
        # broken characters are written as escapes of exactly their bytes
        assert "".join(strings).encode().decode("unicode_escape").encode("latin-1").decode() == text


def test_a_broken_character_shows_its_bytes():
    bytes_only = train_bpe([], 257)
    assert token_strings(bytes_only, bytes_only.encode("é").ids) == ["\\xc3", "\\xa9"]
    assert token_strings(bytes_only, bytes_only.encode(" \n").ids) == [" ", "\n"]


def test_every_token_has_a_string():
    assert len(token_strings(BPE, range(BPE.get_vocab_size()))) == 280
    assert token_strings(BPE, [0]) == ["<bos>"]


def test_a_tokenizer_that_gives_up_says_so():
    """Onigmo stops a pattern that tries all ways, and the library panics: no `except Exception` would see it."""
    gives_up = Tokenizer.from_str(BPE.to_str())
    gives_up.pre_tokenizer = pre_tokenizers.Split(Regex(r"((a+)+)+$"), "isolated")
    with pytest.raises(ValueError, match=r"^the tokenizer gave up: .*retry-limit"):
        encode_prompt(gives_up, "a" * 24 + "!", 100)


@pytest.mark.parametrize("token", [280, -1])
def test_a_token_outside_the_vocabulary(token):
    with pytest.raises(ValueError, match=f"token {token} is not in the vocabulary: ids go from 0 to 279"):
        token_strings(BPE, [token])


@pytest.mark.parametrize(
    ("tokenizer", "text", "tokens", "strings"),
    [
        (WORDS, "5 7 9 5", [0, 5, 7, 9, 5], ["<bos>", "5", "7", "9", "5"]),
        (WORDS, "  5\n\t7 \x1c 9 ", [0, 5, 7, 9], ["<bos>", "5", "7", "9"]),
        (WORDS, "<|bos|> 5", [0, 5], ["<bos>", "5"]),
        (WORDS, "5<|bos|>7", [0, 5, 0, 7], ["<bos>", "5", "<bos>", "7"]),
        (BPE, " ", [0, BPE.token_to_id("Ġ")], ["<bos>", " "]),
    ],
)
def test_encode_prompt(tokenizer, text, tokens, strings):
    encoded = encode_prompt(tokenizer, text, 64)
    assert (encoded.tokens, encoded.strings, encoded.n_dropped) == (tokens, strings, 0)


@pytest.mark.parametrize("tokenizer", [WORDS, BPE])
def test_empty_prompt(tokenizer):
    with pytest.raises(ValueError, match="the prompt is empty"):
        encode_prompt(tokenizer, "", 64)


def test_unknown_words():
    with pytest.raises(ValueError, match="'hello', '10'; this model's words are the numbers 1 to 9"):
        encode_prompt(WORDS, "5 hello 9 10", 64)


def test_prompt_too_long():
    with pytest.raises(
        PromptTooLong, match="5 tokens with the start token and the context holds 3.*cut the last 2"
    ) as e:
        encode_prompt(WORDS, "1 2 3 4", 3)
    assert (e.value.n_tokens, e.value.n_ctx) == (5, 3)
    assert encode_prompt(WORDS, "1 2", 3).n_dropped == 0
    cut = encode_prompt(WORDS, "1 2 3 4", 3, cut=True)
    assert (cut.tokens, cut.strings, cut.n_dropped) == ([0, 1, 2], ["<bos>", "1", "2"], 2)


@pytest.mark.parametrize("n", [3, 5, 8])
def test_shorten_ends_with_a_word(n):
    text = "return hello world return hello world return"
    short = prompts.shorten(BPE, text, n)
    assert text.startswith(short + " ")
    assert len(BPE.encode(short).ids) <= n


def test_shorten_keeps_what_fits_and_never_breaks_a_character():
    assert prompts.shorten(BPE, "hello", 10) == "hello"
    bytes_only = train_bpe([], 257)
    assert prompts.shorten(bytes_only, "ab€", 4) == "ab"


def test_readable_passage_prefers_prose():
    code = "x[0] = {1: 2, 3: 4}; y = f(g(h(1, 2), 3), 4)\n" * 5
    prose = (
        "This paragraph explains to a reader what the code above it does and why anybody might want to do that. " * 2
    )
    assert prompts.readable_passage([code, f"{code}\n\n{prose}\n\n{code}"]) == prose.strip()
    assert prompts.readable_passage(["short", "a bit longer"]) == "a bit longer"


def test_small_bpe_is_refused():
    with pytest.raises(ValueError, match="vocab_size=256 is below 257"):
        train_bpe(TEXT, 256)


def test_encode_stream_starts_every_document():
    bytes_only = train_bpe([], 257)
    a, b = bytes_only.encode("ab").ids
    assert encode_stream(bytes_only, ["ab", "b"]).tolist() == [0, a, b, 0, b]
    assert encode_stream(bytes_only, []).tolist() == []


def test_encode_stream_of_a_huge_document(monkeypatch):
    monkeypatch.setattr("tracer.data.tokenizer.PIECE", 7)
    stream = encode_stream(BPE, ["hello world, hello world", "x" * 20])
    assert (stream == 0).sum() == 2
    assert BPE.decode(stream.tolist()) == "hello world, hello world" + "x" * 20
