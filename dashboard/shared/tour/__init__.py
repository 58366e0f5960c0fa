"""The tour: six steps from a run to a proof."""
