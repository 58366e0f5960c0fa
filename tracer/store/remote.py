"""Runs that lie elsewhere: a copy of each is kept here, so that everything else reads a folder.

Where it lies, `tracer.store.copies` says. What is small is fetched when it is new or changed; weights, when they are
asked for. A live run is fetched so that no row is seen before its arrays:
1. run.json and the `step` of each trace, 2. the list of files, 3. what changed of the others, 4. kept in reverse order.
A web server has no such list, only pages and files to ask for one by one: while the same job writes, a refresh asks for
none of a trace that has no new row, and of one that has for what may have changed since the last list (`_open`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tracer.files.disk import (
    MOST_JSON,
    MOST_LINES,
    MOST_TOKENIZER,
    Damaged,
    alone,
    write_bytes,
)
from tracer.store.copies import KEPT, NAME, below, note_of, note_path, place_of

SCHEMES = {
    "s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub", "ssh": "paramiko", "sftp": "paramiko",
    "https": "aiohttp", "http": "aiohttp",
}  # fmt: skip
MOST = {
    "run.json": MOST_JSON, "log.jsonl": MOST_LINES, "samples.jsonl": MOST_LINES, "findings.jsonl": MOST_LINES,
    "tokenizer.json": MOST_TOKENIZER,
    "note.txt": 1 << 16, "trace.zarr": 256 << 20, "updates.zarr": 256 << 20, "effects.zarr": 256 << 20,
    "snapshots": 1 << 40, "states": 1 << 40, "surveys": 256 << 20, "rows": 256 << 20, "probe.safetensors": 1 << 40,
}  # fmt: skip
"""Bytes of a file, by the first part of its name; what is called otherwise is left where it is."""
WEIGHTS = ("snapshots", "states", "probe.safetensors")
MOST_FILES = 200_000
MOST_BYTES = 16 << 30
"""Of one run, without weights."""
TOGETHER = 64 << 20
"""Bytes that are fetched at a time."""
MARKS = ("ETag", "etag", "blob_id", "mtime", "LastModified")
"""What tells a changed file of the same size; the first that a store gives."""
HEAD = re.compile(r"run\.json|(trace|updates|effects)\.zarr(/[^/]+)?/step/c/[0-9]+")
STEP = re.compile(r"((?:trace|updates)\.zarr)/step/c/([0-9]+)")
CHUNK = re.compile(r"((?:trace|updates)\.zarr/\w+/)(?:zarr\.json|c[/.]([0-9]+)(?:[/.][0-9]+)*)")
JOB = ("created", "host", "pid", "resumed")
"""What run.json says of the process that writes: another one may take rows back."""

P = ParamSpec("P")
T = TypeVar("T")
Listing = dict[str, list[Any]]
"""Of each file its size and its mark."""


def _store(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path in it; ValueError in words for one that is not read."""
    scheme = url.partition("://")[0].lower()
    if scheme not in SCHEMES or "::" in url:
        raise ValueError(f"{url}: runs are read from {', '.join(f'{name}://' for name in SCHEMES)} and from folders")
    try:
        import fsspec

        if scheme in ("http", "https"):
            from tracer.store.web_server import WebServer

            return WebServer(tuple(MOST)), url
        options = {"host_key_policy": _known_hosts()} if scheme in ("ssh", "sftp") else {}
        return fsspec.url_to_fs(url, **options)
    except ImportError as error:
        raise ValueError(f'{url} needs {SCHEMES[scheme]}: pip install "manyeyes[remote]"') from error


