"""What every question about a run has in common, drawn the same on every page."""
