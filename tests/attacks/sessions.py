"""Many people at once, and for long: each sees what one alone sees, and the server stays as large as it is.

People speak the dashboard's own protocol with its real server: what a browser would be sent is compared to the bit.
"""

from __future__ import annotations

import difflib
import itertools
import random
import shutil
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from streamlit.proto.Delta_pb2 import Delta

from tests.attacks import damage
from tests.attacks.forks import Forks
from tests.attacks.table import Tally
from tests.browsing import ROOT, served, server_of
from tests.person import Person, Seen

APP = ROOT / "dashboard/app.py"
PAGES = ("runs", "heads", "find", "training", "phases", "gradients", "ablate", "circuits", "specimens")
RUNS = ("one", "two", "three")
STEPS = (0, 3, 6)
PEOPLE, SOAKING = 20, 4
TAB = len(PAGES)
"""Pages that a person looks at before closing the tab: each once, for one that is asked for again is sent less."""
QUARTERS = 4
"""Of a soak: after each the server rests, and its memory and descriptors are looked at."""
FORGOTTEN = 130.0
"""Seconds after which Streamlit has let go of a closed tab, which it keeps for two minutes, of the last 128 tabs: a
loop of events (3 descriptors) and the page's state each, so what a busy server holds follows the pace of its guests."""
LOOKS = 5
"""Pages of one person at rest, a look after each: the first lets go of the closed tabs."""

Address = tuple[str, str]
"""Page and query."""


def train(folder: str, seed: int) -> None:
    from tests.attacks.kills import config
    from tracer.training import loop

    loop.train(replace(config(Path(folder)), seed=seed), quiet=True)


def _differences(alone: Seen, seen: Seen) -> list[str]:
    """The first place where two pages differ, in the protocol's words."""
    for place in sorted(alone.keys() | seen.keys()):
        if alone.get(place) != seen.get(place):
            before, now = (str(Delta.FromString(page.get(place, b""))).splitlines() for page in (alone, seen))
            lines = list(difflib.unified_diff(before, now, lineterm="", n=0))
            return [f"another page at {place}: {' '.join(line[:500] for line in lines[2:8])}"]
    return []


@contextmanager
def dashboard(forks: Forks, folder: Path) -> Iterator[str]:
    """Its address, over three small runs that differ in all their numbers."""
    for seed, name in enumerate(RUNS):
        made = forks.call("tests.attacks.sessions:train", folder / "made" / name, seed)
        assert made.clean, made.output
        (folder / "checkpoints").mkdir(exist_ok=True)
        (folder / "made" / name / "run").rename(folder / "checkpoints" / name)
    with served(APP, folder) as url:
        yield url


def together(forks: Forks, folder: Path, n: int, seed: int) -> Tally:
    """n pages in all, asked for by up to 20 people at once: equal to the bit to what each address shows alone."""
    tally, rng = Tally("page while others look too"), random.Random(seed)
    queries = [f"run={run}&step={step}" for run, step in itertools.product(RUNS, STEPS)]
    people = min(PEOPLE, n // 5)
    tabs = [[(rng.choice(queries), rng.sample(PAGES, min(TAB, n // people))) for _ in range(-(-n // people // TAB))]
            for _ in range(people)]  # fmt: skip
    with dashboard(forks, folder) as url:
        alone = dict[Address, Seen]()
        for address in sorted({(page, query) for query, pages in itertools.chain(*tabs) for page in pages}):
            for _ in ("computed", "known"):
                with Person(url) as person:
                    alone[address] = person.visit(*address)[0]

        def look(mine: list[tuple[str, list[str]]]) -> list[tuple[Address, Seen, list[str], float]]:
            found = []
            for query, pages in mine:
                with Person(url) as person:
                    for page in pages:
                        began = time.monotonic()
                        found.append(((page, query), *person.visit(page, query), time.monotonic() - began))
            return found

        with ThreadPoolExecutor(people) as pool:
            for address, seen, raised, seconds in itertools.chain(*pool.map(look, tabs)):
                tally.case(" ".join(address), *raised, *_differences(alone[address], seen), seconds=seconds)
    return tally


def damaged(folder: Path, run: Path, n: int, seed: int) -> Tally:
    """n pages of runs of which one file each is damaged: what cannot be shown is said in words, never a traceback."""
    tally, draw = Tally("page of a run with a damaged file"), random.Random(seed)
    (folder / "checkpoints").mkdir(parents=True)
    with served(APP, folder) as url:
        for i, file in enumerate(damage.victims(run, n // len(PAGES), draw)):
            place = folder / "checkpoints" / f"case-{i}"
            shutil.copytree(run, place)
            what = damage.harm(place / file, draw)
            with Person(url) as person:
                for page in PAGES:
                    began = time.monotonic()
                    raised = person.visit(page, f"run={place.name}")[1]
                    tally.case(f"{page}, {file}: {what}", *raised, seconds=time.monotonic() - began)
            shutil.rmtree(place)
    return tally


def soak(forks: Forks, folder: Path, minutes: int, seed: int) -> Tally:
    """For so long, four people come and go and write new prompts: at rest the server is as large as it was.

    The second rest is compared with the last: the first quarter fills what is kept between pages.
    """
    tally, sizes, descriptors = Tally("page in a long row"), list[float](), list[float]()
    with dashboard(forks, folder) as url:
        server, guests = server_of(url), itertools.count()

        def stay(guest: int) -> list[tuple[str, list[str], float]]:
            rng, found = random.Random(f"{seed} {guest}"), []
            with Person(url) as person:
                for _ in range(TAB):
                    query = f"run={rng.choice(RUNS)}&step={rng.choice(STEPS)}"
                    if rng.random() < 0.5:
                        query += f"&prompt={'+'.join(rng.choices('abcdefghij', k=12))}"
                    page, since = rng.choice(PAGES), time.monotonic()
                    raised = person.visit(page, query)[1]
                    found.append((f"{page} {query}", raised, time.monotonic() - since))
            return found

        def at_rest() -> tuple[float, float]:
            """MB and descriptors, the middle of a few looks, when the closed tabs are forgotten."""
            time.sleep(FORGOTTEN)
            looks = []
            for _ in range(LOOKS):
                with Person(url) as person:
                    person.visit("runs", "")
                looks.append((server.memory_info().rss / 1e6, server.num_fds()))
            return statistics.median(mb for mb, _ in looks[1:]), statistics.median(n for _, n in looks[1:])

        with ThreadPoolExecutor(SOAKING) as pool:
            for _ in range(QUARTERS):
                end = time.monotonic() + 60 * minutes / QUARTERS - FORGOTTEN
                while time.monotonic() < end:
                    for name, raised, seconds in itertools.chain(*pool.map(stay, itertools.islice(guests, SOAKING))):
                        tally.case(name, *raised, seconds=seconds)
                mb, fds = at_rest()
                sizes.append(mb)
                descriptors.append(fds)
    for what, found, room in (("MB", sizes, 1.05), ("file descriptors", descriptors, 1.25)):
        tally.test += (
            f", {what} at rest after each quarter of {minutes} minutes {', '.join(f'{x:,.0f}' for x in found)}"
        )
        if found[-1] > room * found[1]:
            tally.failures.append(f"{what} grow: {[round(one) for one in found]}")
    return tally
