"""A static site of runs: an index of cards, and of each run a page with its film, heads, health and proof."""

from tracer.site.publish import publish

__all__ = ["publish"]
