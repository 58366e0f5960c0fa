"""The arrows of the house: who may import whom, read from the source, and what an import costs."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.tiers import SHAPE_CHECKED

ROOT = Path(__file__).resolve().parent.parent
DISK_LIBRARIES = {"safetensors", "zarr", "h5py", "sqlite3", "shelve"}
DISK_CALLS = {
    "open", "read_bytes", "read_text", "write_bytes", "write_text", "mkdir", "unlink", "rmtree", "touch",
    "open_zarr", "to_zarr", "load_file", "save_file", "to_netcdf",
}  # fmt: skip


def module_name(path: Path) -> str:
    """tracer/heads/__init__.py -> tracer.heads"""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str, module: str = "", is_package: bool = False) -> set[str]:
    """Every module that the source imports anywhere; `from a import b` counts as a and as a.b."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            origin = ".".join([*up, *filter(None, [node.module])])
            found |= {origin} | {f"{origin}.{alias.name}" for alias in node.names}
    return found


def calls(source: str) -> set[str]:
    """The name of everything that the source calls, as written: `open`, `path.parent.mkdir`."""
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)}


def disk_calls(source: str) -> set[str]:
    return {name for name in calls(source) - {"webbrowser.open"} if name.rpartition(".")[2] in DISK_CALLS}


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


SOURCES = {module_name(p): p for top in ("tracer", "dashboard") for p in sorted((ROOT / top).rglob("*.py"))}


@cache
def imported() -> dict[str, set[str]]:
    """Of each module what it imports; read once, by the worker that asks."""
    return {name: imports(path.read_text(), name, path.name == "__init__.py") for name, path in SOURCES.items()}


def known(*names: str) -> bool:
    """Whatever is named as ours is there: a rule about a module that has moved would hold for ever."""
    ours = [name for name in names if within(name, "tracer", "dashboard")]
    return all(any(within(module, name) for module in SOURCES) for name in ours)


def breaches(importers: tuple[str, ...], forbidden: tuple[str, ...], except_in: tuple[str, ...] = ()) -> list[str]:
    assert known(*importers, *forbidden, *except_in)
    return [
        f"{module} imports {name}"
        for module, names in imported().items()
        if within(module, *importers) and not within(module, *except_in)
        for name in sorted(names)
        if within(name, *forbidden)
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b as c", {"a.b"}),
        ("from a import b, c", {"a", "a.b", "a.c"}),
        ("from . import b", {"p.q", "p.q.b"}),
        ("from ..r import b", {"p.r", "p.r.b"}),
        ("def f():\n    import torch", {"torch"}),
        ("if TYPE_CHECKING:\n    from torch import Tensor", {"torch", "torch.Tensor"}),
        ("x = 'import torch'", set()),
    ],
)
def test_imports_are_read(source: str, expected: set[str]) -> None:
    assert imports(source, "p.q.m") == expected


def test_a_package_is_its_own_origin() -> None:
    assert imports("from .b import c", "p.q", is_package=True) == {"p.q.b", "p.q.b.c"}


def test_disk_calls_are_read() -> None:
    source = "open(x); a.b.mkdir(); webbrowser.open(url); f = p.read_text; tracer.open_run(d)"
    assert disk_calls(source) == {"open", "a.b.mkdir"}


def test_every_part_is_looked_at() -> None:
    parts = {
        "tracer.config",
        "tracer.heads",
        "tracer.measures.gradients",
        "tracer.measures.change_points",
        "tracer.store",
        "tracer.data",
    }
    parts |= {"dashboard.app", "dashboard.loading", "dashboard.shared", "dashboard.views"}
    assert parts <= set(SOURCES)


FORMATS = (
    "tracer.store.layout",
    "tracer.store.trace",
    "tracer.store.writer",
    "tracer.training.loop",
    "tracer.training.probe_recorder",
)
ANALYSIS = ("tracer.heads", "tracer.measures.gradients", "tracer.measures.composition", "tracer.measures.change_points")


@pytest.mark.parametrize(
    ("importers", "forbidden", "except_in"),
    [
        pytest.param(("tracer",), ("dashboard", "streamlit", "plotly"), (), id="tracer knows no dashboard"),
        pytest.param(ANALYSIS, ("tracer.model", "tracer.store"), (), id="analysis takes tensors"),
        pytest.param(("tracer.measures.change_points",), ("torch",), (), id="phases are numpy"),
        pytest.param(("tracer.pictures",), ("torch", "xarray"), ("tracer.analysis.notebook",), id="pictures are numpy"),
        pytest.param(
            ("tracer", "dashboard"),
            tuple(DISK_LIBRARIES),
            ("tracer.store", "tracer.files", "tracer.data", "tracer.export.bridge", "tracer.specimens.toys"),
            id="only store knows files",
        ),
        pytest.param(
            ("tracer", "dashboard"), ("pickle", "cloudpickle", "dill", "joblib"), (), id="nothing is unpickled"
        ),
        pytest.param(("dashboard",), FORMATS, (), id="dashboard knows no format"),
        pytest.param(
            ("tracer", "dashboard"),
            ("wandb", "mlflow", "trackio"),
            ("tracer.tracking",),
            id="only tracking tells trackers",
        ),
    ],
)
def test_arrows(importers: tuple[str, ...], forbidden: tuple[str, ...], except_in: tuple[str, ...]) -> None:
    assert breaches(importers, forbidden, except_in) == []


def test_config_stands_alone() -> None:
    needed = set[str]().union(*(imported()[name] for name in SOURCES if within(name, "tracer.config")))
    assert [x for x in needed if within(x, "tracer", "torch") and not within(x, "tracer.config")] == []


