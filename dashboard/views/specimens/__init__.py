"""Specimens: what others published, trained here."""
