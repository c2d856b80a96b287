"""Settings of the sweeps and of other periodic work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """How often what is looked at, in milliseconds, and how many rows a transaction may touch."""

    sweep_interval_ms: int = 1_000
    """How often claims past their deadline are brought back."""
    expiry_interval_ms: int = 1_000
    """How often waiting jobs past their expiry are failed."""
    due_interval_ms: int = 1_000
    """How often the split of pending jobs into due and future is brought up to date."""
    garbage_interval_ms: int = 5_000
    """How often finished jobs past their time to live are thrown away."""
    sample_interval_ms: int = 5_000
    """How often rates and time series take a sample."""
    others_interval_ms: int = 900
    """what other servers of the same shards made ready, for dequeues that wait here"""
    refresh_interval_ms: int = 5_000
    """How often queue settings are read while not all other servers say what they change."""
    file_interval_ms: int = 10_000
    """How often the files of rate limits, servers and shards are looked at."""
    sweep_batch: int = 100
    """Most jobs that one sweep's transaction brings back."""
    batch_max: int = 1_000
    """Most rows that any other sweep's transaction touches."""
