"""One file a page: load, choose, draw, in that order."""