PAGES = sorted({".".join(name.split(".")[:3]) for name in SOURCES if name.startswith("dashboard.views.")})


def test_there_are_nine_pages_and_the_one_of_others() -> None:
    assert len(PAGES) == 10


@pytest.mark.parametrize("page", PAGES)
def test_a_page_knows_no_other_page(page: str) -> None:
    assert breaches((page,), tuple(other for other in PAGES if other != page)) == []


def test_what_pages_share_knows_no_page() -> None:
    assert breaches(("dashboard.shared", "dashboard.loading"), ("dashboard.views",)) == []


def test_pages_paint_without_torch() -> None:
    assert [said for said in breaches(("dashboard",), ("torch",)) if not asks(said.split()[0])] == []


def asks(module: str) -> bool:
    """Is this a module of cached questions to tracer?"""
    return within(module, "dashboard.loading") or module.endswith("data")


def test_only_questions_to_tracer_are_cached() -> None:
    caching = [name for name, path in SOURCES.items() if "st.cache_" in path.read_text()]
    assert caching and [name for name in caching if not asks(name)] == []


def test_no_circle() -> None:
    """Nor one that a lazy import or an annotation hides."""
    arrows = {
        name: {other for other in imported()[name] if other in SOURCES and other != name} - parents(name)
        for name in SOURCES
    }  # fmt: skip
    assert circle(arrows) == []


def test_rooms_stand_one_above_the_other() -> None:
    """Not modules alone: who reads a room needs none that is above it."""
    arrows: dict[str, set[str]] = {}
    for name in SOURCES:
        below = {room(other) for other in imported()[name] if other in SOURCES} - {room(name), "tracer", "dashboard"}
        arrows.setdefault(room(name), set()).update(below)
    assert circle(arrows) == []
    assert len([one for one in arrows if within(one, "tracer") and SOURCES[one].name == "__init__.py"]) <= 25


def room(name: str) -> str:
    """tracer.hooks.flex -> tracer.hooks; a page of the dashboard is one."""
    return ".".join(name.split(".")[: 3 if within(name, "dashboard.views") else 2])


def parents(name: str) -> set[str]:
    """A module's packages: naming them says where a name lies, not what is needed."""
    return {name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1)}


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """One circle, as the names along it; empty when there is none."""
    try:
        list(TopologicalSorter(arrows).static_order())
    except CycleError as error:
        return error.args[1]
    return []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
    assert circle({"a": {"b"}, "b": set()}) == []


def test_nothing_is_loose_at_the_root() -> None:
    loose = {path.stem for path in (ROOT / "tracer").glob("*.py")}
    assert loose == {"__init__", "__main__", "asked_line", "named_code", "presets", "torch_internals"}


def test_only_store_touches_the_files_of_a_run() -> None:
    # data/ may cache a corpus; pictures read their own .js and .css; showing writes the file that is asked for; jobs
    # and work_queue keep what the trainings that were started have printed; first_response reads Streamlit's own page
    # and our styles, shipped what comes with the package, cli the settings that a person wrote, hub_cache removes what
    # it downloaded, accounts reads the kernel's table of connections, export writes the folder that is asked for,
    # paper_folder and paper_results read a paper's words and code, publish and toys write what is asked for
    pictures = ("tracer.pictures.assets", "tracer.analysis.notebook")
    exempt = (
        "tracer.store", "tracer.files", "tracer.data", "tracer.cli", *pictures, "dashboard.accounts",
        "dashboard.first_response", "dashboard.jobs", "dashboard.work_queue", "dashboard.shipped",
        "tracer.watching.hub_cache", "tracer.export.bridge", "tracer.specimens.paper_folder",
        "tracer.specimens.paper_results", "tracer.specimens.toys", "tracer.site.publish",
    )  # fmt: skip
    assert known(*exempt)
    touching = {name: disk_calls(path.read_text()) for name, path in SOURCES.items() if not within(name, *exempt)}
    assert {name: found for name, found in touching.items() if found} == {}


def test_every_named_shape_is_checked() -> None:
    naming = {name for name, names in imported().items() if within(name, "tracer") and "jaxtyping" in names}
    assert {name for name in naming if not within(name, *SHAPE_CHECKED)} == set()


@pytest.mark.parametrize(
    "module",
    [
        "tracer",
        "tracer.cli.commands",
        "tracer.measures",
        "dashboard.theme",
        "dashboard.state",
        "dashboard.loading",
        "dashboard.views.runs.page",
    ],
)
def test_cheap_to_import(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{'torch', 'transformer_lens'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_who_watches_a_model_loads_no_library_of_models() -> None:
    """They cost each process of a training two seconds and 120 MB."""
    code = (
        "import sys, torch, tracer; tracer.watch(torch.nn.MultiheadAttention(4, 2));"
        "print(*sorted({'transformer_lens', 'transformers', 'datasets', 'pandas', 'accelerate'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_the_dashboard_holds_no_statistics() -> None:
    """What a page says is computed by tracer, so that the lines beside it compute it again."""
    mathematics = {"erfc", "erf", "svd", "eig", "norm", "percentile", "quantile", "cumsum", "einsum", "softmax"}
    drawing = ("figures", "gradients.norms")  # where colours end, where a bar begins
    found = {name: {c.rpartition(".")[2] for c in calls(path.read_text())} & mathematics
             for name, path in SOURCES.items() if within(name, "dashboard") and not name.endswith(drawing)}  # fmt: skip
    assert {name: names for name, names in found.items() if names} == {}
    assert breaches(("dashboard",), ("scipy", "statistics", "numpy.linalg", "torch.nn", "einops")) == []
