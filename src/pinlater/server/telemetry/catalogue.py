"""Every metric of a queue and of a method, each declared once: the attribute that hot paths increment, its names, its unit, its meaning.

Hot paths hold a `QueueMetrics` or `MethodMetrics` and add to plain attributes: no method call, no lock, no look-up for a count. Ostrich's
format, Prometheus' format, the snapshots and the reference page are generated from `QUEUE_COUNTERS` and `QUEUE_HISTOGRAMS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from pinlater.server.telemetry.histogram import Histogram


class QueueCounter(NamedTuple):
    """A counter of `QueueMetrics`. In /stats.txt it is `<queue>_<attribute>`; in /metrics `prometheus` + `_total`."""

    attribute: str
    prometheus: str
    help: str


class QueueHistogram(NamedTuple):
    """A histogram of `QueueMetrics`. `scale` converts its unit to Prometheus' base unit; `bounds` are in the base unit."""

    attribute: str
    ostrich: str
    prometheus: str
    scale: float
    bounds: tuple[float, ...]
    help: str


class OtherMetric(NamedTuple):
    """A metric that is not one of a queue's own attributes. `ostrich` is empty if it is in /metrics only."""

    ostrich: str
    prometheus: str
    help: str


DELAY_BOUNDS_S = (
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21_600, 86_400
)  # fmt: skip
REQUEST_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
BODY_BOUNDS_BYTES = (64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)


def _counter(*described: str) -> Any:
    """Declares a counter with the fields of `QueueCounter` that follow its attribute."""
    return field(default=0, metadata={"counter": described})


def _delays(name: str, text: str) -> dict[str, object]:
    """Returns the metadata of a histogram of milliseconds: the fields of `QueueHistogram` that follow its attribute."""
    return {"histogram": (f"{{queue}}_{name}_ms", f"pinlater_{name}_seconds", 0.001, DELAY_BOUNDS_S, text)}


@dataclass(slots=True, eq=False)
class QueueMetrics:
    """The counts of one queue since the start. Counters count jobs unless their text says otherwise."""

    name: str
    enqueue: int = _counter("pinlater_jobs_enqueued", "Jobs stored by enqueue requests")
    dequeue: int = _counter("pinlater_jobs_dequeued", "Jobs handed out to workers")
    ack_succeeded: int = _counter("pinlater_jobs_succeeded", "Attempts acknowledged as succeeded")
    ack_failed: int = _counter(
        "pinlater_attempts_failed", "Attempts acknowledged as failed, whether or not any are left"
    )
    checkpoint: int = _counter("pinlater_checkpoints", "Checkpoints stored")
    checkpoint_noop: int = _counter("pinlater_checkpoints_ignored", "Checkpoints by a caller who does not hold the job")
    dequeue_requests_rate_limited: int = _counter(
        "pinlater_dequeue_requests_rate_limited", "Dequeue requests refused by a limit or a pause"
    )
    timeout_done: int = _counter("pinlater_claims_timed_out_final", "Claims that timed out on the job's last attempt")
    timeout_retry: int = _counter(
        "pinlater_claims_timed_out_retried", "Claims that timed out; the job went back to the queue"
    )
    timeout_evict: int = _counter(
        "pinlater_claims_timed_out_evicted", "Claims that timed out of jobs whose data was gone (Redis)"
    )
    succeeded_gc: int = _counter("pinlater_jobs_succeeded_collected", "Succeeded jobs removed after their time to live")
    failed_gc: int = _counter("pinlater_jobs_failed_collected", "Failed jobs removed after their time to live")
    dequeue_requests_empty: int = _counter("pinlater_dequeue_requests_empty", "Dequeue requests answered without a job")
    enqueue_rejected: int = _counter("pinlater_jobs_rejected", "Jobs refused because the queue or the store was full")
    released: int = _counter("pinlater_jobs_released", "Claims given back unspent by their holders")
    cancelled: int = _counter("pinlater_jobs_cancelled", "Jobs cancelled")
    expired: int = _counter(
        "pinlater_jobs_expired", "Jobs that failed because their expiry passed before a worker came"
    )
    stale_claim: int = _counter(
        "pinlater_stale_claims", "Acks, checkpoints, heartbeats and releases with a token no longer valid"
    )
    ack_noop: int = _counter("pinlater_acks_ignored", "Acks of jobs that were finished already or are not there")
    heartbeat: int = _counter("pinlater_heartbeats", "Claims prolonged by a heartbeat")
    repeated_requests: int = _counter(
        "pinlater_enqueue_requests_repeated", "Enqueue requests recognised by their request key as a repeat"
    )
    unique_existing: int = _counter(
        "pinlater_jobs_unique_existing", "Enqueued jobs whose unique key was taken by an earlier one"
    )
    undelivered: int = _counter(
        "pinlater_jobs_undelivered", "Jobs claimed for a caller who was gone, and released unspent"
    )
    retried: int = _counter("pinlater_jobs_retried", "Failed jobs put back by retryFailedJobs")
    deleted: int = _counter("pinlater_jobs_deleted", "Jobs deleted by request")
    first_dequeue_delay_ms: Histogram = field(
        default_factory=Histogram,
        metadata=_delays("first_dequeue_delay", "From a job's creation to its first hand-out"),
    )
    dequeue_delay_ms: Histogram = field(
        default_factory=Histogram,
        metadata=_delays("dequeue_delay", "From when a job became due to its hand-out, at every attempt"),
    )
    run_ms: Histogram = field(
        default_factory=Histogram,
        metadata=_delays(
            "run", "From a claim to its ack, of at most four acks of each request; only acks with a claim token"
        ),
    )
    job_body_size: Histogram = field(
        default_factory=Histogram,
        metadata={
            "histogram": (
                *("job_body_size_{queue}", "pinlater_job_body_bytes", 1, BODY_BOUNDS_BYTES),
                "Length of the bodies of enqueued jobs",
            )
        },
    )


