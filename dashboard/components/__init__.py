"""Canvas parts of the dashboard: a folder each: typed wrapper, script, style. payload packs arrays for all."""
