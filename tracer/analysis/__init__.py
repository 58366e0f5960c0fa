"""Questions to a model or a run; each answers in labelled arrays."""
