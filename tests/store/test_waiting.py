"""What waits is on the disk: whole, held by a living process or lost with one, and nobody else's files are touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import children
from tracer.files.disk import Damaged
from tracer.store import waiting
from tracer.store.waiting import FOLDER, Asked

TOY = Asked(command="train", of="induction", name="toy", seed=3, steps=40, options=("--model.n-heads=4",))
KEEP = """import pathlib, sys
from tracer.store.waiting import Asked, keep
held = [keep(Asked(command="train", of="induction", name=name), pathlib.Path(sys.argv[1])) for name in sys.argv[2:]]
print(len(held), flush=True)
sys.stdin.read()"""


def names(root: Path) -> list[tuple[str, bool]]:
    return [(one.asked.name, one.held) for one in waiting.waiting(root) if one.asked is not None]


def test_a_file_says_what_was_asked_for_until_the_work_begins(tmp_path: Path) -> None:
    assert waiting.waiting(tmp_path) == []
    ticket = waiting.keep(TOY, tmp_path)
    (found,) = waiting.waiting(tmp_path)
    assert (found.asked, found.held, found.damage, found.path) == (TOY, True, "", ticket.path)
    assert found.since is not None and found.since.tzinfo is not None and found.host == os.uname().nodename
    with pytest.raises(ValueError, match="another dashboard holds it"):
        waiting.claim(found.path)
    ticket.remove()
    assert waiting.waiting(tmp_path) == [] and os.listdir(tmp_path / FOLDER) == []
    with pytest.raises(ValueError, match="does not wait any more"):
        waiting.claim(found.path)


def test_what_a_killed_process_held_is_lost_in_order_and_goes_to_one(tmp_path: Path) -> None:
    mine = waiting.keep(TOY, tmp_path)
    command = [sys.executable, "-c", KEEP, str(tmp_path), "first", "second"]
    other = children.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None and other.stdout.readline() == b"2\n"
    assert names(tmp_path) == [("toy", True), ("first", True), ("second", True)]
    other.kill()
    other.wait()
    assert names(tmp_path) == [("toy", True), ("first", False), ("second", False)]
    lost = waiting.waiting(tmp_path)[1]
    ticket = waiting.claim(lost.path)
    with pytest.raises(ValueError, match="another dashboard holds it"):
        waiting.claim(lost.path)
    ticket.release()  # it could not be begun: it stays
    assert names(tmp_path) == [("toy", True), ("first", False), ("second", False)]
    waiting.forget(lost.path)
    waiting.forget(lost.path)  # by two people
    assert names(tmp_path) == [("toy", True), ("second", False)]
    mine.remove()


def test_what_somebody_removed_is_noticed_and_what_took_its_place_stays(tmp_path: Path) -> None:
    one, two = waiting.keep(TOY, tmp_path), waiting.keep(TOY, tmp_path)
    assert one.there and two.there
    one.path.unlink()
    two.path.unlink()
    two.path.write_text("another")
    assert not one.there and not two.there
    one.remove()
    two.remove()
    assert two.path.read_text() == "another"


def good(**changes: object) -> bytes:
    asked = {"command": "train", "of": "induction", "name": "x", **changes}
    return json.dumps({"asked": asked, "since": "2026-11-27T08:00:00Z", "host": "h"}).encode()


DAMAGED = {
    "empty": b"", "cut": good()[:-9], "a list": b"[]", "null": b"null", "deep": b"[" * 9000, "bytes": b"\xff\xfe" * 20,
    "half a character": good(name="?").replace(b"?", rb"\ud800"), "zeros": b"\0" * 300, "large": b" " * (1 << 20),
    "another command": good(command="rm"), "an option": good(build="module:name"), "a text": good(seed="--overwrite"),
    "a truth": good(steps=True), "below zero": good(steps=-1), "a number": good(options=[1]),
    "long": good(of="x" * 5000), "nan": good(seed=0).replace(b'"seed": 0', b'"seed": NaN'),
    "no time": good().replace(b"2026", b"then"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named_and_hides_no_other(name: str, tmp_path: Path) -> None:
    ticket = waiting.keep(TOY, tmp_path)
    (tmp_path / FOLDER / "0.json").write_bytes(DAMAGED[name])
    damaged, whole = waiting.waiting(tmp_path)
    assert damaged.asked is None and "0.json" in damaged.damage and len(damaged.damage) < 600
    assert whole.asked == TOY
    waiting.forget(damaged.path)
    assert names(tmp_path) == [("toy", True)]
    ticket.remove()


def test_the_cases_are_damaged_in_one_place_only(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "0.json").write_bytes(good(seed=0, steps=1, options=["x"]))
    assert names(tmp_path) == [("x", False)]


def test_odd_names_and_things_are_named_too(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    os.mkfifo(tmp_path / FOLDER / "pipe.json")
    (tmp_path / FOLDER / "folder.json").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / FOLDER) + b"/\xff.json")).write_bytes(b"{")
    (tmp_path / FOLDER / ".half.json.partial").write_bytes(b"{")
    (tmp_path / FOLDER / "notes.txt").write_text("mine")
    found = waiting.waiting(tmp_path)
    assert [one.asked for one in found] == [None] * 3
    assert all(one.damage.encode() for one in found)  # can be printed
    (tmp_path / "file" / FOLDER).parent.mkdir()
    (tmp_path / "file" / FOLDER).write_text("mine")
    (one,) = waiting.waiting(tmp_path / "file")
    assert FOLDER in one.damage
    with pytest.raises(OSError, match=FOLDER):
        waiting.keep(TOY, tmp_path / "file")


def test_nothing_is_written_or_removed_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1.json").write_bytes(good())
    (tmp_path / FOLDER).symlink_to(elsewhere)
    with pytest.raises(Damaged, match="is a link to"):
        waiting.keep(TOY, tmp_path)
    (one,) = waiting.waiting(tmp_path)
    assert one.asked is None and "is a link to" in one.damage
    for deed in (waiting.forget, waiting.claim):
        with pytest.raises(Damaged, match="is a link to"):
            deed(tmp_path / FOLDER / "1.json")
    (tmp_path / FOLDER).unlink()
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "1.json").symlink_to(elsewhere / "1.json")
    os.link(elsewhere / "1.json", tmp_path / FOLDER / "2.json")
    found = waiting.waiting(tmp_path)
    assert [one.asked for one in found] == [None, None]
    for one in found:
        with pytest.raises(Damaged):
            waiting.claim(one.path)
        waiting.forget(one.path)
    assert os.listdir(tmp_path / FOLDER) == [] and (elsewhere / "1.json").read_bytes() == good()


def test_on_a_full_disk_nothing_waits_and_nothing_is_left(tmp_path: Path) -> None:
    """A limit on the size of files, by which none takes a byte."""
    command = ["bash", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$0" "$@"', sys.executable, "-c", KEEP, tmp_path, "toy"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "OSError: [Errno 27]" in done.stderr, done.stderr
    assert os.listdir(tmp_path / FOLDER) == []
    assert waiting.waiting(tmp_path) == []


def test_of_very_many_the_first_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = [waiting.keep(TOY.model_copy(update={"name": f"toy-{i}"}), tmp_path) for i in range(4)]
    monkeypatch.setattr(waiting, "MOST_SHOWN", 3)
    assert [name for name, _ in names(tmp_path)] == ["toy-0", "toy-1", "toy-2"]
    for ticket in tickets:
        ticket.remove()


def test_who_only_looks_is_waited_for_a_moment_and_who_holds_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket, slept = waiting.keep(TOY, tmp_path), list[float]()
    monkeypatch.setattr(waiting.time, "sleep", slept.append)
    with pytest.raises(ValueError, match="another dashboard holds it"):
        waiting.claim(ticket.path)
    assert sum(slept) == pytest.approx(0.2)
    monkeypatch.setattr(waiting.time, "sleep", lambda seconds: ticket.release())
    waiting.claim(ticket.path).remove()
