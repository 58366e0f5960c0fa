"""Seeing and editing every attention of a PyTorch model that nobody prepared."""
