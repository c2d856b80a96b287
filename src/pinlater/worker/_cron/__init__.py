"""Finds the times at which cron entries fire, and enqueues their jobs."""
