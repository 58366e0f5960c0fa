import gc
import json

import datasets
import pytest

from tracer import data
from tracer.config import DataConfig
from tracer.data import corpora, huggingface

TEXTS = [f"row {i} of a small dataset" for i in range(20)]


def test_standard_library(monkeypatch):
    documents = corpora.documents("python-stdlib")
    size = sum(len(d) for d in documents) / 1e6
    assert 7 < size < 16
    assert any("class JSONEncoder" in d for d in documents)
    assert not any("class TestCase(unittest" in d or "import pytest\n" in d for d in documents)
    assert documents == corpora.documents("python-stdlib")


def test_standard_library_leaves_out_tests_and_packages(tmp_path, monkeypatch):
    for name in [
        "os.py", "json/__init__.py", "json/tool.py", "test/test_os.py", "idlelib/idle_test/test_a.py", "notes.txt",
        "site-packages/torch.py", "dist-packages/x.py", "lib2to3/main.py", "__pycache__/os.py", "_sysconfigdata__x.py",
        "unittest/case.py", "tkinter/test/support.py", "a/tests/b.py",
    ]:  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    expected = ["json/__init__.py", "json/tool.py", "os.py", "unittest/case.py"]
    assert corpora.documents("python-stdlib") == [f"# {name}" for name in expected]


def test_one_file_is_paragraphs(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\nline\r\n\r\ntwo \xff\n \t\n\n  three\n")
    assert corpora.documents(str(tmp_path / "a.txt")) == ["one\nline", "two \N{REPLACEMENT CHARACTER}", "  three\n"]


def test_a_folder_is_files(tmp_path):
    files = {"b.txt": b"b\n\nb", "a/z.md": b"z", "a/.hidden": b"h", ".git/x": b"x", "binary": b"\0\1", "empty": b" \n"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert corpora.documents(str(tmp_path)) == ["z", "b\n\nb"]


def test_max_mb_cuts(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(name * 1000)
    assert corpora.documents(str(tmp_path), max_mb=0.0015) == ["a" * 1000, "b" * 500]


@pytest.mark.parametrize("corpus", ["python-stdlb", "/nowhere/at/all", ""])
def test_unknown_corpus_lists_what_exists(corpus):
    with pytest.raises(ValueError, match=f"unknown corpus {corpus!r}.*python-stdlib, repeated-random, markov.*hf:NAME"):
        data.build(DataConfig(corpus), 64, seed=0)


def test_unknown_mix():
    with pytest.raises(ValueError, match="unknown corpus 'python-stdlb'"):
        data.build(DataConfig(max_mb=0.5, mix="python-stdlb", mix_share=0.1), 64, seed=0)


def test_no_text(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    for path in (tmp_path, tmp_path / "picture.png"):
        with pytest.raises(ValueError, match="holds no text.*binary"):
            corpora.documents(str(path))


def saved(path):
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(path)


def saved_splits(path):
    both = datasets.DatasetDict()
    both["train"] = datasets.Dataset.from_dict({"text": TEXTS})
    both["test"] = datasets.Dataset.from_dict({"text": ["no"]})
    both.save_to_disk(path)


def folder(path):
    path.mkdir()
    (path / "train.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))


LOCAL = {
    "saved": saved,
    "splits": saved_splits,
    "folder": folder,
    "rows.jsonl": lambda path: path.write_text("".join(json.dumps({"text": t, "n": 1}) + "\n" for t in TEXTS)),
    "rows.csv": lambda path: path.write_text("text\n" + "\n".join(TEXTS)),
    "rows.txt": lambda path: path.write_text("\n".join(TEXTS)),
    "rows.parquet": lambda path: datasets.Dataset.from_dict({"text": TEXTS}).to_parquet(path),
}


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # datasets' csv reader, when stopped early
@pytest.mark.parametrize("name", LOCAL)
def test_local_datasets(tmp_path, name, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    LOCAL[name](tmp_path / name)
    assert corpora.documents(f"hf:{tmp_path / name}") == TEXTS
    some = corpora.documents(f"hf:{tmp_path / name}", max_mb=100 / 1e6)
    assert some == TEXTS[:5]
    gc.collect()


def test_dataset_errors_name_the_dataset(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": null, "body": "b", "n": 3}\n{"text": "t", "body": "c", "n": 3}\n')
    assert corpora.documents(f"hf:{path}") == ["t"]
    assert corpora.documents(f"hf:{path}", text_field="body") == ["b", "c"]
    for field in ("content", "n"):
        with pytest.raises(
            ValueError, match=f"rows.jsonl' has no text in column '{field}'.*body \\(str\\), n \\(int\\)"
        ):
            corpora.documents(f"hf:{path}", text_field=field)
    (tmp_path / "rows.xml").write_text("x")
    with pytest.raises(ValueError, match="rows.xml' could not be read.*csv"):
        corpora.documents(f"hf:{tmp_path / 'rows.xml'}")
    with pytest.raises(ValueError, match="hf: needs the name"):
        corpora.documents("hf:")


def test_no_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(
        ValueError, match="'hf:someone/no-such-set:en' could not be read.*network.*local copy as hf:PATH"
    ):
        corpora.documents("hf:someone/no-such-set:en")


def test_network_text_is_kept(monkeypatch):
    asked = []

    def rows(name, subset):
        asked.append((name, subset))
        return [{"text": t} for t in TEXTS]

    monkeypatch.setattr(huggingface, "_rows", rows)
    for _ in range(2):
        assert corpora.documents("hf:someone/set:en") == TEXTS
    assert corpora.documents("hf:someone/set") == TEXTS
    assert asked == [("someone/set", "en"), ("someone/set", None)]
