"""Models that other people wrote: watch them, load them, record them; and the way out of ours."""
