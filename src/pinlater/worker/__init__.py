"""The worker: claims jobs, runs a function for each, and reports how it went."""

# ruff: noqa: E402
from pinlater.supervision.start_signals import remember_sigterm

remember_sigterm()  # before the other imports, which take a while

from pinlater.client.values import ClaimedJob
from pinlater.worker._enqueueing.partly_enqueued import PartlyEnqueued, partly_enqueued
from pinlater.worker.codecs import Codec, JsonCodec, MessagePackCodec
from pinlater.worker.context import JobContext, current_job
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.cron import Missed
from pinlater.worker.errors import (
    CantDecode,
    ClaimLost,
    ProcessDied,
    Reject,
    Retry,
    Snooze,
    TimeLimitExceeded,
    UnusableHandler,
)
from pinlater.worker.logs import JobFields
from pinlater.worker.middleware import Ending, Kind, Middleware
from pinlater.worker.retries import RetryPolicy, by_error, constant, exponential, linear, never
from pinlater.worker.settings import WorkerSettings
from pinlater.worker.tasks import Producer, Task
from pinlater.worker.worker import Worker

__all__ = [
    "CantDecode",
    "ClaimLost",
    "ClaimedJob",
    "Codec",
    "Ending",
    "JobContext",
    "JobFields",
    "JsonCodec",
    "Kind",
    "MessagePackCodec",
    "Middleware",
    "Missed",
    "PartlyEnqueued",
    "ProcessDied",
    "Producer",
    "Reject",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "Task",
    "TimeLimitExceeded",
    "UnusableHandler",
    "Worker",
    "WorkerCounts",
    "WorkerSettings",
    "by_error",
    "constant",
    "current_job",
    "exponential",
    "linear",
    "never",
    "partly_enqueued",
]