def _known_hosts() -> type:
    """A machine is spoken to only if ~/.ssh/known_hosts has its key; fsspec by itself would trust any."""
    import paramiko

    class KnownHosts(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            path = Path("~/.ssh/known_hosts").expanduser()
            if not path.is_file() or not paramiko.HostKeys(str(path)).check(hostname, key):
                raise OSError(f"{path} does not hold the key of {hostname}: connect once with ssh, and look at it")

    return KnownHosts


def _list(fs: Any, root: str, before: Listing | None = None, still: Sequence[str] = ()) -> tuple[Listing, float]:
    """The files of a run, and when the newest was written; Damaged where they are more or larger than a run's are.

    `before`: an earlier list, of which what cannot have changed is taken as it is, the `still` traces as a whole.
    """
    fs.invalidate_cache()
    found, known = _open(before, still) if before else ({}, {})
    sure = {name: mark for name, mark in (before or {}).items() if KEPT.fullmatch(name) and mark[1][-1:] != "?"}
    listed = fs.find(root, detail=True, **({"known": known, "sure": sure} if before else {}))
    newest = max((_seconds(info) for info in listed.values()), default=0.0)
    for path, info in listed.items():
        name = path.removeprefix(root).lstrip("/")
        parts = name.split("/")
        if ".." in parts or "\\" in name or "\0" in name or not path.startswith(root):
            raise Damaged(f"{path!r:.200} leads out of the run's own folder, so none of it is read")
        most = MOST.get(parts[0])
        if most is None or info["type"] != "file" or any(not part or part.startswith(".") for part in parts):
            continue
        if info["size"] > most:
            raise Damaged(f"{path} has {info['size']:,} bytes, more than the {most:,} that such a file may have")
        mark = str(next((info[key] for key in MARKS if info.get(key)), ""))
        if "mtime" in info and (_seconds(info) > newest - 2 or not mark):
            mark += "?"  # such times are whole seconds: the file may change again within this one
        found[name] = [info["size"], mark]
    small = sum(size for name, (size, _) in found.items() if name.split("/")[0] not in WEIGHTS)
    if len(found) > MOST_FILES or small > MOST_BYTES:
        raise Damaged(f"{root} has {len(found):,} files and {small:,} bytes without weights: more than is fetched")
    return found, newest


def _open(before: Listing, still: Sequence[str]) -> tuple[Listing, dict[str, list[str]]]:
    """What is as it was, and the files that may have changed of each folder that need not be listed.

    Rows are appended: of an array only the chunks of the last rows change, and those after them are new.
    """
    chunks = {name: found for name in before if (found := CHUNK.fullmatch(name))}
    last: dict[str, int] = {}
    for found in chunks.values():
        last[found[1]] = max(last.get(found[1], 0), int(found[2] or 0))
    same = {
        name: mark for name, mark in before.items()
        if name.split("/")[0] in still
        or ((found := chunks.get(name)) and int(found[2] or last[found[1]]) < last[found[1]] and mark[1][-1:] != "?")
    }  # fmt: skip
    known: dict[str, list[str]] = {f"{top}/": [] for top in still}
    for name, found in chunks.items():
        if name not in same:
            known.setdefault(found[1], []).append(name)
    return same, known


def _unmoved(directory: Path, heads: Mapping[str, bytes], room: Listing) -> list[str] | None:
    """The traces whose rows are those of the copy; None where another job than the copy's may have written."""

    def here(name: str) -> bytes | None:
        return path.read_bytes() if (path := directory / name).is_file() else None

    try:
        then, now = (json.loads(content or b"{}") for content in (here("run.json"), heads.get("run.json")))
        if not then or any(then.get(name) != now.get(name) for name in JOB):
            return None
    except (ValueError, AttributeError):
        return None
    steps: dict[str, bool] = {}
    for name in room:
        if found := STEP.fullmatch(name):
            steps[found[1]] = steps.get(found[1], True) and heads.get(name) == here(name)
    return [top for top, same in steps.items() if same]


def _seconds(info: dict[str, Any]) -> float:
    when = info.get("mtime") or info.get("LastModified")
    return when.timestamp() if isinstance(when, datetime) else 0.0


def _fetch(fs: Any, root: str, listing: Listing, names: list[str]) -> dict[str, bytes]:
    """The content of files; one that changed since it was listed, or is gone, is left out."""
    contents: dict[str, bytes] = {name: b"" for name in names if not listing[name][0]}
    waiting = [name for name in names if name not in contents]
    while waiting:
        some, size = [], 0
        while waiting and (not some or size + listing[waiting[-1]][0] <= TOGETHER):
            size += listing[waiting[-1]][0]
            some.append(waiting.pop())
        ends = [listing[name][0] + 1 for name in some]  # one more, to see that it grew
        got = fs.cat_ranges([f"{root}/{name}" for name in some], 0, ends, on_error="return")
        for name, content in zip(some, got, strict=True):
            if isinstance(content, Exception):
                if not isinstance(content, FileNotFoundError):
                    raise OSError(f"{root}/{name} cannot be fetched: {content}") from content
            elif name.endswith(".jsonl") or HEAD.fullmatch(name) or len(content) == listing[name][0]:
                contents[name] = content
    return contents


def _in_words(ask: Callable[P, T]) -> Callable[P, T]:
    """Every store has exceptions of its own for what cannot be reached or may not be read: OSError that names it."""

    @wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return ask(*args, **kwargs)
        except (ValueError, MemoryError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and type(error).__module__ == "builtins":
                raise
            raise OSError(f"{args[0]} cannot be read: {error}") from error

    return asked


@_in_words
def mirror(url: str, whole: bool = True, tries: int = 3, anew: bool = True) -> Path:
    """Bring the copy of a run up to date, of weights only the list; its folder. `whole`: more than run.json; `anew`:
    look at every file of a web server's, and not only at what a run that goes on may have changed."""
    directory, url = place_of(url)
    fs, root = _store(url)
    root = root.rstrip("/")
    noted = note_of(directory)
    here: Listing = noted.get("here", {})
    before: Listing = noted.get("there") or _list(fs, root)[0]
    if "run.json" not in before:
        raise FileNotFoundError(
            f"{url} has no run.json, so it is not a run; `tracer ls URL` lists those below a folder"
        )
    room = {name: [MOST_JSON, ""] for name in before if HEAD.fullmatch(name) and (whole or name == "run.json")}
    quick = whole and not anew and fs.protocol == ("http", "https") and before is noted.get("there")
    if quick:
        room |= {
            f"{found[1]}/step/c/{int(found[2]) + 1}": [MOST_JSON, ""] for found in map(STEP.fullmatch, room) if found
        }
    heads = _fetch(fs, root, room, sorted(room))
    still = _unmoved(directory, heads, room) if quick else None
    there, newest = _list(fs, root, None if still is None else before, still or ())
    newest = max(newest, noted.get("newest", 0.0)) if quick else newest
    changed = [
        name for name, mark in there.items()
        if whole and not HEAD.fullmatch(name) and name.split("/")[0] not in (*WEIGHTS, *(still or ()))
        and here.get(name) != mark
    ]  # fmt: skip
    contents = _fetch(fs, root, there, changed)
    torn = bool(set(changed) - set(contents))
    if torn:  # replaced while it was fetched: no more rows are shown than before
        heads = {name: content for name, content in heads.items() if not (directory / name).exists()}
    weights = {name for name in there if name.split("/")[0] in WEIGHTS}
    with alone(directory):
        fetched = note_of(directory).get("here", {})  # meanwhile others have brought weights
        here |= {name: mark for name, mark in fetched.items() if name.split("/")[0] in WEIGHTS}
        for name in {*here, *weights}:
            if name not in there or (name in weights and here.get(name) != there[name]):
                (directory / name).unlink(missing_ok=True)
                here.pop(name, None)
        for name, content in [*contents.items(), *sorted(heads.items(), reverse=True)]:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != content:  # else its time would say that more is there
                write_bytes(path, content)
            if not there.get(name, ["", "?"])[1].endswith("?"):
                here[name] = there[name]
        _write_note(directory, {"url": url, "there": there, "here": here, "newest": newest})
    return mirror(url, whole, tries - 1, anew) if torn and tries > 1 else directory


def _write_note(directory: Path, note: dict[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    write_bytes(note_path(directory), json.dumps(note).encode())


@_in_words
def bring(path: Path) -> Path:
    """Fetch a file of weights of a copy if it is not here yet; the path as given."""
    directory = path.parent.parent if path.parent.name in WEIGHTS else path.parent
    if path.exists() or not (noted := note_of(directory)):
        return path
    name = path.relative_to(directory).as_posix()
    if name not in noted["there"]:
        return path
    with alone(path):
        if path.exists():  # somebody else was fetching it
            return path
        fs, root = _store(noted["url"])
        aside = path.with_name(f".{path.name}.partial")
        most = noted["there"][name][0]
        with fs.open(f"{root.rstrip('/')}/{name}", "rb") as source, aside.open("wb") as f:
            while f.tell() <= most and (part := source.read(min(TOGETHER, most + 1 - f.tell()))):
                f.write(part)
            size = f.tell()
        if size != most:
            aside.unlink()
            raise Damaged(f"{noted['url']}/{name} changed while it was fetched: open the run again")
        with alone(directory):
            aside.replace(path)
            now = note_of(directory) or noted  # another process may have refreshed it meanwhile
            _write_note(directory, {**now, "here": {**now["here"], name: noted["there"][name]}})
    return path


@_in_words
def mirror_all(url: str, whole: bool = False) -> tuple[Path, dict[str, str]]:
    """Copies of all runs of a folder: the folder that they are in, and why others cannot be read."""
    fs, root = _store(url := url.rstrip("/"))
    fs.invalidate_cache()
    at, broken = below(url), {}
    try:
        listed = fs.ls(root, detail=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url} is not there: {error}") from error
    folders = [str(info["name"]).rstrip("/") for info in listed if info["type"] == "directory"]
    for name in (folder.rpartition("/")[2] for folder in folders):
        try:
            if NAME.fullmatch(name) and fs.exists(f"{root.rstrip('/')}/{name}/run.json"):
                mirror(f"{url}/{name}", whole)
        except (OSError, ValueError) as error:
            broken[name] = str(error)
    at.mkdir(parents=True, exist_ok=True)
    return at, broken


@_in_words
def fetch(url: str) -> Path:
    """The copy of a run, or the folder with those of all runs of a folder."""
    fs, root = _store(url := url.rstrip("/"))
    fs.invalidate_cache()
    return mirror(url) if fs.exists(f"{root.rstrip('/')}/run.json") else mirror_all(url, whole=True)[0]


def place(url: str) -> Path:
    """The folder in which the copies of a URL are: of all runs of a folder, or of a run and those beside it."""
    url = url.rstrip("/")
    return at if (at := below(url)).is_dir() else place_of(url)[0].parent
