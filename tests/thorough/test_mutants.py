"""Small wrong changes: what can be done to a line, what is left alone, what is drawn, and what kills a mutant."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.mutants.places import Mutant, changed, compiled, draw, places
from benchmarks.mutants.report import argued, report, section
from benchmarks.mutants.run import Judged, Verdict


def mutants(source: str, operator: str | None = None) -> list[str]:
    """Every change of the source, as it is shown."""
    found = []
    for number, place in enumerate(places(ast.parse(source))):
        if operator in {None, place.operator}:
            for choice in range(len(place.instead)):
                share = choice / len(place.instead)
                _, before, after, _ = changed(source, number, share)
                found.append(f"{before} -> {after}")
                compiled(source, number, share, "snippet")
    return found


@pytest.mark.parametrize(
    ("source", "operator", "expected"),
    [
        ("f(a < b)", "comparison", ["a < b -> a <= b", "a < b -> a >= b"]),
        ("f(a == b)", "comparison", ["a == b -> a != b"]),
        ("f(0 <= a < b)", "comparison", [
            "0 <= a < b -> 0 < a < b", "0 <= a < b -> 0 > a < b",
            "0 <= a < b -> 0 <= a <= b", "0 <= a < b -> 0 <= a >= b",
        ]),
        ("f(a + b)", "sign", ["a + b -> a - b"]),
        ("f(p - q)", "sign", ["p - q -> p + q", "p - q -> q - p"]),
        ("f(-a)", "sign", ["-a -> a"]),
        ("a += b", "sign", ["a += b -> a -= b"]),
        ("'a' + b", "sign", []),
        ("f(a * b)", "dropped term", ["a * b -> a", "a * b -> b"]),
        ("f(a and b)", "dropped term", ["a and b -> b", "a and b -> a"]),
        ("f(a if b else c)", "dropped term", ["a if b else c -> a", "a if b else c -> c"]),
        ("f(a, beta=b)", "dropped term", ["f(a, beta=b) -> f(a)"]),
        ("f(a, strict=True)", None, []),
        ("x.abs()", "dropped term", ["x.abs() -> x"]),
        ("torch.abs(x)", "dropped term", ["torch.abs(x) -> x"]),
        ("f(a and b)", "logic", ["a and b -> a or b"]),
        ("f(not a)", "logic", ["not a -> a"]),
        ("if a:\n    b()", "condition", ["a -> True", "a -> False"]),
        ("while a:\n    b()", "condition", ["a -> False"]),
        ("[a for a in b if a]", "condition", ["[a for a in b if a] -> [a for a in b]"]),
        ("x = 0.5", "constant", ["x = 0.5 -> x = 0.75", "x = 0.5 -> x = 0.25"]),
        ("f(1)", "constant", ["f(1) -> f(2)", "f(1) -> f(0)"]),
        ("f(a=1)", "constant", ["a=1 -> a=2", "a=1 -> a=0"]),
        ("f(-1)", "constant", ["f(-1) -> f(0)", "f(-1) -> f(-2)"]),
        ("f(16)", "constant", ["f(16) -> f(32)", "f(16) -> f(8)"]),
        ("f(True)", "constant", ["f(True) -> f(False)"]),
        ("x.any(dim=-1)", "axis", ["x.any(dim=-1) -> x.any(dim=-2)", "x.any(dim=-1) -> x.any(dim=0)"]),
        ("x.softmax(1)", "axis", ["x.softmax(1) -> x.softmax(2)", "x.softmax(1) -> x.softmax(0)"]),
        ("x.mean((1, 3))", "axis", ["x.mean((1, 3)) -> x.mean((3,))", "x.mean((1, 3)) -> x.mean((1,))"]),
        ("max(x, 1)", "axis", []),
        ("x[1:]", "off by one", ["x[1:] -> x[2:]", "x[1:] -> x[0:]"]),
        ("x[:-1]", "off by one", ["x[:-1] -> x[:-2]", "x[:-1] -> x[:]"]),
        ("x[:n]", "off by one", ["x[:n] -> x[:n + 1]", "x[:n] -> x[:n - 1]"]),
        ("range(1, n)", "off by one", ["range(1, n) -> range(1, n + 1)", "range(1, n) -> range(1, n - 1)"]),
        ("x.mean()", "statistic", ["x.mean() -> x.median()", "x.mean() -> x.sum()"]),
        ("min(a, b)", "statistic", ["min(a, b) -> max(a, b)"]),
        ("sorted(a)", "order", ["sorted(a) -> sorted(a, reverse=True)"]),
        ("def f(a, b=2): ...", "default", ["b=2 -> b=3", "b=2 -> b=1"]),
        ("def f(*, a: Literal['p', 'q'] = 'p'): ...", "default", ["a='p' -> a='q'"]),
    ],
)  # fmt: skip
def test_what_can_be_done_wrong(source: str, operator: str | None, expected: list[str]) -> None:
    assert mutants(source, operator) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A text of 3 words."""',
        "raise ValueError(a + 1)",
        "assert a < 1",
        "print(a + 1)",
        "x = f'{a + 1:.2f}'",
        "def f(a: Float[Tensor, 1]) -> Float[Tensor, 2]: ...",
        "@cache(maxsize=1)\ndef f(): ...",
        "if TYPE_CHECKING:\n    a = 1",
        "from a import b",
        "Head = tuple[int, int]",
    ],
)
def test_messages_types_and_invariants_are_left_alone(source: str) -> None:
    assert mutants(source) == []


