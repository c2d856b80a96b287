"""Every metric of a queue and of a method, in one table: the attribute callers add to, its names, its unit, its meaning.

Ostrich's form, Prometheus' form, the snapshots and the reference page are all made from here or checked against it.
"""

from __future__ import annotations

from typing import NamedTuple


class QueueCounter(NamedTuple):
    """A counter of `QueueMetrics`. In /stats.txt it is `<queue>_<attribute>`; in /metrics `prometheus` + `_total`."""

    attribute: str
    prometheus: str
    help: str


class QueueHistogram(NamedTuple):
    """A histogram of `QueueMetrics`. `scale` takes its unit to Prometheus' base unit; `bounds` are in the base unit."""

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


QUEUE_COUNTERS = (
    QueueCounter("enqueue", "pinlater_jobs_enqueued", "Jobs stored by enqueue requests"),
    QueueCounter("dequeue", "pinlater_jobs_dequeued", "Jobs handed out to workers"),
    QueueCounter("ack_succeeded", "pinlater_jobs_succeeded", "Attempts acknowledged as succeeded"),
    QueueCounter(
        "ack_failed", "pinlater_attempts_failed", "Attempts acknowledged as failed, whether or not any are left"
    ),
    QueueCounter("checkpoint", "pinlater_checkpoints", "Checkpoints stored"),
    QueueCounter(
        "checkpoint_noop", "pinlater_checkpoints_ignored", "Checkpoints by a caller who does not hold the job"
    ),
    QueueCounter(
        "dequeue_requests_rate_limited",
        "pinlater_dequeue_requests_rate_limited",
        "Dequeue requests refused by a limit or a pause",
    ),
    QueueCounter("timeout_done", "pinlater_claims_timed_out_final", "Claims that timed out on the job's last attempt"),
    QueueCounter(
        "timeout_retry", "pinlater_claims_timed_out_retried", "Claims that timed out; the job went back to the queue"
    ),
    QueueCounter(
        "timeout_evict",
        "pinlater_claims_timed_out_evicted",
        "Claims that timed out of jobs whose data was gone (Redis)",
    ),
    QueueCounter(
        "succeeded_gc", "pinlater_jobs_succeeded_collected", "Succeeded jobs removed after their time to live"
    ),
    QueueCounter("failed_gc", "pinlater_jobs_failed_collected", "Failed jobs removed after their time to live"),
    QueueCounter(
        "dequeue_requests_empty", "pinlater_dequeue_requests_empty", "Dequeue requests answered without a job"
    ),
    QueueCounter("enqueue_rejected", "pinlater_jobs_rejected", "Jobs refused because the queue or the store was full"),
    QueueCounter("released", "pinlater_jobs_released", "Claims given back unspent by their holders"),
    QueueCounter("cancelled", "pinlater_jobs_cancelled", "Jobs cancelled"),
    QueueCounter(
        "expired", "pinlater_jobs_expired", "Jobs that failed because their expiry passed before a worker came"
    ),
    QueueCounter(
        "stale_claim",
        "pinlater_stale_claims",
        "Acks, checkpoints, heartbeats and releases with a token no longer valid",
    ),
    QueueCounter("ack_noop", "pinlater_acks_ignored", "Acks of jobs that were finished already or are not there"),
    QueueCounter("heartbeat", "pinlater_heartbeats", "Claims prolonged by a heartbeat"),
    QueueCounter(
        "repeated_requests",
        "pinlater_enqueue_requests_repeated",
        "Enqueue requests recognised by their request key as a repeat",
    ),
    QueueCounter(
        "unique_existing", "pinlater_jobs_unique_existing", "Enqueued jobs whose unique key was taken by an earlier one"
    ),
    QueueCounter(
        "undelivered", "pinlater_jobs_undelivered", "Jobs claimed for a caller who was gone, and released unspent"
    ),
    QueueCounter("retried", "pinlater_jobs_retried", "Failed jobs put back by retryFailedJobs"),
    QueueCounter("deleted", "pinlater_jobs_deleted", "Jobs deleted by request"),
)

DELAY_BOUNDS_S = (
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21_600, 86_400
)  # fmt: skip
REQUEST_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
BODY_BOUNDS_BYTES = (64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)

QUEUE_HISTOGRAMS = (
    QueueHistogram(
        "first_dequeue_delay_ms",
        "{queue}_first_dequeue_delay_ms",
        "pinlater_first_dequeue_delay_seconds",
        0.001,
        DELAY_BOUNDS_S,
        "From a job's creation to its first hand-out",
    ),
    QueueHistogram(
        "dequeue_delay_ms",
        "{queue}_dequeue_delay_ms",
        "pinlater_dequeue_delay_seconds",
        0.001,
        DELAY_BOUNDS_S,
        "From when a job became due to its hand-out, at every attempt",
    ),
    QueueHistogram(
        "run_ms",
        "{queue}_run_ms",
        "pinlater_run_seconds",
        0.001,
        DELAY_BOUNDS_S,
        "From a claim to its ack, of at most four acks of each request; only acks with a claim token",
    ),
    QueueHistogram(
        "job_body_size",
        "job_body_size_{queue}",
        "pinlater_job_body_bytes",
        1,
        BODY_BOUNDS_BYTES,
        "Length of the bodies of enqueued jobs",
    ),
)

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
QUEUE_OLDEST_DUE = OtherMetric(
    "", "pinlater_queue_oldest_due_timestamp_seconds", "When the job that has waited longest became due"
)
