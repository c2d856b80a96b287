"""Runs several worker processes and restarts them: `pinlater worker --processes` and `--reload`."""
