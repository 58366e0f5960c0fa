"""Models of Hugging Face: opened, wrapped, read, written, bridged."""
