"""The logs of `pinlater worker`, set up in the worker and in the processes of its handlers alike; so it imports little."""

from __future__ import annotations

import logging
from functools import partial

from pinlater.telemetry.logging import setup
from pinlater.worker.logs import JobFields


def log_to_stderr(format: str, level: str, process_number: int | None = None) -> None:
    """Sends log lines to standard error, each with the job that it is about, and with the number of one of several processes."""
    handler = setup(format=format, level=level)
    handler.addFilter(JobFields())
    if process_number is not None:
        handler.addFilter(partial(_mark, process_number))


def _mark(number: int, record: logging.LogRecord) -> bool:
    record.process_number = number
    return True
