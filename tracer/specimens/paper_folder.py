"""A paper's folder: `paper.py`, which makes `paper = tracer.Paper(...)`, and `page.md`, its words (else its docstring).

Those of ours lie in `papers/`, beside the package or in it; anybody's is named by its path. Code runs because a person
names the folder: that of a run directory never does.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from dataclasses import dataclass
from hashlib import sha256
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import tracer
from tracer.config.field_docs import fields_in_help
from tracer.specimens.paper import Paper
from tracer.store.places import is_path

PAGE, CODE_FILE = "page.md", "paper.py"
EXAMPLE = "docs/own.md, A paper of one's own"
_LOADED: dict[str, Path] = {}
"""Packages that were made here, by name: the folder that each is of."""


@fields_in_help
@dataclass(frozen=True)
class PaperFolder:
    """A paper that was read from its folder."""

    name: str
    """Runs are called after it."""
    directory: Path
    """Absolute."""
    paper: Paper
    """What its `paper.py` makes."""
    page: str
    """Words, as Markdown."""
    digest: str
    """Of its Python, so that figures can be told from those of other tolerances."""

    @property
    def words(self) -> str:
        """The page below a heading: its own, or the title."""
        return self.page if self.page.startswith("# ") else f"# {self.paper.title}\n\n{self.page}"

    def check_page(self, file: Path) -> None:
        """May a page with verdicts go there? ValueError where it would take the place of anything but an older one."""
        if not file.resolve().parent.is_dir() or file.is_dir():
            raise ValueError(f"--page {file}: name a file in a directory that is there")
        begins = file.read_text(encoding="utf-8", errors="replace") if file.exists() else self.words
        if file.resolve() == self.directory / PAGE or begins.partition("\n")[0] != self.words.partition("\n")[0]:
            raise ValueError(f"--page {file}: that file is no page with verdicts, and is not overwritten")


def shipped() -> dict[str, Path]:
    """The folders of the papers that come with manyeyes, by name."""
    package = Path(tracer.__file__).parent
    places = (package / "papers", package.parent / "papers")  # of an installed package; of the repository
    found = (one for place in places if place.is_dir() for one in sorted(place.iterdir()))
    return {one.name: one for one in found if (one / CODE_FILE).is_file()}


def is_paper(name: str) -> bool:
    """Is it the name of a paper of ours, or a path?"""
    return is_path(name) or name in shipped()


def load(name: str) -> PaperFolder:
    """The paper of this name or path. ValueError, in words, for a folder that is none; its Python runs."""
    directory = Path(name) if is_path(name) else shipped().get(name)
    if directory is None:
        raise ValueError(f"there is no paper {name!r}; there are: {', '.join(shipped())}, or a folder, as ./{name}")
    directory = directory.resolve()
    if not directory.is_dir():
        raise ValueError(f"{name} is no folder: a paper is a folder with a {CODE_FILE} ({EXAMPLE})")
    if (directory / "run.json").exists():
        raise ValueError(f"{name} is a run, and code is never taken from a run directory: name the paper's own folder")
    if not (directory / CODE_FILE).is_file():
        raise ValueError(f"{name} has no {CODE_FILE}, in which a paper's runs and claims stand ({EXAMPLE})")
    try:
        module = _imported(directory)
    except Exception as error:  # somebody's code, which raises whatever it runs into
        if isinstance(error, _CannotName):
            raise ValueError(str(error)) from error
        raise ValueError(f"{name}/{CODE_FILE} cannot be loaded: {type(error).__name__}: {error}") from error
    paper = getattr(module, "paper", None)
    if not isinstance(paper, Paper):
        raise ValueError(f"{name}/{CODE_FILE} makes no paper: it needs paper = tracer.Paper(...) ({EXAMPLE})")
    page = directory / PAGE
    words = page.read_text(encoding="utf-8") if page.is_file() else inspect.cleandoc(module.__doc__ or "")
    if not words.strip():
        raise ValueError(f"{name} has no words: write {PAGE}, or begin {CODE_FILE} with a docstring")
    code = sha256(b"".join(one.read_bytes() for one in sorted(directory.glob("*.py")))).hexdigest()
    return PaperFolder(directory.name, directory, paper, words, code)


class _CannotName(ValueError):
    """The folder's name cannot be that of a package."""


def _imported(directory: Path) -> ModuleType:
    """`paper.py` as the module `<folder>.paper`, whose neighbours it may import (`from .chains import ...`).

    So run.json names its code as somebody would who stands beside the folder: `<folder>.chains:Chains`.
    """
    name = re.sub(r"\W", "_", directory.name)
    if name not in _LOADED and (name in sys.modules or _is_elsewhere(name, directory)):
        raise _CannotName(f"{directory.name} is also the name of an installed package: rename the paper's folder")
    for module in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
        del sys.modules[module]  # of another folder of this name, or of this one before it was changed
    package = importlib.util.module_from_spec(ModuleSpec(name, None, is_package=True))
    package.__path__ = [str(directory)]
    sys.modules[name], _LOADED[name] = package, directory
    importlib.invalidate_caches()
    return importlib.import_module(f"{name}.{Path(CODE_FILE).stem}")


def _is_elsewhere(name: str, directory: Path) -> bool:
    """Is there a package or module of this name that is not the folder itself?"""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    places = [] if spec is None else [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return any(Path(place or "").resolve() != directory for place in places)
