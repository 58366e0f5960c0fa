"""The run directory is the contract; this package is the only one that knows its files."""

from tracer.files.disk import BrokenSnapshot
from tracer.store.about import About
from tracer.store.copies import is_address
from tracer.store.effects_file import EffectsWriter
from tracer.store.layout import (
    FORMAT,
    NewerFormat,
    NotARun,
    NothingRecorded,
    RunInUse,
    is_trained_by,
    newest,
)
from tracer.store.places import PLACES, ROOT, ROOTS, broken_runs, list_runs, open_run, resolve
from tracer.store.run import Run
from tracer.store.trace import Variable, nearest_row
from tracer.store.writer import RunWriter, unused

__all__ = [
    "FORMAT", "ROOT", "ROOTS", "About", "BrokenSnapshot", "EffectsWriter", "NewerFormat", "NotARun",
    "NothingRecorded", "PLACES", "Run", "RunInUse", "RunWriter", "Variable", "broken_runs", "is_address",
    "is_trained_by", "list_runs", "nearest_row", "newest", "open_run", "resolve", "unused",
]  # fmt: skip
