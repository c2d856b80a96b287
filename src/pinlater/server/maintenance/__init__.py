"""Periodic work: one runner, and the tasks that it runs."""
