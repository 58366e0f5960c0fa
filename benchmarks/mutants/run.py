"""Each mutant drawn gets the tests that reach it; verdicts go to a file, so that a run goes on where it ended."""

from __future__ import annotations

import ast
import hashlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from queue import SimpleQueue
from typing import Literal

from benchmarks.mutants import mutated
from benchmarks.mutants.forks import Job, Outcome, Slot
from benchmarks.mutants.house import House
from benchmarks.mutants.places import Mutant, compiled, draw, places
from benchmarks.mutants.reach import LIMIT, Reach

FIRST, ALL = 45.0, 120.0
"""Seconds of tests for every mutant, and for one that these leave alive."""
SLOWER, SPARE = 5.0, 60.0
"""A mutant may take so many times as long as its tests, and so many seconds more, before it is one that hangs."""
NEAR, SAME_ROOM, FAR = 1.0, 3.0, 10.0
"""A second of a test that is named after the file, of one of its room, and of another: the cheapest come first."""
Verdict = Literal["killed", "timeout", "survived", "not reached"]


@dataclass(frozen=True)
class Judged:
    mutant: Mutant
    verdict: Verdict
    by: str
    """The test that failed."""
    ran: int
    reaching: int
    seconds: float
    tests: tuple[str, ...]
    """Of a survivor, the files of the tests that noticed nothing."""
    digest: str
    """Of the file, and for a survivor of the tests that could have noticed: with other ones it is tried anew."""


def run(
    house: House, rooms: list[str], count: int, seed: str, slots: list[Slot], say: Callable[[str], None]
) -> list[Judged]:
    """The verdict on each mutant drawn; one of an earlier run of this seed stands while file and tests are the same."""
    judge = _Judge(house, Reach(house), say)
    drawn = [one for room in rooms for one in draw(house.root, house.files(room), room, count, seed)]
    results = house.kept / seed / "results.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    known = {(one.mutant, one.digest): one for one in _read(results)}
    found: dict[Mutant, Judged] = {}
    ahead = []
    for one in drawn:
        before = [known[key] for digest in judge.digests(one) if (key := (one, digest)) in known]
        if before and ("::" not in before[0].by or before[0].by in judge.reach.tests):
            found[one] = before[0]
        else:
            ahead.append(one)
    free: SimpleQueue[Slot] = SimpleQueue()
    for slot in slots:
        free.put(slot)

    def with_slot(one: Mutant) -> Judged:
        slot = free.get()
        try:
            return judge(one, slot)
        finally:
            free.put(slot)

    with ThreadPoolExecutor(len(slots)) as pool, results.open("a") as file:
        for number, done in enumerate(as_completed([pool.submit(with_slot, one) for one in ahead]), 1):
            one = done.result()
            found[one.mutant] = one
            file.write(json.dumps(asdict(one)) + "\n")
            file.flush()
            mutant = one.mutant
            change = f"{mutant.operator}: {mutant.before} -> {mutant.after}"
            by = one.by or f"{one.ran} of {one.reaching} tests"
            say(f"{number}/{len(ahead)} {one.verdict} {mutant.file}:{mutant.line} {change} [{by}, {one.seconds:.0f} s]")
    return [found[one] for one in drawn]


def _read(results: Path) -> Iterator[Judged]:
    for line in results.read_text().splitlines() if results.exists() else []:
        said = json.loads(line)
        yield Judged(**said | {"mutant": Mutant(**said["mutant"]), "tests": tuple(said["tests"])})


