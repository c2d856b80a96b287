"""What hot paths hold: objects whose plain attributes they add to. No method call, no lock, no look-up for a count.

Every attribute is described in `catalogue`; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pinlater.server.telemetry.histogram import Histogram


@dataclass(slots=True, eq=False)
class QueueMetrics:
    """What happened in one queue since the start. Counters are jobs unless their comment says otherwise."""

    name: str
    enqueue: int = 0
    dequeue: int = 0
    ack_succeeded: int = 0
    ack_failed: int = 0
    checkpoint: int = 0
    checkpoint_noop: int = 0
    dequeue_requests_rate_limited: int = 0  # requests
    timeout_done: int = 0
    timeout_retry: int = 0
    timeout_evict: int = 0
    succeeded_gc: int = 0
    failed_gc: int = 0
    # Ours, beyond the original's.
    dequeue_requests_empty: int = 0  # requests
    enqueue_rejected: int = 0
    released: int = 0
    cancelled: int = 0
    expired: int = 0
    stale_claim: int = 0
    ack_noop: int = 0
    heartbeat: int = 0
    repeated_requests: int = 0  # requests
    unique_existing: int = 0
    undelivered: int = 0
    retried: int = 0
    deleted: int = 0
    first_dequeue_delay_ms: Histogram = field(default_factory=Histogram)
    dequeue_delay_ms: Histogram = field(default_factory=Histogram)
    run_ms: Histogram = field(default_factory=Histogram)
    job_body_size: Histogram = field(default_factory=Histogram)


@dataclass(slots=True, eq=False)
class MethodMetrics:
    """Requests of one method: how many, how long (milliseconds, kept to the microsecond), and how many ended in which error."""

    name: str
    requests: int = 0
    msec: Histogram = field(default_factory=lambda: Histogram(steps_per_unit=1000))
    errors: dict[str, int] = field(default_factory=dict)

    def error(self, code: str) -> None:
        """One request ended in `code`, which must come from a closed list (our error codes), never from a caller."""
        self.errors[code] = self.errors.get(code, 0) + 1
