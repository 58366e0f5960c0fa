"""Seeing the attention of any PyTorch model, once or all through a training loop."""
