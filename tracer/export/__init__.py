"""Our models as those of other libraries: the same logits."""
