"""The worker's own process: event loops, health, metrics, recycling, and the channel to its supervisor."""
