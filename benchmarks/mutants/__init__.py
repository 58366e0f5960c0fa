"""Small wrong changes to the code, and whether a test notices: `python -m benchmarks.mutants`, `make mutants`.

Ours, since mutmut copies the sources, changes functions only and draws no sample, and cosmic-ray writes into the
working tree and imports torch anew for each mutant; here each mutant is a fork of a process that has imported it.

1. `places` lists all that can be changed, by `operators`; 40 of each room are drawn by the commit's hash.
2. `reach` knows which lines each test runs: each test file has run once under coverage, in a fork of its own.
3. `run` gives each mutant the tests that reach its line, the quickest and nearest first, in a fork (`forks`) that
   imports the changed module in place of the file's (`mutated`); the working tree is never written to.
4. `report` writes docs/mutants.json, of which benchmarks.truth makes a section of docs/truth.md.

Processes that a test starts import the changed module too (`site`), unless the test gives them a PYTHONPATH.
"""
