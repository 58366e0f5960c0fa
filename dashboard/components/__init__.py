"""Pictures of tracer.pictures as parts of a page: a typed wrapper each."""