QUEUE_COUNTERS: tuple[QueueCounter, ...] = tuple(
    QueueCounter(each.name, *each.metadata["counter"]) for each in fields(QueueMetrics) if "counter" in each.metadata
)
QUEUE_HISTOGRAMS: tuple[QueueHistogram, ...] = tuple(
    QueueHistogram(each.name, *each.metadata["histogram"])
    for each in fields(QueueMetrics)
    if "histogram" in each.metadata
)


@dataclass(slots=True, eq=False)
class MethodMetrics:
    """Requests of one method: how many, how long (milliseconds, kept to the microsecond), and how many ended with which error."""

    name: str
    requests: int = 0
    msec: Histogram = field(default_factory=lambda: Histogram(steps_per_unit=1000))
    errors: dict[str, int] = field(default_factory=dict)

    def error(self, code: str) -> None:
        """Counts a request that ended with `code`, which must come from a closed list (our error codes), never from a caller."""
        self.errors[code] = self.errors.get(code, 0) + 1


METHOD_REQUESTS = OtherMetric("PinLaterService.{method}_requests", "pinlater_requests", "Requests answered, by method")
METHOD_ERRORS = OtherMetric(
    "PinLater.{method}.errors.{code}", "pinlater_request_errors", "Requests that ended in an error, by method and code"
)
METHOD_MSEC = OtherMetric(
    "PinLaterService.{method}_msec", "pinlater_request_duration_seconds", "From a request's arrival to its answer"
)
EVENTS = OtherMetric("{name}", "pinlater_events", "Counters that belong to no queue and no method, by name")
QUEUE_JOBS = OtherMetric(
    "", "pinlater_queue_jobs", "Jobs in the store, by state: due, future, in_progress, succeeded, failed"
)
QUEUE_BEHIND_KEY = OtherMetric(
    "",
    "pinlater_queue_behind_key",
    "Jobs in the state future that wait behind others of their ordering key, up to 10,000 of a shard",
)
QUEUE_OLDEST_DUE = OtherMetric(
    "", "pinlater_queue_oldest_due_timestamp_seconds", "When the job that has waited longest became due"
)
SLOTS_WANTED = OtherMetric(
    "queue-slots-wanted-", "pinlater_queue_slots_wanted", "Job slots that the queue can use now, as /demand answers"
)
