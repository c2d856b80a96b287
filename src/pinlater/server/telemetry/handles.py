"""What hot paths hold: objects whose plain attributes they add to. No method call, no lock, no look-up for a count.

Every attribute is described in `catalogue`; a test compares the two.
"""

from __future__ import annotations

from pinlater.server.telemetry.histogram import Histogram


class QueueMetrics:
    """What happened in one queue since the start. Counters are jobs unless their comment says otherwise."""

    __slots__ = (
        "ack_failed",
        "ack_noop",
        "ack_succeeded",
        "cancelled",
        "checkpoint",
        "checkpoint_noop",
        "deleted",
        "dequeue",
        "dequeue_delay_ms",
        "dequeue_requests_empty",
        "dequeue_requests_rate_limited",
        "enqueue",
        "enqueue_rejected",
        "expired",
        "failed_gc",
        "first_dequeue_delay_ms",
        "heartbeat",
        "job_body_size",
        "name",
        "released",
        "repeated_requests",
        "retried",
        "run_ms",
        "stale_claim",
        "succeeded_gc",
        "timeout_done",
        "timeout_evict",
        "timeout_retry",
        "undelivered",
        "unique_existing",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.enqueue = 0
        self.dequeue = 0
        self.ack_succeeded = 0
        self.ack_failed = 0
        self.checkpoint = 0
        self.checkpoint_noop = 0
        self.dequeue_requests_rate_limited = 0  # requests
        self.timeout_done = 0
        self.timeout_retry = 0
        self.timeout_evict = 0
        self.succeeded_gc = 0
        self.failed_gc = 0
        # Ours, beyond the original's.
        self.dequeue_requests_empty = 0  # requests
        self.enqueue_rejected = 0
        self.released = 0
        self.cancelled = 0
        self.expired = 0
        self.stale_claim = 0
        self.ack_noop = 0
        self.heartbeat = 0
        self.repeated_requests = 0  # requests
        self.unique_existing = 0
        self.undelivered = 0
        self.retried = 0
        self.deleted = 0
        self.first_dequeue_delay_ms = Histogram()
        self.dequeue_delay_ms = Histogram()
        self.run_ms = Histogram()
        self.job_body_size = Histogram()


class MethodMetrics:
    """Requests of one method: how many, how long (milliseconds, kept to the microsecond), and how many ended in which error."""

    __slots__ = ("errors", "msec", "name", "requests")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.msec = Histogram(steps_per_unit=1000)
        self.errors: dict[str, int] = {}

    def error(self, code: str) -> None:
        """One request ended in `code`, which must come from a closed list (our error codes), never from a caller."""
        self.errors[code] = self.errors.get(code, 0) + 1
