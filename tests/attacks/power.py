"""Power loss: a recorded training is cut at every operation, and of what was not flushed anything may be gone.

What a file system may do, and does here: content that was written but not flushed is there, torn, or not; a name that
was given, changed or removed in a folder that was not flushed since is as before or as after. What was flushed stays.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from tests.attacks import kills
from tests.attacks.forks import Forks
from tests.attacks.table import Tally
from tracer.files import disk as files

HERE = "tests.attacks.power"


def record(folder: str) -> None:
    """Train in FOLDER/run, and note every operation in FOLDER/operations.jsonl, contents in FOLDER/contents/."""
    root, noted = Path(folder).resolve(), []
    contents = root / "contents"
    contents.mkdir()
    numbers = itertools.count()

    def note(kind: str, path: Any, *more: Any) -> None:
        path = Path(path).absolute()
        if path.is_relative_to(root / "run") or (kind == "sync" and path == root):
            noted.append([kind, os.path.relpath(path, root), *more])

    def keep(content: Any) -> str:
        name = str(next(numbers))  # several threads write
        (contents / name).write_bytes(content)
        return name

    def wrap(owner: Any, name: str, before: Any) -> None:
        plain = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            found = plain(*args, **options)
            before(*args)
            return found

        setattr(owner, name, wrapped)

    def staged(batch: files.Batch, path: Path, content: Any) -> None:
        aside = batch.staged(path)
        assert aside is not None
        note("write", aside, keep(aside.read_bytes()))

    wrap(files.Batch, "stage", staged)
    wrap(files, "_flush", lambda path: note("sync", path))
    for name in ("replace", "rename"):
        wrap(Path, name, lambda path, to: note("rename", path, os.path.relpath(Path(to).absolute(), root)))
    wrap(Path, "unlink", lambda path, *_: note("unlink", path))
    wrap(Path, "mkdir", lambda path, *_: note("mkdir", path))
    from tracer.store import writer

    plain = writer.append_line

    def appended(path: Path, content: dict[str, Any]) -> None:
        plain(path, content)
        note("write", path, keep(path.read_bytes()))

    writer.append_line = appended
    kills.train(root)
    (root / "operations.jsonl").write_text("\n".join(map(json.dumps, noted)))


def survive(base: Path, operations: list[list[str]], cut: int, draw: random.Random, into: Path) -> None:
    """Build what is on the disk when power fails after `cut` operations."""
    done = operations[:cut]
    names: dict[str, int] = {}
    held: dict[int, list[str]] = {}
    flushed: dict[int, int] = {}
    changes: list[tuple[int, str, str, int | str]] = []
    for i, (kind, path, *more) in enumerate(done):
        if kind == "mkdir":
            changes.append((i, "mkdir", path, 0))
        elif kind == "write":
            if path not in names:
                names[path] = i
                changes.append((i, "link", path, i))
            held.setdefault(names[path], []).append(more[0])
        elif kind == "rename" and path in names:
            node = names.pop(path)
            names[more[0]] = node
            changes += [(i, "unlink", path, 0), (i, "link", more[0], node)]
        elif kind == "rename":
            names = {_moved(name, path, more[0]): node for name, node in names.items()}
            changes.append((i, "move", path, more[0]))
        elif kind == "unlink" and path in names:
            del names[path]
            changes.append((i, "unlink", path, 0))
        elif kind == "sync" and path in names:
            flushed[names[path]] = len(held[names[path]])
    folders_flushed = {path: i for i, (kind, path, *_) in enumerate(done) if kind == "sync"}
    mood = draw.choice([0.0, 0.5, 1.0])
    """What was not flushed: all lost, half of it, all there."""
    there: dict[str, int] = {}
    folders = {""}
    for i, change, path, node in changes:
        parent = os.path.dirname(path)
        sure = folders_flushed.get(parent, folders_flushed.get(parent or ".", -1)) > i
        if not sure and draw.random() >= mood:
            continue
        if change == "mkdir":
            folders.add(path)
        elif change == "move":
            folders = {_moved(name, path, str(node)) for name in folders}
            there = {_moved(name, path, str(node)): inside for name, inside in there.items()}
        elif change == "link":
            there[path] = int(node)
        else:
            there.pop(path, None)
    for path in sorted(folders):
        (into / path).mkdir(parents=True, exist_ok=True)
    for path, node in there.items():
        if os.path.dirname(path) not in folders:  # its folder is gone, and it with it
            continue
        sure, last = flushed.get(node, 0), len(held[node])
        version = last if draw.random() < mood else sure
        content = (base / "contents" / held[node][version - 1]).read_bytes() if version else b""
        if version > sure:
            least = len((base / "contents" / held[node][sure - 1]).read_bytes()) if sure else 0
            content = content[: draw.randint(min(least, len(content)), len(content))]
        (into / path).write_bytes(content)


def _moved(name: str, folder: str, to: str) -> str:
    """What a file or folder is called once `folder` is called `to`."""
    return to + name.removeprefix(folder) if name == folder or name.startswith(f"{folder}/") else name


def attack(forks: Forks, folder: Path, n: int, seed: int = 0) -> Tally:
    """`n` cuts, spread over all operations, each with its own draw of what is lost; each is then gone on from."""
    tally, base = Tally("power loss at any operation"), folder / "power-base"
    base.mkdir(parents=True)
    made = forks.call(f"{HERE}:record", base)
    assert made.clean, made.output
    operations = [json.loads(line) for line in (base / "operations.jsonl").read_text().splitlines()]
    expected, count = kills.facts(base), len(operations)
    for i in range(n):
        draw = random.Random(f"{seed} {i}")
        cut, place = 1 + (i * count + draw.randrange(count)) // n, folder / "case"
        place.mkdir()
        survive(base, operations, cut, draw, place)
        out = forks.call(f"{kills.HERE}:recovered", "train", place, timeout=300)
        problems = [] if out.clean else [f"{out.output[-1500:]}"]
        if out.clean:
            found = kills.facts(place)
            problems = [f"{key} differs" for key in expected if found.get(key) != expected[key]]
        tally.case(f"cut {cut} of {count}, draw {seed} {i}", *problems, seconds=out.seconds)
        shutil.rmtree(place)
    return tally
