"""Corpora are lists of documents (str): the standard library's sources, a file or folder, a Hugging Face dataset."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tracer.config import CORPORA
from tracer.data import huggingface

NOT_STDLIB = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "__pycache__"}
"""Folders under the standard library's that are tests, other people's packages, or gone in some versions."""


def documents(corpus: str, text_field: str = "text", max_mb: float = 48.0) -> list[str]:
    """The non-empty documents of a corpus, in a fixed order, at most max_mb megabytes of them."""
    max_bytes = int(max_mb * 1e6)
    if corpus == "python-stdlib":
        found = _take(_stdlib_files(Path(sysconfig.get_paths()["stdlib"])), max_bytes)
    elif corpus.startswith("hf:"):
        found = huggingface.documents(corpus, text_field, max_bytes)
    else:
        found = _path_documents(corpus, max_bytes)
    kept = [document for document in found if document.strip()]
    if not kept:
        raise ValueError(f"corpus {corpus!r} holds no text (files with a NUL byte are taken for binary and left out)")
    return kept


def python_passages(size: int = 4000) -> Iterator[str]:
    """The first `size` characters of every source file of the standard library that is as long, in a fixed order."""
    for path in _stdlib_files(Path(sysconfig.get_paths()["stdlib"])):
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
        if len(text) >= size:
            yield text[:size]


def _path_documents(corpus: str, max_bytes: int) -> list[str]:
    path = Path(corpus).expanduser()
    if path.is_file():
        return re.split(r"\n\s*\n", "".join(_take([path], max_bytes)))
    if corpus and path.is_dir():
        return _take(_walk(path), max_bytes)
    raise ValueError(
        f"unknown corpus {corpus!r}: there is no such file or folder. There are {', '.join(CORPORA)}, the path of a "
        "text file or folder, hf:NAME or hf:NAME:SUBSET for a Hugging Face dataset, and module:name of a function"
    )


def _stdlib_files(root: Path) -> Iterator[Path]:
    # _sysconfigdata*.py holds the paths and compiler flags of this machine
    return (p for p in _walk(root, NOT_STDLIB) if p.suffix == ".py" and not p.name.startswith("_sysconfigdata"))


def _walk(root: Path, skip: set[str] | frozenset[str] = frozenset()) -> Iterator[Path]:
    """Files under root, sorted, hidden ones left out."""
    for entry in sorted(os.scandir(root), key=lambda e: e.name):
        if entry.name.startswith(".") or entry.name in skip:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), skip)
        elif entry.is_file():
            yield Path(entry.path)


def _take(paths: Iterator[Path] | list[Path], max_bytes: int) -> list[str]:
    """One document per text file, until max_bytes are read."""
    found = []
    for path in paths:
        if max_bytes <= 0:
            break
        with path.open("rb") as file:
            raw = file.read(max_bytes)
        if b"\0" not in raw:
            max_bytes -= len(raw)
            found.append(raw.decode("utf-8-sig", errors="replace").replace("\r\n", "\n"))
    return found
