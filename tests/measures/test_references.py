"""Losses with a name: of runs of before, which knew that of counting alone, and of today's."""

from tracer.measures.references import references


def test_an_old_run_knows_the_loss_of_counting() -> None:
    assert references({}) == references({"unigram_loss": None}) == {}
    assert references({"unigram_loss": 2.5}) == {"unigram": 2.5}
    assert references({"unigram_loss": 2.5, "references": {"unigram": 2.0, "bigram": 1.0}}) == {
        "unigram": 2.0, "bigram": 1.0,
    }  # fmt: skip
