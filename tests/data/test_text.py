import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tests import children
from tracer import data
from tracer.config import DataConfig
from tracer.data import cache, corpora, text
from tracer.data.sources import Text
from tracer.data.split import digest, split
from tracer.data.tokenizer import encode_stream, token_strings, train_bpe

N_CTX = 16


@pytest.fixture
def folder(tmp_path):
    """40 files; the words of file i all carry its number, so that any piece of text tells where it is from."""
    rng = random.Random(0)
    root = tmp_path / "corpus"
    root.mkdir()
    for i in range(40):
        (root / f"{i:02}.txt").write_text(" ".join(f"{rng.choice('abcdefgh')}<{i:02}>" for _ in range(200)))
    return root


def config(path, **kw):
    return DataConfig(str(path), vocab_size=300, **kw)


def origins(d, rows):
    """Numbers of the files that rows are from."""
    return {piece[:2] for row in rows for piece in d.tokenizer.decode(row.tolist()).split("<") if piece[2:3] == ">"}


def test_no_training_window_holds_held_out_text(folder):
    d = data.build(config(folder, val_share=0.2), N_CTX, seed=0)
    trained = origins(d, [row for step in range(60) for row in d.train(step, 32)])
    held = origins(d, d.val(200))
    assert len(held) == 8 and len(trained) == 32
    assert not trained & held
    assert origins(d, [np.array(d.tokenizer.encode(d.prompt).ids)]) <= held


def test_rows_are_pure_functions_of_seed_and_step(folder):
    d = data.build(config(folder), N_CTX, seed=0)
    again = data.build(config(folder), N_CTX, seed=0)
    other = data.build(config(folder), N_CTX, seed=1)
    late = d.train(7, 32)
    assert (late.shape, late.dtype) == ((32, 17), torch.int64)
    assert (d.val(5).shape, d.val(5).dtype) == ((5, 17), torch.int64)
    assert (again.train(7, 32) == late).all()
    assert (d.train(8, 32) != late).any()
    assert (other.train(7, 32) != late).any()
    assert (other.val(9) == d.val(9)).all()


def test_d_vocab_is_what_the_tokenizer_has(tmp_path):
    (tmp_path / "few.txt").write_text("\n\n".join(f"ab ab {i}" for i in range(100)))
    d = data.build(DataConfig(str(tmp_path / "few.txt"), vocab_size=1024), 4, seed=0)
    assert d.d_vocab == d.tokenizer.get_vocab_size() < 400
    assert d.train(0, 64).max() < d.d_vocab


def test_bpe_sees_training_text_only(folder):
    d = data.build(config(folder), N_CTX, seed=0)
    train, held = split(corpora.documents(str(folder)), 0.05)
    assert d.tokenizer.to_str() == train_bpe(train, 300).to_str()
    assert held and d.tokenizer.to_str() != train_bpe(train + held * 50, 300).to_str()


@pytest.mark.parametrize(
    ("documents", "share"),
    [
        ([f"document {i}\n" * (1 + i % 7) for i in range(200)], 0.05),
        ([f"document {i}" for i in range(200)] * 3, 0.1),
        (["".join(f"line {i}\n" for i in range(1000))], 0.05),
        (["".join(f"{n}{i} " for i in range(1000)) for n in "abc"], 0.1),
    ],
    ids=["many", "copies", "one", "three long"],
)
def test_split_shares_and_overlap(documents, share):
    train, held = split(documents, share)
    total = sum(map(len, set(documents)))
    assert sum(map(len, train)) + sum(map(len, held)) == total
    assert 0.5 * share <= sum(map(len, held)) / total <= 1.1 * share
    assert not set(train) & set(held)
    assert split(documents[::-1], share) == (train[::-1], held[::-1])


def test_one_document_is_cut_at_a_line():
    train, held = split(["".join(f"line {i}\n" for i in range(1000))], 0.05)
    assert len(train) == len(held) == 1
    assert train[0].endswith("\n") and held[0].startswith("line 9")
    assert int(held[0].split()[1]) == train[0].count("\n")


