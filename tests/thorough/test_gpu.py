"""The table of `make gpu`, with the CPU as the second device: what it prints, keeps and ends with; that it fails."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.gpu.__main__ import OUT_OF_TIME, Check, main
from benchmarks.gpu.heads import heads
from benchmarks.gpu.kernels import kernels
from benchmarks.gpu.memory import memory
from benchmarks.gpu.own import own
from benchmarks.gpu.place import CPU, Place, apart, off
from benchmarks.gpu.questions import ablations, answers
from benchmarks.gpu.table import Line, NotHere, at_most
from benchmarks.gpu.training import curves, demo


def good(place: Place) -> Iterator[Line]:
    yield Line("a ratio", "1.20")
    yield at_most("an error", 1e-7, 1e-5)


def bad(place: Place) -> Iterator[Line]:
    yield at_most("an error", 1e-3, 1e-5)


def broken(place: Place) -> Iterator[Line]:
    yield at_most("before", 0.0, 1e-5)
    raise ValueError("first line\nthe last line says it")


def absent(place: Place) -> Iterator[Line]:
    raise NotHere("two GPUs, 1 here")
    yield  # a generator, as every check is


def run(out: Path, checks: dict[str, Check], *arguments: str) -> tuple[int, list[tuple[str, str]]]:
    """The exit status, and (what, verdict) of every row that was kept."""
    code = main(["--device", "cpu", "--out", str(out), *arguments], checks)
    return code, [(row["what"], row["verdict"]) for row in json.loads((out / "table.json").read_text())["rows"]]


GOOD = [("a ratio", "measured"), ("an error", "yes")]


def test_a_table_whose_rows_hold_ends_with_0(tmp_path: Path) -> None:
    assert run(tmp_path, {"good": good, "absent": absent}) == (0, [*GOOD, ("absent", "NOT RUN: two GPUs, 1 here")])
    assert "| an error | 1e-07 | at most 1e-05 | yes |" in (tmp_path / "table.md").read_text()


def test_a_row_that_does_not_hold_ends_it_with_1_and_ends_no_other(tmp_path: Path) -> None:
    assert run(tmp_path, {"bad": bad, "good": good}) == (1, [("an error", "NO"), *GOOD])


def test_a_check_that_raises_is_a_row_with_the_last_line_of_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows = run(tmp_path, {"broken": broken, "good": good})
    assert code == 1 and rows == [("before", "yes"), ("broken: error", "NO"), *GOOD]
    assert "the last line says it" in capsys.readouterr().out
    assert "in broken" in (tmp_path / "log.txt").read_text()


def test_only_names_checks(tmp_path: Path) -> None:
    assert run(tmp_path, {"bad": bad, "good": good}, "--only", "good") == (0, GOOD)


def test_what_a_killed_table_leaves(tmp_path: Path) -> None:
    found = []

    def looks(place: Place) -> Iterator[Line]:
        yield Line("first", "1")
        found.append(((tmp_path / "table.md").read_text(), json.loads((tmp_path / "table.json").read_text())["rows"]))

    assert run(tmp_path, {"looks": looks})[0] == 0
    assert "| first | 1 |" in found[0][0] and [row["what"] for row in found[0][1]] == ["first"]


def test_no_check_begins_when_the_time_is_over(tmp_path: Path) -> None:
    late = f"NOT RUN: {OUT_OF_TIME}"
    assert run(tmp_path, {"bad": bad, "good": good}, "--minutes", "0") == (0, [("bad", late), ("good", late)])


def test_without_cuda_it_says_not_run_and_ends_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["--out", str(tmp_path / "new")], {"bad": bad}) == 0
    assert capsys.readouterr().out.startswith("NOT RUN: torch ") and not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("found", "reference", "relative", "absolute"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0, 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1, 0.5),
        ([3.0, np.nan], [3.0, np.nan], 0.0, 0.0),
        ([3.0, np.nan], [3.0, 4.0], np.nan, np.nan),
        ([3.0], [3.0, 4.0], np.nan, np.nan),
    ],
)
def test_errors(found: list[float], reference: list[float], relative: float, absolute: float) -> None:
    np.testing.assert_allclose(off(torch.tensor(found), np.array(reference)), relative)
    np.testing.assert_allclose(apart(found, torch.tensor(reference)), absolute)
    assert at_most("x", relative, 1.0).holds is (relative == relative)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(CPU, tmp_path_factory.mktemp("gpu"), small=True, threads=1)
    yield made
    made.close()


def lines(check: Any, place: Place) -> dict[str, bool | None]:
    return {line.what: line.holds for line in check(place)}


@pytest.mark.parametrize("check", [demo, heads, ablations, answers, own, kernels, curves])
def test_on_the_cpu_every_row_holds(place: Place, check: Check) -> None:
    found = lines(check, place)
    assert found and False not in found.values(), found


def test_weights_that_differ_a_little_are_seen(place: Place) -> None:
    other = Place(CPU, place.out, small=True)
    other.__dict__ |= {"demo": place.demo, "there": copy.deepcopy(place.model)}
    for weight in other.there.parameters():
        weight.mul_(1.02)
    for check in (ablations, answers):
        found = {
            what: holds for what, holds in lines(check, other).items() if not what.startswith(("`tracer", "verdict"))
        }
        assert not any(found.values()), found


def test_memory_of_a_gpu_is_not_read_off_a_cpu(place: Place) -> None:
    with pytest.raises(NotHere, match="memory of the device needs CUDA"):
        list(memory(place))
