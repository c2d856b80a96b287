"""Settings of a worker. Units are in the names."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from pinlater.domain.durations import YEAR_MS
from pinlater.domain.setting_types import check_integer, check_yes_or_no

_AT_LEAST_ONE = frozenset(
    {
        "concurrency",
        "backoff_first_ms",
        "backoff_max_ms",
        "child_start_ms",
        "child_jobs_max",
        "child_memory_bytes_max",
        "recycle_jobs_max",
        "recycle_age_ms",
        "recycle_memory_bytes_max",
        "stuck_ms",
    }
)
_AT_MOST = {"health_port": 65_535, "retry_delay_ms": YEAR_MS, "unknown_task_delay_ms": YEAR_MS}


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How many jobs a worker takes, how long it waits, and when its processes are replaced.

    `concurrency` bounds the jobs that run at once, `prefetch_max` those claimed ahead of free slots, both of all queues together; the
    worker prefetches only short jobs. `wait_ms` is how long a claim waits for jobs, `ack_flush_ms` how long an ack waits for the next
    claim. `grace_ms` is how long running jobs may take after a stop. Jobs of unknown tasks are given back for `unknown_task_delay_ms`.

    `child_start_ms` is how long a child process may take from its start until it begins a function. `child_jobs_max` and
    `child_memory_bytes_max` (resident memory after a job) bound one child process, which is then replaced. `recycle_jobs_max`,
    `recycle_age_ms` and `recycle_memory_bytes_max` bound the worker's own process, which then stops in order with the exit code 75; a
    random part of up to a tenth lowers each. `health_port` (0: any free port) answers probes and Prometheus. The worker reports itself
    unhealthy when its event loop has been blocked, or abandoned functions have held all slots of a queue, for `stuck_ms`. With
    `auto_create` a worker and the enqueues of its tasks create queues that are missing, if the server lets them.
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
    child_start_ms: int = 60_000
    child_jobs_max: int | None = None
    child_memory_bytes_max: int | None = None
    recycle_jobs_max: int | None = None
    recycle_age_ms: int | None = None
    recycle_memory_bytes_max: int | None = None
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    stuck_ms: int = 60_000
    auto_create: bool = True

    def __post_init__(self) -> None:
        """Raises TypeError or ValueError that names the field."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "health_host":
                if not isinstance(value, str):
                    raise TypeError(f"health_host must be an address, not {type(value).__name__}")
            elif field.name == "auto_create":
                check_yes_or_no(field.name, value)
            elif value is not None or field.default is not None:
                least = 1 if field.name in _AT_LEAST_ONE else 0
                check_integer(field.name, value, least, _AT_MOST.get(field.name))


def with_lower_limits(settings: WorkerSettings, spread: float) -> WorkerSettings:
    """The limits of the process lowered by up to a tenth, so that processes that started together don't end together. `spread`: a random
    number from 0 to 1."""
    limits = {
        name: getattr(settings, name) for name in ("recycle_jobs_max", "recycle_age_ms", "recycle_memory_bytes_max")
    }
    lower = {name: limit - int(limit * 0.1 * spread) for name, limit in limits.items() if limit is not None}
    return replace(settings, **lower)


def backoff_ms(settings: WorkerSettings, failures: int, spread: float) -> int:
    """How long to wait after consecutive failures of the server. `spread` in [0, 1) keeps workers from returning together."""
    longest = min(settings.backoff_max_ms, settings.backoff_first_ms * 2 ** min(failures - 1, 20))
    return int(longest * (0.5 + spread / 2))