class _Judge:
    def __init__(self, house: House, reach: Reach, say: Callable[[str], None]) -> None:
        self.house, self.reach, self.say = house, reach, say
        self.sound: set[str] = set()
        """Tests that have killed a mutant, and pass in the same place of the same order where nothing is changed."""
        self.unsound: set[str] = set()
        self.reaching: dict[Mutant, set[str]] = {}
        self.lock = threading.Lock()

    def digests(self, mutant: Mutant) -> tuple[str, str]:
        """Of the file, which a kill stands on, and with that the tests that reach it, which a survivor stands on."""
        reaching = self._reaching(mutant)
        parts = [(self.house.root / mutant.file).read_text()]
        killed = _hash(parts)
        files = sorted({test.split("::")[0] for test in reaching})
        asked = [(self.house.root / one).read_text() for one in files]
        return killed, _hash([*parts, "alive", *sorted(reaching), *asked])

    def __call__(self, mutant: Mutant, slot: Slot) -> Judged:
        killed, alive = self.digests(mutant)
        reaching = self._reaching(mutant)
        order = self._order(mutant.file, reaching)
        if not order:
            return Judged(mutant, "not reached", "", 0, 0, 0.0, (), alive)
        with tempfile.NamedTemporaryFile(suffix=".mutant") as kept:
            path = self.house.root / mutant.file
            code = compiled(path.read_text(), mutant.number, mutant.share, str(path))
            mutated.keep(Path(kept.name), self.house.module(mutant.file), str(path), code)
            spent, done = 0.0, 0
            for limit in (FIRST, ALL):
                tests = self._within(order[done:], limit - self.reach.seconds(order[:done]))
                while tests:
                    outcome = self._try(tests, kept.name, slot)
                    spent += outcome.seconds
                    if outcome.failed is None and not outcome.timed_out:
                        break
                    if by := self._confirmed(outcome, tests, slot):
                        verdict = "timeout" if outcome.timed_out else "killed"
                        return Judged(mutant, verdict, by, len(outcome.ran), len(order), round(spent, 1), (), killed)
                    tests = [one for one in tests if one not in self.unsound]
                done += len(tests)
            files = tuple(sorted({test.split("::")[0] for test in order[:done]}))
            return Judged(mutant, "survived", "", done, len(order), round(spent, 1), files, alive)

    def _try(self, tests: list[str], kept: str, slot: Slot) -> Outcome:
        """Of the mutant; where it takes too long, with as much time again as the machine needs now, however busy."""
        limit = SLOWER * self.reach.seconds(tests) + SPARE
        outcome = slot.run(Job(tuple(tests), limit, kept))
        if outcome.timed_out:
            patience = SLOWER * slot.run(Job(tuple(tests), LIMIT)).seconds + SPARE
            if patience > limit:
                outcome = slot.run(Job(tuple(tests), patience, kept))
        return outcome

    def _confirmed(self, outcome: Outcome, tests: list[str], slot: Slot) -> str:
        """What killed it; nothing where the same tests fail, or take as long, in the same order and nothing changed."""
        by = "hangs" if outcome.timed_out else str(outcome.failed)
        last = outcome.ran[-1] if outcome.ran else ""
        if by in self.sound:
            return by
        clean = slot.run(Job(outcome.ran or tuple(tests), LIMIT))
        if clean.failed is None and not clean.timed_out:
            if by in self.reach.tests:
                with self.lock:
                    self.sound.add(by)
            return by
        with self.lock:
            self.unsound.add(clean.failed if clean.failed in self.reach.tests else last or tests[0])
        self.say(f"left out, as it fails with nothing changed: {clean.failed or last}\n{clean.log}")
        return ""

    def _reaching(self, mutant: Mutant) -> set[str]:
        if mutant not in self.reaching:
            place = places(ast.parse((self.house.root / mutant.file).read_text()))[mutant.number]
            self.reaching[mutant] = self.reach.of(mutant.file, place)
        return self.reaching[mutant] - self.unsound

    def _order(self, file: str, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.reach.seconds([test]) + 0.01) * _far(file, test))

    def _within(self, tests: list[str], seconds: float) -> list[str]:
        """As many of the first as there is time for, one at least."""
        found: list[str] = []
        made: set[str] = set()
        for test in tests if seconds > 0 else []:
            new = set(self.reach.tests[test].fixtures) - made
            seconds -= self.reach.tests[test].seconds + sum(self.reach.fixtures.get(one, 0) for one in new)
            if found and seconds < 0:
                break
            made |= new
            found.append(test)
        return found


def _far(file: str, test: str) -> float:
    path, home = PurePath(test.split("::")[0]), PurePath(file)
    if path.stem.removeprefix("test_").startswith(home.stem) or path.stem == f"test_{home.parent.name}_page":
        return NEAR
    return SAME_ROOM if set(path.parts[1:-1]) & set(home.parts[:-1]) else FAR


def _hash(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
