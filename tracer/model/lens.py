"""What this model takes of transformer-lens, imported without the libraries that only its loaders of data need.

`import transformer_lens` imports `datasets`, `pandas` and `transformers` for the sake of six names, which is four
fifths of what `tracer.model` cost beyond torch. Here those names stand for themselves until they are used, in a process
that has no other thread yet: `tests/model/test_deferring.py` says what then comes.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LATER = ("datasets", "pandas", "transformers")


class Deferred(type):
    """A name of a module that was not imported: called, asked for an attribute or for its instances, it is itself."""

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> Deferred:
        if bases:
            raise TypeError(f"{name} cannot be made of {bases[0].__name__}: import {bases[0].__module__} first")
        return super().__new__(cls, name, bases, names)

    def real(cls) -> Any:
        return getattr(importlib.import_module(cls.__module__), cls.__name__)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.real()(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(cls.real(), name)

    def __instancecheck__(cls, instance: object) -> bool:
        return cls.__module__ in sys.modules and isinstance(instance, cls.real())

    def __subclasscheck__(cls, subclass: type) -> bool:
        return cls.__module__ in sys.modules and issubclass(subclass, cls.real())


class Absent(ModuleType):
    """Stands for a module while another is imported; whatever is asked of it is `Deferred`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Deferred(name, (), {"__module__": self.__name__})


class _Finder(MetaPathFinder, Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        here = package in self.names and isinstance(sys.modules.get(package, self), (Absent, _Finder))
        return ModuleSpec(fullname, self, is_package=True) if here else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


@contextmanager
def deferring(*names: str) -> Iterator[None]:
    """Within it, packages that are not imported yet are `Absent`, and afterwards as if nobody had asked for them.

    Beside other threads, which would get them too, nothing is put off.
    """
    if threading.active_count() > 1:
        yield
        return
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in list(sys.modules.items()) if isinstance(module, Absent)]:
            del sys.modules[name]


with deferring(*LATER):
    from transformer_lens import ActivationCache, FactoredMatrix, HookedRootModule
    from transformer_lens.hook_points import HookPoint

__all__ = ["ActivationCache", "FactoredMatrix", "HookPoint", "HookedRootModule"]