def test_where_a_test_would_have_to_come_by() -> None:
    source = "LIMIT = 1\nclass A:\n    b = 2\n    def c(self, d=3):\n        return (\n            4\n        )\n"
    found = [(one.line, one.lines, one.in_function, sorted(one.names)) for one in places(ast.parse(source))]
    assert found == [
        (1, range(1, 2), False, ["LIMIT"]),
        (3, range(3, 4), False, ["A", "b"]),
        (4, range(5, 8), True, []),
        (6, range(6, 7), True, ["A"]),
    ]


SMALL = {
    "small/__init__.py": "",
    "small/sums.py": "def twice(x):\n    return 2 * x\n\n\ndef unasked(x):\n    return not x\n\n\nLISTED = 5,\nA = 7\n",
    "small/shows.py": "def shown(x):\n    return x + 1\n",
    "small/lists.py": "from small.sums import LISTED\n\n\ndef is_listed(x):\n    return x in LISTED\n",
    "tests/test_small.py": """
import subprocess, sys
import small.shows
from small.sums import A, twice
from streamlit.testing.v1 import AppTest

def test_it_is_seven():
    assert A == 7

def test_twice():
    assert twice(3) == 6

def test_page():
    page = AppTest.from_string("import streamlit, small.shows; streamlit.text(small.shows.shown(4))").run()
    assert page.text[0].value == "5"

def test_listed():
    command = "from small.lists import is_listed; assert is_listed(5)"
    assert subprocess.run([sys.executable, "-c", command]).returncode == 0
""",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n",
    "run_it.py": """
import sys
from pathlib import Path
from benchmarks.mutants import reach
from benchmarks.mutants.forks import Slot
from benchmarks.mutants.house import House
from benchmarks.mutants.run import run

if __name__ == "__main__":
    root = Path(sys.argv[1])
    house = House(root, (("small", ("small/*.py",)),), ("small",), warm=("pytest", "coverage", "streamlit.testing.v1"))
    with Slot(house, 0) as slot:
        reach.make(house, [slot], print)
        found = run(house, ["small"], 1000, "seed", [slot], print)
    for one in found:
        change = f"{one.mutant.operator} {one.mutant.before}"
        print(f"= {one.mutant.file}:{one.mutant.line} {change} = {one.verdict} {one.by}")
""",
}
TWICE, LISTED = "killed tests/test_small.py::test_twice", "killed tests/test_small.py::test_listed"
PAGE = "killed tests/test_small.py::test_page"
"""AppTest keeps its scripts in a folder that it makes as it is imported, once for all jobs."""
VERDICTS = {
    "small/sums.py:2 dropped term 2 * x": TWICE,
    "small/sums.py:2 constant 2 * x": TWICE,
    "small/sums.py:6 logic not x": "not reached",
    "small/sums.py:9 constant LISTED = (5,)": LISTED,
    "small/sums.py:10 constant A = 7": "killed tests/test_small.py::test_it_is_seven",
    "small/lists.py:5 comparison x in LISTED": LISTED,
    "small/shows.py:2 sign x + 1": PAGE,
    "small/shows.py:2 dropped term x + 1": PAGE,
    "small/shows.py:2 constant x + 1": PAGE,
}


