"""Attacks on what the screens claim, each with its figure: `python -m benchmarks.truth` writes docs/truth.md.

A module here is an area: its `attacks()` yields an `Attack` for each claim, computed from first principles.
"""
