"""Where tokens come from: corpus -> tokenizer -> rows for training, fixed rows held out, and prompts.

    d = data.build(DataConfig(), n_ctx=64, seed=0)
    d.train(step=0, batch_size=32)  # LongTensor [32 65], always the same for this seed and step
    d.val(8)  # LongTensor [8 65], never trained on

All of it is a function of the configuration and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from tracer.config import DataConfig
from tracer.config.field_docs import fields_in_help
from tracer.data import cache, own_source, sources, text
from tracer.data.corpora import python_passages
from tracer.data.prompts import Encoded, PromptTooLong, encode_prompt, shorten
from tracer.data.tokenizer import BOS, BOS_ID, is_words, token_strings, words

if TYPE_CHECKING:
    import torch

__all__ = ["BOS", "Data", "Encoded", "PromptTooLong", "build", "encode_prompt", "python_passages", "token_strings"]

TRAIN_STREAM = 2
PROMPT_TOKENS = 32


@fields_in_help
@dataclass(frozen=True)
class Data:
    """Rows of tokens for one run; every method is a pure function of its arguments and the seed."""

    name: str
    """The corpus, and what is mixed in."""
    hash: str
    """sha256 of the corpus, the tokenizer's settings and the mix."""
    tokenizer: Tokenizer
    """Of `tokenizers`."""
    source: sources.RowSource
    """Draws the rows."""
    seed: int
    """Rows of a step depend on it, on the step and on nothing else."""
    prompt: str
    """Held-out text of about 32 tokens, at most half the context."""
    n_train_tokens: int | None
    """Tokens of the training text, or of a finite training set; None for random sources, which never end."""
    bos: int | None = BOS_ID
    """The token in front of a prompt; None: there is none."""
    references: dict[str, float] = field(default_factory=dict)
    """Losses in nats, by name, that whoever made the source knows."""

    @property
    def d_vocab(self) -> int:
        return self.tokenizer.get_vocab_size()

    def train(self, step: int, batch_size: int) -> torch.Tensor:
        """Training rows of a step: LongTensor [batch n_ctx+1], a function of (seed, step, batch_size) alone."""
        import torch

        return torch.from_numpy(self.source.rows(np.random.default_rng([self.seed, step, TRAIN_STREAM]), batch_size))

    def mixed_in(self, step: int, batch_size: int) -> np.ndarray:
        """Which of these training rows come from the mix, [batch]."""
        if not isinstance(self.source, sources.Mix):
            return np.zeros(batch_size, bool)
        return self.source.replaced(np.random.default_rng([self.seed, step, TRAIN_STREAM]), batch_size)

    def val(self, n: int) -> torch.Tensor:
        """Held-out rows: LongTensor [n n_ctx+1], the same for every seed, never from the mix."""
        import torch

        return torch.from_numpy(self.source.held_out(n))

    def counted(self, rows: torch.Tensor) -> torch.Tensor | None:
        """Which targets of these rows count in a loss: BoolTensor [n n_ctx], entry j is token j + 1; None: all do."""
        import torch

        if not isinstance(self.source, own_source.OwnSource) or not self.source.has_mask:
            return None
        return torch.from_numpy(self.source.loss_mask(rows.numpy()))

    @property
    def is_own(self) -> bool:
        """Does it come from a function of somebody's own, which other processes lack?"""
        return isinstance(self.source, own_source.OwnSource)


def build(config: DataConfig, n_ctx: int, seed: int) -> Data:
    """The data of a run: reads, splits and tokenises the corpus, or finds that done in the cache.

    ValueError for a function of one's own that no person has named in this process.
    """
    n_prompt = min(PROMPT_TOKENS, max(2, n_ctx // 2))
    if config.is_own:
        return _own(config.corpus, n_ctx, seed, n_prompt)
    random = _random_source(config.corpus, config, n_ctx, config.vocab_size)
    tokenised = None
    n_train_tokens = None
    if random is not None:
        source = random
        tokenizer = words(config.markov_states + 1 if config.corpus == "markov" else config.vocab_size)
        settings = [config.vocab_size, config.period_min, config.period_max, config.markov_states]
        digest = cache.key(corpus=config.corpus, settings=settings)
        prompt = " ".join(map(str, random.passage(n_prompt)))
    else:
        tokenised = text.tokenised(config)
        source = _windows(config, config.corpus, tokenised.train, tokenised.held, n_ctx)
        tokenizer, digest = tokenised.tokenizer, tokenised.hash
        n_train_tokens = len(tokenised.train)
        prompt = shorten(tokenizer, tokenised.passage, n_prompt)
    name = config.corpus
    if config.mix:
        other, mix_hash = _other_source(config, tokenised, n_ctx, tokenizer.get_vocab_size())
        source = sources.Mix(source, other, config.mix_share)
        digest = cache.key(main=digest, mix=mix_hash, share=config.mix_share)
        name = f"{config.corpus} + {config.mix_share:.0%} {config.mix}"
    return Data(name, digest, tokenizer, source, seed, prompt, n_train_tokens)


def _own(corpus: str, n_ctx: int, seed: int, n_prompt: int) -> Data:
    found = own_source.made(corpus, n_ctx, seed)
    first = found.source.held_out(1)[0].tolist()
    ids = first[first[0] == found.bos :][:n_prompt]
    prompt = " ".join(token_strings(found.tokenizer, ids)) if is_words(found.tokenizer) else found.tokenizer.decode(ids)
    n_train_tokens = found.n_train_rows and found.n_train_rows * n_ctx
    return Data(
        corpus, found.hash, found.tokenizer, found.source, seed, prompt, n_train_tokens, found.bos, found.references
    )


def _random_source(
    corpus: str, config: DataConfig, n_ctx: int, d_vocab: int
) -> sources.Repeated | sources.Markov | None:
    if corpus == "repeated-random":
        return sources.Repeated(d_vocab, n_ctx, config.period_min, config.period_max)
    if corpus == "markov":
        return sources.Markov(config.markov_states, n_ctx)
    return None


def _other_source(
    config: DataConfig, main: text.Tokenised | None, n_ctx: int, d_vocab: int
) -> tuple[sources.RowSource, str]:
    """(source, hash) of what is mixed in, in the main corpus's tokens."""
    assert config.mix
    if config.mix == "markov" and config.markov_states >= d_vocab:
        raise ValueError(f"markov_states={config.markov_states} do not fit in a vocabulary of {d_vocab}")
    if random := _random_source(config.mix, config, n_ctx, d_vocab):
        settings = [config.period_min, config.period_max, config.markov_states]
        return random, cache.key(corpus=config.mix, settings=settings)
    if main is None:
        raise ValueError(
            f"mix={config.mix!r} is text, and corpus={config.corpus!r} has no tokens for text: "
            f"set corpus={config.mix!r} and mix={config.corpus!r}"
        )
    stream, digest = text.mixed_in(config, main)
    return _windows(config, config.mix, stream, main.held, n_ctx), digest


def _windows(config: DataConfig, corpus: str, train: np.ndarray, held: np.ndarray, n_ctx: int) -> sources.Text:
    if min(len(train), len(held)) <= n_ctx:
        raise ValueError(
            f"corpus {corpus!r} is too small: {len(train)} tokens to train on and {len(held)} held out, and a row "
            f"takes n_ctx + 1 = {n_ctx + 1} of each; give more text, a larger val_share or a smaller n_ctx"
        )
    return sources.Text(train, held, n_ctx, config.start_token)