def run_it(root: Path) -> tuple[dict[str, str], str]:
    """The verdict on each change, and all that was said."""
    command = [sys.executable, "run_it.py", str(root)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=root,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line[2:].rpartition(" = ") for line in done.stdout.splitlines() if line.startswith("= ")]
    return {place: verdict.strip() for place, _, verdict in lines}, done.stdout


def test_a_mutant_dies_by_a_test_that_reaches_it(tmp_path: Path) -> None:
    """Also one in a process that the test starts; the files stay as they are, and what is known is not run again."""
    for path, text in SMALL.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    verdicts, said = run_it(tmp_path)
    assert verdicts == VERDICTS and "left out" not in said, said
    assert (tmp_path / "small/sums.py").read_text() == SMALL["small/sums.py"]

    again, said = run_it(tmp_path)
    assert again == VERDICTS
    assert "1/" not in said, said

    with (tmp_path / "tests/test_small.py").open("a") as file:
        file.write("\ndef test_unasked():\n    from small.sums import unasked\n    assert unasked(0)\n")
    later, said = run_it(tmp_path)
    changed_now = {"small/sums.py:6 logic not x": "killed tests/test_small.py::test_unasked"}
    assert later == VERDICTS | changed_now, said
    assert "lines 1/1" in said and "1/1 killed" in said and "2/" not in said  # no mutant that was killed


def test_what_is_drawn_depends_on_the_seed_and_the_files_alone(tmp_path: Path) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text("\n".join(f"x{n} = {n} + y" for n in range(20)))
    drawn = draw(tmp_path, files, "room", 30, "seed")
    assert len(set(drawn)) == 30
    assert drawn == draw(tmp_path, files[::-1], "room", 30, "seed")
    assert drawn != draw(tmp_path, files, "room", 30, "other")
    assert drawn != draw(tmp_path, files, "other", 30, "seed")
    assert {one.operator for one in drawn} == {"constant", "sign", "dropped term"}
    assert len(draw(tmp_path, files, "room", 1000, "seed")) == 2 * 20 * 3


def judged(verdict: Verdict, text: str = "a < b", room: str = "heads") -> Judged:
    mutant = Mutant(room, "a.py", 1, 0.0, "comparison", 3, text, "a < b", "a <= b")
    return Judged(mutant, verdict, "", 2, 2, 1.0, (), "")


def test_what_was_argued_away_is_not_counted_and_what_hangs_is_killed() -> None:
    listed = [{"file": "a.py", "text": "c(a < b)", "change": "a < b -> a <= b", "why": "equal anyway"}]
    found = [judged("killed"), judged("timeout"), judged("survived"), judged("not reached", room="data")]
    said = report([*found, judged("survived", "c(a < b)")], "f" * 40, "f" * 40, listed)
    page = section(said)
    assert "| heads | 4 | 2 | 1 | 1 | 66.7% |" in page
    assert "| data | 1 | 0 | 1 | 0 | 0.0% |" in page
    assert "| all | 5 | 2 | 2 | 1 | 50.0% |" in page
    assert "| a.py:3 | comparison | `a < b -> a <= b` | 2 tests pass |" in page
    assert argued(found[0], [{"file": "a.py", "text": "a < b", "why": "any of them"}]) == "any of them"
    assert not argued(found[0], [{**listed[0], "text": "a < b", "change": "a < b -> a >= b"}])
    assert "| a.py:3 | comparison | `a < b -> a <= b` | no test reaches it |" in page
