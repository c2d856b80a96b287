"""Periodic work: one runner, and what it runs."""
