"""Settings of a worker. Units are in the names."""

from __future__ import annotations

from dataclasses import dataclass, fields

_AT_LEAST_ONE = frozenset(
    {
        "concurrency",
        "backoff_first_ms",
        "backoff_max_ms",
        "child_jobs_max",
        "child_memory_bytes_max",
        "recycle_jobs_max",
        "recycle_age_ms",
        "recycle_memory_bytes_max",
        "stuck_ms",
    }
)
_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How much a worker takes on, and how patient it is.

    `concurrency` bounds the jobs that run at once, of all queues together. `prefetch_max` bounds the jobs claimed ahead of free
    handlers; how many are is chosen by how short the jobs are, so that long jobs are never claimed ahead. `grace_ms` is how long
    running jobs may take to finish after a stop was asked for. Jobs of unknown tasks are given back for `unknown_task_delay_ms`.
    `child_jobs_max` and `child_memory_bytes_max` bound what one child process does before another takes its place.

    `recycle_jobs_max`, `recycle_age_ms` and `recycle_memory_bytes_max` bound what the worker's own process does: it then stops in
    order and ends with the exit code 75, so that another is started. Each is lowered by up to a tenth, by chance.
    `health_port`: where probes and Prometheus may ask (0: any free port). `stuck_ms`: for how long the event loop may be blocked,
    or functions left behind may hold a queue's slots, before the worker says that it isn't healthy.
    """

    concurrency: int = 16
    prefetch_max: int = 512
    wait_ms: int = 20_000
    ack_flush_ms: int = 5
    retry_delay_ms: int = 1_000
    grace_ms: int = 30_000
    backoff_first_ms: int = 100
    backoff_max_ms: int = 5_000
    unknown_task_delay_ms: int = 5_000
    child_jobs_max: int | None = None
    child_memory_bytes_max: int | None = None
    recycle_jobs_max: int | None = None
    recycle_age_ms: int | None = None
    recycle_memory_bytes_max: int | None = None
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    stuck_ms: int = 60_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in _AT_LEAST_ONE else 0
            if isinstance(value, int) and value < least:
                raise ValueError(f"{field.name} must be at least {least}")
        if self.health_port is not None and self.health_port > _PORT_MAX:
            raise ValueError(f"health_port must be at most {_PORT_MAX}")
