"""Settings of a worker. Units are in the names."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How much a worker takes on, and how patient it is.

    `prefetch_max` bounds the jobs claimed ahead of free handlers; how many are is chosen by how short the jobs are, so that long
    jobs are never claimed ahead. `grace_ms` is how long running jobs may take to finish after a stop was asked for.
    """

    concurrency: int = 16
    prefetch_max: int = 256
    wait_ms: int = 20_000
    ack_flush_ms: int = 5
    retry_delay_ms: int = 1_000
    grace_ms: int = 30_000
    backoff_first_ms: int = 100
    backoff_max_ms: int = 5_000

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 1 if field.name in {"concurrency", "backoff_first_ms", "backoff_max_ms"} else 0
            if getattr(self, field.name) < least:
                raise ValueError(f"{field.name} must be at least {least}")
