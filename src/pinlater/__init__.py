"""PinLater: a durable asynchronous job service.

Producers and workers import their names from here: `from pinlater import AsyncClient, Job, Worker`. Names are loaded when first used,
so that importing the package costs nothing.
"""

from importlib import import_module

from pinlater.version import __version__

# Type checkers take it for true. The module `typing` is not imported: that would delay the signal handlers of a process that starts.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from pinlater.client import (
        Ack,
        AsyncClient,
        AsyncEnqueueBatcher,
        ClaimedJob,
        Client,
        EnqueueBatcher,
        Job,
        JobInfo,
        JobState,
        Outcome,
        Tls,
        UniqueKey,
        UniqueScope,
    )
    from pinlater.worker import JobContext, Reject, Retry, Snooze, Worker, WorkerSettings, current_job, partly_enqueued

_HOMES = {
    "Ack": "pinlater.client",
    "AsyncClient": "pinlater.client",
    "AsyncEnqueueBatcher": "pinlater.client",
    "ClaimedJob": "pinlater.client",
    "Client": "pinlater.client",
    "EnqueueBatcher": "pinlater.client",
    "Job": "pinlater.client",
    "JobContext": "pinlater.worker",
    "JobInfo": "pinlater.client",
    "JobState": "pinlater.client",
    "Outcome": "pinlater.client",
    "Reject": "pinlater.worker",
    "Retry": "pinlater.worker",
    "Snooze": "pinlater.worker",
    "Tls": "pinlater.client",
    "UniqueKey": "pinlater.client",
    "UniqueScope": "pinlater.client",
    "Worker": "pinlater.worker",
    "WorkerSettings": "pinlater.worker",
    "current_job": "pinlater.worker",
    "partly_enqueued": "pinlater.worker",
}

__all__ = [
    "Ack",
    "AsyncClient",
    "AsyncEnqueueBatcher",
    "ClaimedJob",
    "Client",
    "EnqueueBatcher",
    "Job",
    "JobContext",
    "JobInfo",
    "JobState",
    "Outcome",
    "Reject",
    "Retry",
    "Snooze",
    "Tls",
    "UniqueKey",
    "UniqueScope",
    "Worker",
    "WorkerSettings",
    "__version__",
    "current_job",
    "partly_enqueued",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pinlater' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
