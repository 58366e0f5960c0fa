"""Systems that others published, trained here, and what was claimed of them."""
