"""What only a machine with a GPU can show, as one table: `make gpu`, or `python -m benchmarks.gpu --only heads memory`.

A check is a function of a `Place` that yields lines (`table.Line`); CHECKS holds them by name, the most telling first.
Every number of the GPU stands beside the CPU's of the same machine, with the tolerance that decides; speeds are ratios
of things that ran in turn, and decide nothing. With `--device cpu` the CPU is the second device too: so the tests run.
"""
