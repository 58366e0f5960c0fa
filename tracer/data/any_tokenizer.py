"""Whatever somebody has as a tokenizer, as far as a run needs it: the text of a token, and the start token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tokenizers import Tokenizer

from tracer.data import token_strings


class Words:
    """From a Hugging Face tokenizer, a `tokenizers.Tokenizer`, whatever has `decode(ids)`, such a function, or None."""

    def __init__(self, tokenizer: Any = None) -> None:
        self.bos: int | None = None
        """The id put in front of a prompt: the tokenizer's start token, else its end-of-text token, else nothing."""
        self.tokenizer: Tokenizer | None = None
        """What a run directory keeps."""
        self._decode: Callable[..., Any] | None = None
        if tokenizer is None:
            return
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if isinstance(backend, Tokenizer):
            self.tokenizer = backend
            self._decode = lambda ids: token_strings(backend, ids)[0]
        elif callable(getattr(tokenizer, "decode", None)):
            self._decode = tokenizer.decode
        elif callable(tokenizer):
            self._decode = tokenizer
        else:
            raise ValueError(f"{type(tokenizer).__name__} is no tokenizer: it has no decode(ids)")
        for name in ("bos_token_id", "eos_token_id", "eot_token"):
            value = getattr(tokenizer, name, None)
            if isinstance(value, int):
                self.bos = value
                break

    @property
    def size(self) -> int | None:
        """Ids that the tokenizer knows, the added ones too."""
        return None if self.tokenizer is None else self.tokenizer.get_vocab_size()

    def check(self, d_vocab: int) -> None:
        """A ValueError when it is another model's."""
        if self.size is not None and self.size > d_vocab:
            raise ValueError(
                f"the tokenizer has {self.size} tokens and the model's embedding {d_vocab}: it is not the tokenizer of "
                f"this model, or the embedding was not resized (model.resize_token_embeddings)"
            )

    def strings(self, ids: Iterable[int]) -> list[str]:
        """The text of each token; its number where there is no tokenizer, or none that knows it."""
        return [self._text(i) for i in ids]

    def _text(self, token: int) -> str:
        if self._decode is None:
            return str(token)
        try:
            return str(self._decode([token]))
        except Exception:  # somebody's code, of an id that it does not know: one between others, or behind the last
            return str(token)
