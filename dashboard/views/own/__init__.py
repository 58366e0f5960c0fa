"""Pages of a person's own."""
