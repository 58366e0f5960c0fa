"""Names that a library does not promise: one file each for torch and Streamlit, and a contract of each name."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from packaging.version import Version
from streamlit.testing.v1 import AppTest
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.overrides import TorchFunctionMode

from tracer import torch_internals as internals

ROOT = Path(__file__).resolve().parent.parent
HOMES = {"tracer/torch_internals.py", "dashboard/streamlit_internals.py"}
PROMISED = {"_fields", "_replace", "_asdict", "_make", "_getframe", "_exit"}
"""Of named tuples, sys and os: documented, whatever they are called."""
PRIVATE = re.compile(r"_[a-zA-Z]\w*")
BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}
TORCH = {name for name in {*dir(torch.Tensor), *vars(nn.Module()), *dir(nn.Module)} if PRIVATE.fullmatch(name)}
"""Torch's, though one of ours may be called so; of `self` they are ours."""
ELSEWHERE = {
    "_attn_implementation": "transformers: which kernel a configuration asks for; without it none is known",
    "_supports_sdpa": "transformers: whether a class of models has such a kernel",
    "_register_atexit": "Python: before its pools of threads end; without it plain atexit",
    "_check_writable": "zarr: what a store of one's own asks before it writes",
}
"""Of other libraries, each in a place that does without."""


def ours(tree: ast.AST) -> set[str]:
    """Private names that a source makes: functions, classes, attributes, variables, fields."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                found.add(node.attr)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
    return {name for name in found if PRIVATE.fullmatch(name)}


def theirs(tree: ast.AST, own: set[str]) -> list[str]:
    """Private names of others that a source uses, as it writes them."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=of, attr=name) if PRIVATE.fullmatch(name):
                if name not in own | PROMISED or name in TORCH and ast.unparse(of) not in ("self", "cls"):
                    found.append(ast.unparse(node))
            case ast.ImportFrom(module=module, names=names, level=0) if not (module or "").startswith(
                ("tracer", "dashboard", "__")
            ):
                parts = [*(module or "").split("."), *(one.name for one in names)]
                found += [f"{module}: {part}" for part in parts if PRIVATE.fullmatch(part)]
            case ast.Import(names=names):
                found += [one.name for one in names if any(map(PRIVATE.fullmatch, one.name.split(".")))]
            case ast.Call(func=ast.Name(id=called), args=[_, ast.Constant(value=str(name)), *_]):
                if called in BY_NAME and PRIVATE.fullmatch(name) and (name not in own or name in TORCH):
                    found.append(f"{called} {name}")
    return found


def test_private_names_are_read() -> None:
    lines = "from torch._ops import A", "import a._b", "x._y.z", "self._own = 1", "q._own", "getattr(m, '_of')"
    tree = ast.parse("\n".join([*lines, "T._fields", "self._version = y._version"]))
    assert ours(tree) == {"_own", "_version"}
    assert sorted(theirs(tree, ours(tree))) == ["a._b", "getattr _of", "torch._ops: _ops", "x._y", "y._version"]


def test_private_names_of_others_have_one_home() -> None:
    sources = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text())
        for top in ("tracer", "dashboard") for path in sorted((ROOT / top).rglob("*.py"))
    }  # fmt: skip
    own = set().union(*map(ours, sources.values()))
    used = {path: theirs(tree, own) for path, tree in sources.items() if path not in HOMES}
    known = tuple(ELSEWHERE)
    assert {path: left for path, names in used.items() if (left := [x for x in names if not x.endswith(known)])} == {}
    assert {name for names in used.values() for x in names for name in known if x.endswith(name)} == set(known)


@pytest.mark.parametrize("package", ["torch", "streamlit"])
def test_ranges_end_below_the_next_minor_version(package: str) -> None:
    """Nobody has looked at its internals yet; and what is locked is in the range."""
    wanted = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    (range_,) = [one.specifier for one in wanted if one.name == package]
    here = Version(importlib.import_module(package).__version__)
    assert here.public in range_ and f"{here.major}.{here.minor + 1}.0" not in range_


def test_a_version_counts_writes_in_place() -> None:
    x = torch.zeros(3)
    before = internals.version(x)
    x.add_(1)
    assert internals.version(x) == before + 1
    x.data.add_(1)
    assert internals.version(x) == before + 1


def test_memory_is_that_of_every_view() -> None:
    x = torch.zeros(4)
    assert internals.memory(x[1:]) == internals.memory(x) != internals.memory(x.clone())
    with pytest.raises(RuntimeError):
        internals.memory(torch.zeros(2, 2).to_sparse())


def test_values_of_a_sparse_tensor_before_they_are_gathered() -> None:
    x = torch.sparse_coo_tensor(torch.tensor([[0, 0, 2]]), torch.tensor([1.0, 2.0, 4.0]), (3,), check_invariants=True)
    assert internals.stored(x).tolist() == [1, 2, 4]


def test_norms_and_differences() -> None:
    x, y = [torch.tensor([3.0, 4.0]), torch.tensor([[2.0]])], [torch.tensor([1.0, 1.0]), torch.tensor([[5.0]])]
    assert [float(one) for one in internals.norms(x)] == [5, 2] and list(internals.norms([])) == []
    assert [one.tolist() for one in internals.differences(x, y)] == [[2, 3], [[-3]]]


def test_the_end_of_a_backward_pass_comes_after_all_gradients() -> None:
    x, y, seen = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True), []
    handle = x.register_post_accumulate_grad_hook(
        lambda _: internals.when_backward_ends(lambda: seen.append((x.grad is not None, y.grad is not None)))
    )
    (x * 2 + y.exp()).sum().backward()
    handle.remove()
    assert seen == [(True, True)]


