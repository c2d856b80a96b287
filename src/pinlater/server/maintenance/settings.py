"""Settings of the sweeps and of other periodic work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """How often what is looked at, in milliseconds, and how many rows a transaction may touch."""

    sweep_interval_ms: int = 1_000  # claim timeouts
    expiry_interval_ms: int = 1_000
    due_interval_ms: int = 1_000  # the split of pending jobs into due and future
    garbage_interval_ms: int = 5_000
    sample_interval_ms: int = 5_000  # rates, time series
    others_interval_ms: int = 900  # what other servers of the same shards made ready, for dequeues that wait here
    refresh_interval_ms: int = 5_000  # queue settings that other servers may have changed
    file_interval_ms: int = 10_000  # limit and server-set files
    sweep_batch: int = 100  # jobs a dead worker's sweep brings back at a time
    batch_max: int = 1_000
