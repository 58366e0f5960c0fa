"""`module:name`: what is found, how it is called, and what is refused."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tracer.named_code import all_same, name_of, named


def test_a_name_and_its_object_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_here.py").write_text("class A:\n    @staticmethod\n    def f(): return 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = named("named_here:A.f", "measures")
    assert found() == 3
    assert name_of(found) == "named_here:A.f"
    assert name_of("named_here:A.f") == "named_here:A.f"


def test_an_object_is_named_after_its_class() -> None:
    assert name_of(Path("here")) == "pathlib:PosixPath"


def test_what_has_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match="has no name by which it could be asked for again"):
        name_of(partial(print))


def test_a_program_names_its_own_functions_as_others_would(tmp_path: Path) -> None:
    path = tmp_path / "own_script.py"
    path.write_text(
        "from tracer.named_code import name_of, named\n"
        "def f(): pass\n"
        "assert named(name_of(f), 'scalars') is f is named('__main__:f', 'scalars')\n"
        "print(name_of(f))\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, str(path)], cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "own_script:f\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [("here", "write module:name"), (":f", "write module:name"), ("nowhere_at_all:f", "cannot be imported from"),
     ("math:nothing", "math has no nothing"), ("math:pi.nothing", "math has no pi.nothing")],
)  # fmt: skip
def test_what_is_not_there_is_refused_by_the_word_of_the_option(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^scalars='{text}': .*{why}"):
        named(text, "scalars")


def test_the_same_code_is_asked_for_again() -> None:
    all_same("r", {"measures": (["a:f"], ["a:f"])})
    all_same("r", {"measures": (["a:f"], ["a:f", "b:g"])}, more=True)
    with pytest.raises(ValueError, match=r"r was trained with measures=a:f, not with nothing.*again, --measures a:f$"):
        all_same("r", {"measures": (["a:f"], [])})
    with pytest.raises(ValueError, match=r"with measures=nothing, not with b:g\..*leave --measures out$"):
        all_same("r", {"measures": ([], ["b:g"])})
    with pytest.raises(ValueError, match=r"with scalars=b:g, not.*; with corpus=c:h, not.*--scalars b:g --corpus c:h$"):
        all_same("r", {"measures": ([], []), "scalars": (["b:g"], []), "corpus": (["c:h"], [])})
