from dataclasses import replace

import numpy as np
import pytest

from tracer import data
from tracer.config import DataConfig
from tracer.data import sources
from tracer.presets import PRESETS


def period_of(row):
    """The shortest period of a row without its start token."""
    body = row[1:]
    return next(p for p in range(1, len(body) + 1) if (body[p:] == body[:-p]).all())


def test_repeated_rows_are_periodic_with_every_period():
    rows = sources.Repeated(d_vocab=1000, n_ctx=64, period_min=8, period_max=30).rows(np.random.default_rng(0), 2000)
    assert (rows[:, 0] == 0).all()
    assert rows[:, 1:].min() == 1 and rows.max() == 999
    periods = np.array([period_of(row) for row in rows])
    assert sorted(set(periods)) == list(range(8, 31))
    counts = np.bincount(periods)[8:]
    assert abs(counts - 2000 / 23).max() < 5 * np.sqrt(2000 / 23)


def test_repeated_blocks_are_uniform_and_differ_between_rows():
    rows = sources.Repeated(d_vocab=5, n_ctx=10, period_min=9, period_max=9).rows(np.random.default_rng(1), 4000)
    shares = np.bincount(rows[:, 1:10].ravel(), minlength=5) / 36000
    assert shares[0] == 0
    assert abs(shares[1:] - 0.25).max() < 0.02
    assert len({tuple(row) for row in rows}) > 3900


def test_markov_rows_are_symbols_after_a_start_token():
    rows = sources.Markov(n_states=3, n_ctx=20).rows(np.random.default_rng(0), 50)
    assert rows.shape == (50, 21)
    assert (rows[:, 0] == 0).all()
    assert set(rows[:, 1:].ravel()) == {1, 2, 3}


class Constant:
    """A source of one token."""

    def __init__(self, token, width=4):
        self.token, self.width = token, width

    def rows(self, rng, n):
        return np.full((n, self.width), self.token)

    def held_out(self, n):
        return self.rows(None, n)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_mix_replaces_its_share_of_rows(share):
    rows = sources.Mix(Constant(1), Constant(2), share).rows(np.random.default_rng(0), 10_000)
    replaced = (rows == 2).all(1)
    assert (replaced | (rows == 1).all(1)).all()
    assert abs(replaced.mean() - share) <= 4 * np.sqrt(share * (1 - share) / 10_000)


def test_mix_never_reaches_held_out_rows():
    assert (sources.Mix(Constant(1), Constant(2), 1.0).held_out(100) == 1).all()


def test_text_windows_by_hand():
    source = sources.Text(np.arange(5, dtype=np.uint16), np.arange(100, 110, dtype=np.uint16), n_ctx=3)
    rows = source.rows(np.random.default_rng(0), 50)
    assert rows.dtype == np.int64
    assert {tuple(row) for row in rows} == {(0, 1, 2, 3), (1, 2, 3, 4)}
    assert source.held_out(3).tolist() == [[100, 101, 102, 103], [103, 104, 105, 106], [106, 107, 108, 109]]


@pytest.mark.parametrize(
    ("config", "n_ctx", "message"),
    [
        (DataConfig("repeated-random", vocab_size=2), 64, "vocab_size=2"),
        (
            DataConfig("repeated-random", vocab_size=64),
            30,
            "period_max=30 tokens never repeats in n_ctx=30.*at most 29",
        ),
        (DataConfig("markov", markov_states=1), 64, "markov_states=1"),
        (DataConfig("markov", mix="README", mix_share=0.1), 64, "corpus='markov' has no tokens for text"),
        (DataConfig("repeated-random", vocab_size=3, mix="markov", mix_share=0.1), 64, "markov_states=3 do not fit"),
    ],
)
def test_impossible_settings_name_their_values(config, n_ctx, message):
    with pytest.raises(ValueError, match=message):
        data.build(config, n_ctx, seed=0)


@pytest.mark.parametrize("corpus", ["repeated-random", "markov"])
def test_random_data(corpus):
    d = data.build(DataConfig(corpus, vocab_size=64), n_ctx=64, seed=3)
    assert d.d_vocab == {"repeated-random": 64, "markov": 4}[corpus] == d.tokenizer.get_vocab_size()
    assert d.n_train_tokens is None
    assert d.train(0, 8).max() < d.d_vocab
    prompt = data.encode_prompt(d.tokenizer, d.prompt, 64)
    assert len(prompt.tokens) == 33
    assert d.tokenizer.decode(prompt.tokens) == d.prompt
    other_seed = data.build(DataConfig(corpus, vocab_size=64), n_ctx=64, seed=4)
    assert (d.val(8) == other_seed.val(8)).all()
    assert (d.train(0, 8) != other_seed.train(0, 8)).any()
    assert (d.val(8)[:4] != d.train(0, 4)).any()


def test_repeated_prompt_repeats():
    d = data.build(DataConfig("repeated-random", vocab_size=64), n_ctx=64, seed=0)
    typed = d.prompt.split()
    assert typed[12:] == typed[:-12] and len(set(typed)) > 3


def test_text_with_a_start_token_in_every_row():
    source = sources.Text(np.arange(1, 6, dtype=np.uint16), np.arange(100, 110, dtype=np.uint16), 3, start_token=True)
    rows = source.rows(np.random.default_rng(0), 50)
    assert {tuple(row) for row in rows} == {(0, 2, 3, 4), (0, 3, 4, 5)}
    assert source.held_out(2).tolist() == [[0, 101, 102, 103], [0, 107, 108, 109]]


@pytest.mark.parametrize("name", ["demo", "induction-natural", "one-layer"])
def test_no_row_of_the_demo_can_be_told_by_its_first_token(name, tmp_path):
    """Text and repeated rows alike, in training and held out, as on every page that takes a prompt."""
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 400)
    config = replace(PRESETS[name].config.data, corpus=str(tmp_path), vocab_size=300)
    d = data.build(config, n_ctx=64, seed=0)
    assert d.bos is not None and (d.train(0, 500)[:, 0] == d.bos).all() and (d.val(50)[:, 0] == d.bos).all()
