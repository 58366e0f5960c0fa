"""The run directory is the contract; this package is the only one that knows its files."""

from tracer.store.layout import FORMAT, BrokenSnapshot, NewerFormat, NotARun, RunInUse
from tracer.store.run import ROOT, Run, list_runs, open_run, resolve
from tracer.store.trace import Variable
from tracer.store.writer import RunWriter

__all__ = [
    "FORMAT", "ROOT", "BrokenSnapshot", "NewerFormat", "NotARun", "Run", "RunInUse", "RunWriter", "Variable",
    "list_runs", "open_run", "resolve",
]  # fmt: skip
