"""The tour: five steps from a run to a proof."""
