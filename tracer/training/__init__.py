"""Training: the loop, what it records, and how it ends."""
