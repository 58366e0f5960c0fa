"""Imported first by each Python that a test starts: the mutant's module there too, or coverage of its lines."""

import os

if mutant := os.environ.get("MANYEYES_MUTANT"):
    from benchmarks.mutants.mutated import install

    install(mutant)
elif os.environ.get("COVERAGE_PROCESS_START"):
    import coverage

    coverage.process_startup()
