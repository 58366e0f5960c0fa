"""A changed module in place of the file's, in this process and in those that it starts."""

from __future__ import annotations

import importlib.util
import marshal
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

VARIABLE = "MANYEYES_MUTANT"
"""The file that `keep` wrote, for processes that are started."""


def keep(file: Path, module: str, path: str, code: CodeType) -> None:
    file.write_bytes(marshal.dumps((module, path, code)))


def install(file: str) -> None:
    """From here on, an import of the module runs the code that was kept."""
    sys.meta_path.insert(0, _Finder(*marshal.loads(Path(file).read_bytes())))


class _Loader(SourceFileLoader):
    def __init__(self, module: str, path: str, code: CodeType) -> None:
        super().__init__(module, path)
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class _Finder:
    def __init__(self, module: str, path: str, code: CodeType) -> None:
        self.module, self.path, self.code = module, path, code

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.module:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=_Loader(name, self.path, self.code))
