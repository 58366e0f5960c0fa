"""One folder a page: `page` loads, chooses and draws; `data` holds its cached questions to tracer."""