def test_hooks_and_parts_of_a_module() -> None:
    module = nn.Sequential(nn.Linear(1, 1), nn.Identity())
    assert list(getattr(module, internals.PARTS)) == ["0", "1"]
    after, before = module.register_forward_hook(print), module.register_forward_pre_hook(print)
    assert [list(getattr(module, name)) for name in internals.HOOKS] == [[after.id], [before.id]]


def test_a_mode_can_be_left_for_a_while() -> None:
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **kwargs or {})

    seen: list[str] = []
    with Mode() as mode:
        assert internals.current_mode() is mode
        with internals.without_current_mode():
            torch.zeros(1).exp()
        torch.zeros(1).sin()
    assert internals.current_mode() is None and [name for name in seen if name in ("exp", "sin")] == ["sin"]


def test_a_compiled_model_says_that_it_is() -> None:
    model = nn.Linear(2, 2)
    compiled = torch.compile(model, backend="eager")
    assert internals.uncompiled(compiled) is model and internals.uncompiled(model) is model
    assert isinstance(compiled, internals.compiled_type()) and internals.compiled_call(model) is None
    before, calls = internals.compiled_type().__call__, []
    internals.compiled_type().__call__ = lambda self, *args: calls.append(args) or before(self, *args)
    try:
        compiled(torch.zeros(1, 2))
    finally:
        internals.compiled_type().__call__ = before
    assert len(calls) == 1 and any(backend is not None for backend in internals.compiles().values())
    model.compile(backend="eager")
    assert internals.compiled_call(model) is not None
    setattr(model, internals.COMPILED_CALL, lambda x: x + 7)
    assert model(torch.zeros(1)).tolist() == [7]
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_ends_in_one_operator() -> None:
    """(query, key, value, ...) -> (output, ln sum exp in base 2, the largest score in base 2)."""

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if isinstance(func, internals.HigherOrderOperator):
                seen.append((func.__name__, [x.shape for x in args[:3]], len(args)))
            return func(*args, **kwargs or {})

    seen: list[tuple[str, list[torch.Size], int]] = []
    q, k, v = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 3, 5)
    with Mode(), torch.compiler.set_stance("force_eager"):
        assert flex_attention(q, k, v).shape == (1, 1, 2, 5)
    assert seen == [("flex_attention", [q.shape, k.shape, v.shape], 9)]


def test_trees_and_dry_runs() -> None:
    tree = {"a": [1, (2, 3)], "b": None}
    leaves, spec = internals.tree_flatten(tree)
    assert internals.tree_leaves(tree) == leaves and internals.tree_unflatten(leaves, spec) == tree
    assert internals.tree_map(lambda x: x, tree) == tree and leaves[:3] == [1, 2, 3]
    with torch._subclasses.FakeTensorMode():
        assert isinstance(torch.zeros(2), internals.FakeTensor)


def test_a_pipelines_stage_rehearses_by_these_names() -> None:
    from torch.distributed.pipelining import stage

    source = ast.parse(Path(stage.__file__).read_text())
    assert {one.name for one in ast.walk(source) if isinstance(one, ast.FunctionDef)} & set(internals.REHEARSALS)


MOVED = """
import torch
del torch.overrides._pop_mode_temporarily  # as in a version that moved it
import tracer
model = torch.nn.Linear(2, 1)
recorder = tracer.watch(model, run="never", every=1)
for _ in range(3):
    loss = model(torch.ones(4, 2)).mean()
    loss.backward()
    recorder.step(loss)
recorder.evaluated(0.5)
recorder.close()
print(recorder.should_stop, recorder.last, recorder.max_logits, float(loss.detach()) == float(loss.detach()))
"""


def test_where_torch_moved_something_the_training_goes_on(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MOVED], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "{}", "None", "True"]
    assert "manyeyes records nothing" in done.stderr and "_pop_mode_temporarily" in done.stderr
    assert list(tmp_path.iterdir()) == []


def page() -> None:
    import streamlit as st

    from dashboard.streamlit_internals import drawn, text_in, went_back

    with drawn() as messages:
        st.text_area("Prompt", "a b", key="prompt")
        st.segmented_control("Mode", ["zero", "mean"], default="mean", selection_mode="multi")
    area, choice = [message.delta.new_element for message in messages]
    st.session_state["found"] = [text_in(area.text_area.id), text_in(choice.button_group.id), went_back()]


def test_what_streamlit_draws_and_what_stands_in_its_widgets() -> None:
    app = AppTest.from_function(page).run()
    assert not app.exception and app.session_state["found"] == ["a b", "mean", False]
    app.text_area("prompt").set_value("c").run()
    assert app.session_state["found"] == ["c", "mean", False]


def app_with_a_page() -> None:
    import streamlit as st

    from dashboard.streamlit_internals import drawn, lasting

    def view() -> None:
        with drawn() as messages:
            st.text("goes with its page")
            with lasting():
                st.text("stays")
            st.text("goes, too")
        st.session_state["hashes"] = [message.metadata.active_script_hash for message in messages]

    with drawn() as around:
        st.text("stays")
    page = st.navigation([st.Page(view, title="view", default=True)])
    page.run()
    st.session_state["around"] = around[0].metadata.active_script_hash


def test_what_outlives_a_page_is_of_the_script_around_it() -> None:
    app = AppTest.from_function(app_with_a_page).run()
    around, (first, lasts, last) = app.session_state["around"], app.session_state["hashes"]
    assert not app.exception and lasts == around and first == last != around
