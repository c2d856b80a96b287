"""The fault harness: real servers and workers, killed, stopped, cut off, starved of disk, beside clients that keep records."""