def test_documents_are_held_out_until_the_share_is_reached():
    """By the order of their sha256: ten characters of a hundred, then no other; less than half of the share is none."""
    one = "x"
    ten = next(c * 10 for c in "abcdefghijkl" if digest(c * 10) < digest(one))
    assert split([one, ten, "y" * 89], 0.1) == ([one, "y" * 89], [ten])
    assert split(["z" * 4, "y" * 96], 0.1) == (["z" * 3, "y" * 86], ["z", "y" * 10])


def test_adding_a_document_moves_few_others():
    documents = [f"document number {i} says {i * i}" for i in range(1000)]
    held = set(split(documents, 0.1)[1])
    assert len(held & set(split([*documents, "one more"], 0.1)[1])) > 0.95 * len(held)


def test_mix_of_random_rows(folder):
    d = data.build(config(folder, mix="repeated-random", mix_share=0.25, period_max=8), N_CTX, seed=0)
    rows = d.train(0, 2000).numpy()
    mixed = (rows[:, 0] == 0) & (rows[:, 1:9] == rows[:, 9:17]).sum(1) > 0
    assert d.name == f"{folder} + 25% repeated-random"
    assert rows.max() < d.d_vocab
    # a text row starts with the start token in about 1 of 1000
    assert 0.2 < (rows[:, 0] == 0).mean() < 0.3 and mixed.any()
    assert (d.val(8) == data.build(config(folder), N_CTX, 0).val(8)).all()
    assert d.hash != data.build(config(folder), N_CTX, 0).hash


def test_mix_of_text_leaves_out_what_the_main_text_holds_out(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    held = split(corpora.documents(str(folder)), 0.2)[1]
    for i, document in enumerate(held):
        (other / f"copy{i}.txt").write_text(document)
    for i in range(60, 90):
        (other / f"{i}.txt").write_text(" ".join([f"z<{i}>"] * 200))
    for _ in range(2):  # made, then from the cache
        d = data.build(config(folder, val_share=0.2, mix=str(other), mix_share=0.5), N_CTX, seed=0)
        trained = origins(d, [row for step in range(40) for row in d.train(step, 32)])
        assert not trained & origins(d, d.val(100))
        assert {"60", "89"} & trained and min(trained) < "40"


def snapshot(d):
    return d.tokenizer.to_str(), d.hash, d.prompt, d.train(3, 8).tolist(), d.val(3).tolist()


def entry(cache):
    (found,) = cache.iterdir()
    return found


def test_cache_hit_is_identical(folder, own_cache, monkeypatch):
    first = data.build(config(folder), N_CTX, seed=0)
    monkeypatch.setattr(text, "train_bpe", None)  # a second training would fail
    second = data.build(config(folder), N_CTX, seed=0)
    assert snapshot(first) == snapshot(second)
    assert isinstance(second.source, Text) and isinstance(second.source.train, np.memmap)
    assert first.hash == entry(own_cache).name


FILES = ["train.npy", "held.npy", "tokenizer.json", "passage.txt", "manifest.json"]


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [truncate, flip, lambda path: path.write_bytes(b""), lambda path: path.unlink()])
def test_damaged_cache_is_made_again(folder, own_cache, name, damage):
    expected = snapshot(data.build(config(folder), N_CTX, seed=0))
    kept = {file: (entry(own_cache) / file).read_bytes() for file in FILES}
    damage(entry(own_cache) / name)
    assert snapshot(data.build(config(folder), N_CTX, seed=0)) == expected
    assert {file: (entry(own_cache) / file).read_bytes() for file in FILES} == kept
    assert len(list(entry(own_cache).iterdir())) == len(FILES)


def test_an_entry_that_lists_nothing_is_none(own_cache):
    (own_cache / "e").mkdir()
    (own_cache / "e" / "manifest.json").write_text("{}")
    assert cache.load("e") is None


def test_a_token_beside_the_alphabet_of_bytes_is_what_it_says(folder):
    tokenizer = train_bpe(["def f(x):"] * 9, 257)
    tokenizer.add_tokens(["字", " q"])
    assert token_strings(tokenizer, [257, 258]) == ["字", " q"]


