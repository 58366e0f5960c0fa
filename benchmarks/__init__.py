"""Every claim about speed or memory, as a ratio of two things measured in turn in one process: `make bench`."""
