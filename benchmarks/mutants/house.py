"""What is mutated: the rooms, their sources, the tests, and what can be imported once for all mutants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.tiers import SECOND

ROOT = Path(__file__).parents[2]
ROOMS = {
    **{room: (f"tracer/{room}/**/*.py",) for room in (
        "heads", "measures", "ablate", "analysis", "interventions", "training", "watching", "data", "store",
    )},
    "questions": ("dashboard/loading/*.py", "dashboard/views/*/data.py"),
}  # fmt: skip
WARM = (
    "pytest", "hypothesis", "numpy", "torch", "torch._dynamo", "einops", "jaxtyping", "beartype", "sklearn.cluster",
    "xarray", "zarr", "pydantic", "plotly.graph_objects", "streamlit", "streamlit.testing.v1", "transformers",
    "transformers.models.auto.modeling_auto", "transformer_lens", "datasets", "accelerate", "tyro", "rich", "starlette",
    "safetensors.torch", "tokenizers", "coverage", "psutil", "filelock", "aiohttp",
)  # fmt: skip
"""Nothing of ours: a changed module must be imported by the mutant itself."""


@dataclass(frozen=True)
class House:
    root: Path = ROOT
    rooms: tuple[tuple[str, tuple[str, ...]], ...] = tuple(ROOMS.items())
    sources: tuple[str, ...] = ("tracer", "dashboard")
    tests: str = "tests"
    without: tuple[str, ...] = ("tests/browser",)
    """Tests that need a browser; of the others those of the first tier are asked."""
    warm: tuple[str, ...] = WARM

    @property
    def kept(self) -> Path:
        """What a run leaves behind, to be resumed."""
        return self.root / "build" / "mutants"

    def files(self, room: str) -> list[Path]:
        return sorted(path for pattern in dict(self.rooms)[room] for path in self.root.glob(pattern))

    def source_files(self) -> list[Path]:
        return sorted(path for top in self.sources for path in (self.root / top).rglob("*.py"))

    def test_files(self) -> list[str]:
        """By their paths from the root, those of one folder together."""
        found = (path.relative_to(self.root).as_posix() for path in (self.root / self.tests).rglob("test_*.py"))
        return sorted(one for one in found if not one.startswith(self.without) and not SECOND & set(one.split("/")))

    def module(self, file: str) -> str:
        """tracer/heads/__init__.py -> tracer.heads"""
        return ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
