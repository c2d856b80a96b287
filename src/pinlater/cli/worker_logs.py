"""The logs of `pinlater worker`, set up in the worker and in the processes of its tasks alike; therefore it imports little."""

from __future__ import annotations

import logging

from pinlater.supervision.logs import setup
from pinlater.worker.logs import JobFields

_CHATTY = ("asyncio",)  # reports at debug how each event loop works


def log_to_stderr(format: str, level: str, process_number: int | None = None) -> None:
    """Sends log lines to standard error, each with the job that it is about, and with the number of one of several processes.

    `level` is for the logs of the application too, which may set levels of its own for its loggers and those of libraries.
    """
    handler = setup(format=format, level=level, process_number=process_number)
    handler.filters.insert(0, JobFields())  # before the filter of repeats, which shows all warnings of single jobs
    logging.getLogger().setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.INFO, logging.getLogger().level))
