"""The server's numbers. Hot paths hold a handle and add to plain attributes; everything that costs is left to the reader.

Only the event loop's thread writes. Nothing here does I/O, and nothing grows without a bound: past `queues_max` queues, or
`names_max` other names, the rest is counted together under `OVERFLOW`.

Weakness: a handle of a queue that was deleted goes on counting where nobody looks; so ask `Metrics.queue` anew for each
request (one dictionary look-up) instead of keeping handles for long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pinlater.telemetry.histogram import Histogram

OVERFLOW = "(other)"


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


class Gauge(NamedTuple):
    """A value read when somebody looks. `read` gives a number, or one for each member (a queue, a shard).

    `prometheus` is the metric's name there and `label` names what the members are; Ostrich shows `name` + member.
    """

    name: str
    read: Callable[[], float | Mapping[str, float]]
    prometheus: str
    label: str
    help: str


class Metrics:
    """All numbers of one server."""

    def __init__(self, queues_max: int = 10_000, names_max: int = 1_000) -> None:
        self._queues_max = queues_max
        self._names_max = names_max
        self.queues: dict[str, QueueMetrics] = {}
        self.methods: dict[str, MethodMetrics] = {}
        self.counters: dict[str, int] = {}
        self.labels: dict[str, str] = {}
        self.gauges: dict[str, Gauge] = {}

    def queue(self, name: str) -> QueueMetrics:
        """The handle of an existing queue. Don't ask for names that no store has confirmed: each takes a place."""
        found = self.queues.get(name)
        return found if found is not None else self._new_queue(name)

    def _new_queue(self, name: str) -> QueueMetrics:
        if len(self.queues) >= self._queues_max and OVERFLOW not in self.queues:
            self.queues[OVERFLOW] = QueueMetrics(OVERFLOW)
        if len(self.queues) > self._queues_max:
            return self.queues[OVERFLOW]
        return self.queues.setdefault(name, QueueMetrics(name))

    def forget_queue(self, name: str) -> None:
        """The queue was deleted: its numbers go, its place is free."""
        self.queues.pop(name, None)

    def method(self, name: str) -> MethodMetrics:
        """The handle of a method of the wire contract."""
        found = self.methods.get(name)
        if found is None:
            key = name if len(self.methods) < self._names_max else OVERFLOW
            found = self.methods.setdefault(key, MethodMetrics(key))
        return found

    def count(self, name: str, n: int = 1) -> None:
        """Adds to a counter that belongs to no queue and no method, e.g. `shard_connection_failed_<host>`."""
        if name not in self.counters and len(self.counters) >= self._names_max:
            name = OVERFLOW
        self.counters[name] = self.counters.get(name, 0) + n

    def gauge(
        self,
        name: str,
        read: Callable[[], float | Mapping[str, float]],
        *,
        prometheus: str = "",
        label: str = "",
        help: str = "",
    ) -> None:
        """Shows what `read` returns whenever somebody looks; called on the event loop, so it must be cheap.

        Named `name` in /stats.txt; for a `read` that gives a mapping, `name` + key, one for each key.
        In /metrics `pinlater_` + `prometheus` (without it: the `name`, made fit), with `label` naming the keys.
        """
        self.gauges[name] = Gauge(name, read, prometheus, label, help)

    def remove_gauge(self, name: str) -> None:
        """Shows it no longer; nothing happens where there is none."""
        self.gauges.pop(name, None)

    def label(self, name: str, value: str) -> None:
        """A text shown among the labels of /stats.txt, e.g. the store's kind."""
        self.labels[name] = value
