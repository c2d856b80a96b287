"""The worker: claims jobs, runs a function for each, and acks how it went."""

from pinlater.client.values import ClaimedJob
from pinlater.worker.errors import Reject, Snooze
from pinlater.worker.settings import WorkerSettings
from pinlater.worker.worker import Worker

__all__ = ["ClaimedJob", "Reject", "Snooze", "Worker", "WorkerSettings"]
