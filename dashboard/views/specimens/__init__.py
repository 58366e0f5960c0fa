"""Papers, at /specimens: what others published, trained here."""
