"""The logs of `pinlater worker`, set up in the worker and in the processes of its tasks alike; so it imports little."""

from __future__ import annotations

from pinlater.server.telemetry.logging import setup
from pinlater.worker.logs import JobFields


def log_to_stderr(format: str, level: str, process_number: int | None = None) -> None:
    """Sends log lines to standard error, each with the job that it is about, and with the number of one of several processes."""
    setup(format=format, level=level, process_number=process_number).addFilter(JobFields())
