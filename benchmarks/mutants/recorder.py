"""Which lines each test runs, recorded by a plugin of pytest while coverage runs.

What a fixture of a session, module or class does is kept under the fixture's name, as every test that asks for it needs
it, and not only the one that came first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage, CoverageData

CONTEXT = "MANYEYES_MUTANTS_CONTEXT"
"""The test that a started process belongs to."""
QUIET = ["no-data-collected", "module-not-imported", "module-not-measured", "module-not-python", "already-imported"]


class Recorder:
    """Lines to `<file>.lines`, a database of coverage; seconds, fixtures and outcomes to `<file>.json`."""

    def __init__(self, file: Path, sources: list[str]) -> None:
        self.file = file
        self.lines = str(file) + ".lines"
        started = Path(str(file) + ".started")
        kept = "\n  ".join(sources)
        started.write_text(
            f"[run]\ncore = ctrace\nparallel = true\nsigterm = true\ndata_file = {self.lines}\n"
            f"context = ${{{CONTEXT}}}\nsource =\n  {kept}\ndisable_warnings =\n  " + "\n  ".join(QUIET) + "\n"
        )
        self.coverage = Coverage(self.lines, source=sources, config_file=False)
        self.coverage.set_option("run:core", "ctrace")  # the others know no contexts
        self.coverage.set_option("run:disable_warnings", QUIET)
        os.environ["COVERAGE_PROCESS_START"] = str(started)
        self.tests: dict[str, dict[str, Any]] = {}
        self.fixtures: dict[str, float] = {}
        self.stack = [""]
        self.elsewhere = 0.0
        """Seconds in fixtures of more than one test, which the test that came first is not charged for."""

    def record(self, run: Callable[[Recorder], int]) -> int:
        self.coverage.start()
        status = run(self)
        self.coverage.stop()
        self.coverage.save()
        together = CoverageData(self.lines)
        together.read()
        for other in sorted(self.file.parent.glob(Path(self.lines).name + ".*")):
            if not other.name.endswith("-journal"):
                one = CoverageData(str(other))
                one.read()
                together.update(one)
            other.unlink()
        together.close()
        Path(str(self.file) + ".started").unlink()
        found = {"tests": self.tests, "fixtures": self.fixtures}
        self.file.with_name(self.file.name + ".json").write_text(json.dumps(found))
        return status

    @contextmanager
    def _under(self, context: str) -> Iterator[None]:
        self.stack.append(context)
        self._switch()
        try:
            yield
        finally:
            self.stack.pop()
            self._switch()

    def _switch(self) -> None:
        self.coverage.switch_context(self.stack[-1])
        os.environ[CONTEXT] = self.stack[-1]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        definitions = getattr(item, "_fixtureinfo", None)  # which names what a test asks for; no public one does
        asked = definitions.name2fixturedefs.items() if definitions else ()
        fixtures = [_key(name, found[-1]) for name, found in asked if found[-1].scope != "function"]
        self.tests[item.nodeid] = {"seconds": 0.0, "passed": True, "fixtures": fixtures}
        start, self.elsewhere = time.perf_counter(), 0.0
        with self._under(item.nodeid):
            result = yield
        self.tests[item.nodeid]["seconds"] = round(time.perf_counter() - start - self.elsewhere, 3)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        name, start, before = _key(fixturedef.argname, fixturedef), time.perf_counter(), self.elsewhere
        with self._under(name):
            result = yield
        took = time.perf_counter() - start
        self.fixtures[name] = round(max(self.fixtures.get(name, 0), took - (self.elsewhere - before)), 3)
        self.elsewhere = before + took
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.tests[report.nodeid]["passed"] = False


def _key(name: str, fixture: object) -> str:
    """Unlike any test's: `fixture <folder or file>::<name>`."""
    return f"fixture {getattr(fixture, 'baseid', '')}::{name}"