def test_other_text_or_settings_are_other_entries(folder):
    hashes = {data.build(config(folder, **kw), N_CTX, 0).hash for kw in ({}, {"val_share": 0.1})}
    hashes.add(data.build(DataConfig(str(folder), vocab_size=290), N_CTX, 0).hash)
    (folder / "00.txt").write_text("changed")
    hashes.add(data.build(config(folder), N_CTX, 0).hash)
    assert len(hashes) == 4


def test_a_cache_that_cannot_be_written_costs_only_a_warning(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MANYEYES_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="could not keep the tokenised text in .*file.*set MANYEYES_CACHE"):
        d = data.build(config(folder), N_CTX, seed=0)
    assert d.train(0, 2).shape == (2, 17)


def test_cache_folder(monkeypatch, tmp_path):
    from tracer.files.disk import cache_folder

    monkeypatch.delenv("MANYEYES_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "manyeyes"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(cache_folder()) == "/home/someone/.cache/manyeyes"


def test_processes_that_race(folder, own_cache):
    code = (
        "import sys, json; from tracer import data; from tracer.config import DataConfig\n"
        "d = data.build(DataConfig(sys.argv[1], vocab_size=300), 16, 0); print(json.dumps([d.hash, d.source.rows("
        "__import__('numpy').random.default_rng(0), 4).tolist()]))"
    )
    racers = [
        children.start([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = [json.loads(racer.communicate(timeout=300)[0]) for racer in racers]
    assert answers[0] == answers[1] == answers[2]
    assert sorted(p.name for p in entry(own_cache).iterdir()) == sorted(FILES)


def test_importing_data_is_light():
    code = "import sys, tracer.data; print([m for m in ('torch', 'datasets') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("content", ["a", "word " * 8])
def test_too_small_a_corpus_names_sizes(tmp_path, content):
    (tmp_path / "tiny.txt").write_text(content)
    message = r"tiny.txt' is too small: \d+ tokens to train on and \d+ held out, and a row takes n_ctx \+ 1 = 65"
    with pytest.raises(ValueError, match=message):
        data.build(config(tmp_path / "tiny.txt"), 64, seed=0)


def test_small_vocabulary_is_refused(folder):
    with pytest.raises(ValueError, match="vocab_size=100 is below 257"):
        data.build(DataConfig(str(folder), vocab_size=100), N_CTX, seed=0)


def test_python_stdlib_end_to_end():
    d = data.build(DataConfig(max_mb=1.0), 64, seed=0)
    assert d.d_vocab == 1024 and d.name == "python-stdlib"
    assert d.n_train_tokens and 200_000 < d.n_train_tokens < 600_000
    encoded = data.encode_prompt(d.tokenizer, d.prompt, 64)
    assert 15 <= len(encoded.tokens) <= 33
    assert "".join(encoded.strings[1:]) == d.prompt
    assert sum(c.isalpha() or c == " " for c in d.prompt) > 0.9 * len(d.prompt)


@pytest.mark.parametrize(("kinds", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_a_stream_is_as_narrow_as_its_vocabulary_lets_it_be(kinds, dtype):
    tokenizer = Tokenizer(models.WordLevel({str(i): i for i in range(kinds)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    stream = encode_stream(tokenizer, [f"7 {kinds - 1}", "5"])
    assert stream.dtype == dtype and stream.tolist() == [0, 7, kinds - 1, 0, 5]


def test_a_stream_has_no_tokens_but_those_of_the_text_and_a_start(tmp_path):
    """Whatever the tokenizer puts around a text by itself."""
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "a": 1, "</s>": 2}, unk_token="a"))
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    assert encode_stream(tokenizer, ["a", "a"]).tolist() == [0, 1, 0, 1]


def test_what_is_mixed_in_is_kept_for_one_tokenizer(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for i in range(10):
        (other / f"{i}.txt").write_text(f"zebra {i} " * 50)
    asked = config(folder, mix=str(other), mix_share=0.5)
    mains = [text.tokenised(config(one)) for one in (folder, other)]
    kept = [text.mixed_in(asked, main) for main in mains]
    assert kept[0][1] != kept[1][1]
    assert all("zebra" in main.tokenizer.decode(ids.tolist()) for main, (ids, _) in zip(mains, kept, strict=True))
