"""The worker's own process: event loops, health, metrics, and the channel to its supervisor."""
