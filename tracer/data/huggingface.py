"""Text of a Hugging Face dataset: `hf:NAME[:SUBSET]`, streamed; NAME can be a local file or folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tracer.data import cache

FILE_BUILDERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv", ".txt": "text"}


def documents(corpus: str, text_field: str, max_bytes: int) -> list[str]:
    """Texts of the train split, one document per row, until max_bytes are read; what came over the network is kept."""
    name, subset, local = _parse(corpus)
    if local:
        return _read(corpus, name, subset, text_field, max_bytes)
    entry = cache.key(dataset=name, subset=subset, text_field=text_field, max_bytes=max_bytes)
    if found := cache.load(entry):
        return json.loads((found / "documents.json").read_bytes())
    texts = _read(corpus, name, subset, text_field, max_bytes)
    cache.save(entry, {"documents.json": json.dumps(texts).encode()})
    return texts


def _parse(corpus: str) -> tuple[str, str | None, bool]:
    """(name, subset, whether the name is a local path)."""
    name = corpus.removeprefix("hf:")
    if not name:
        raise ValueError("hf: needs the name of a dataset: hf:NAME or hf:NAME:SUBSET")
    if Path(name).expanduser().exists():
        return str(Path(name).expanduser()), None, True
    name, _, subset = name.partition(":")
    path = Path(name).expanduser()
    return (str(path) if path.exists() else name), subset or None, path.exists()


def _read(corpus: str, name: str, subset: str | None, text_field: str, max_bytes: int) -> list[str]:
    texts: list[str] = []
    textless: dict[str, Any] | None = None
    try:
        for row in _rows(name, subset):
            text = row.get(text_field)
            if isinstance(text, str):
                texts.append(text)
                max_bytes -= len(text.encode())
            elif text_field not in row or text is not None:
                textless = row
            if textless or max_bytes <= 0:
                break
    except Exception as error:  # a dataset's own loader can fail in any way
        raise ValueError(
            f"dataset {corpus!r} could not be read: {type(error).__name__}: {error}. Check the spelling (hf:NAME or "
            "hf:NAME:SUBSET, as on huggingface.co/datasets) and the network, or give a local copy as hf:PATH "
            "(a folder from save_to_disk, or a json, jsonl, parquet, csv or txt file)"
        ) from error
    if textless:
        columns = ", ".join(f"{column} ({type(value).__name__})" for column, value in textless.items())
        raise ValueError(f"dataset {corpus!r} has no text in column {text_field!r}; set text_field to one of {columns}")
    return texts


def _rows(name: str, subset: str | None) -> Iterable[Any]:
    import datasets

    path = Path(name)
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        saved = datasets.load_from_disk(name)
        return saved["train"] if isinstance(saved, datasets.DatasetDict) else saved
    if path.is_file():
        if path.suffix not in FILE_BUILDERS:
            raise ValueError(f"{path.suffix or 'no'} suffix; a dataset file is one of {', '.join(FILE_BUILDERS)}")
        return datasets.load_dataset(FILE_BUILDERS[path.suffix], data_files=name, split="train", streaming=True)
    return datasets.load_dataset(name, subset, split="train", streaming=True)
