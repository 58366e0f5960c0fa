"""From a person's text to a run's tokens and back; a run without a tokenizer is spoken to in token ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tracer.store import NotARun, Run

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from tracer.data import Encoded

ENDLESS = 2**31
"""Tokens that a model takes which sets no limit."""
FEW = 4
"""Tokens that stand twice where neither the run's own prompts nor a text can be read."""
REPEATS = (
    "Harry met Hermione. Ron met Dumbledore. Harry met Hermione. Ron met D",
    "self.name = name\nself.name = name",
    "name name",
    "a a",
)
"""Texts to begin with that repeat something, for contexts long and short."""


def example(run: Run) -> str:
    """A text to begin with: one that repeats something, so that there is something to find."""
    from tracer.data.tokenizer import text_of

    about, words = run.about, tokenizer(run)
    kept = run.trace["prompt_tokens"].values[:1] if "prompt_tokens" in run.trace.coords else []
    ids = [int(t) for row in kept for t in row if t >= 0 and t != about.bos]
    of_python = (run.meta.get("corpus") or {}).get("name", "").startswith("python-stdlib")
    if (of_python or (words is not None and not ids)) and (text := _repeat(run)):
        return text
    ids = ids or 2 * [token for token in range(about.d_vocab or FEW) if token != about.bos][:FEW]
    ids = ids if about.n_ctx is None else ids[: about.n_ctx - 1]
    return " ".join(map(str, ids)) if words is None else text_of(words, ids) or REPEATS[-1]


def _repeat(run: Run) -> str | None:
    """The longest that the context holds, the last one cut where it holds none; None where a model reads numbers."""
    from tracer.data import PromptTooLong

    for text in REPEATS:
        try:
            encode(run, text)
        except PromptTooLong:
            continue
        except ValueError:
            return None
        return text
    return REPEATS[-1]


def tokenizer(run: Run) -> Tokenizer | None:
    """The run's tokenizer; None when a model of others came without one."""
    try:
        return run.tokenizer
    except NotARun:
        if run.can("tokenizer"):
            raise
        return None


def strings(run: Run, ids: Iterable[int]) -> list[str]:
    """What each token says; an id that the tokenizer does not know is its number."""
    from tracer.data import token_strings

    if (words := tokenizer(run)) is None:
        return list(map(str, ids))
    known = words.get_vocab_size()
    return ["".join(token_strings(words, [i])) if i < known else str(i) for i in ids]


def encode(run: Run, text: str, most: int | None = None, cut: bool = False) -> Encoded:
    """At most `most` tokens of a prompt as the model takes them; ValueErrors say what to do."""
    from tracer.data import encode_prompt

    about, words = run.about, tokenizer(run)
    limit = min(n for n in (about.n_ctx, most, ENDLESS) if n is not None)
    if words is not None:
        return encode_prompt(words, text, limit, about.bos, cut=cut)
    return _numbers(text, limit, about.bos, about.d_vocab or ENDLESS, cut)


def _numbers(text: str, limit: int, bos: int | None, d_vocab: int, cut: bool) -> Encoded:
    from tracer.data import Encoded, PromptTooLong

    typed = text.replace(",", " ").split()
    if wrong := [word for word in typed if not (word.isascii() and word.isdigit() and int(word) < d_vocab)]:
        raise ValueError(
            f"{', '.join(map(repr, wrong[:5]))}: this run has no tokenizer, so a prompt is token ids: numbers from 0 "
            f"to {d_vocab - 1}, apart by spaces"
        )
    if not typed:
        raise ValueError("the prompt is empty: type at least one token")
    ids = [int(word) for word in typed]
    ids = [bos, *ids] if bos is not None and ids[0] != bos else ids
    if len(ids) > limit and not cut:
        raise PromptTooLong(len(ids), limit)
    return Encoded(ids[:limit], [str(i) for i in ids[:limit]], max(0, len(ids) - limit))
