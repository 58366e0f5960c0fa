"""What `benchmarks.dashboard` needs: a measured browser, the peers as they ship, and a page of ours to measure."""
