"""Causal language models that others wrote: opened, and wrapped as models whose heads can be seen."""
