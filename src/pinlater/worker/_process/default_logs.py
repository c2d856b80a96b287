"""The logs of `Worker.run()` in a program that sets up no logging: lines as text on standard error, with time and job.

Python's default would show warnings only, as bare texts: no line would say that the worker runs, or which server and tasks it has. Celery
and RQ set up logging in such a program, too. The levels of other loggers stay as they are: a logger without a level shows warnings.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from pinlater.supervision.logs import TextFormatter, count_repeats
from pinlater.worker.logs import JobFields


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Shows the lines during the block, the worker's from info on unless the program set a level. Does nothing if the program has set up
    logging, and stops once a task or a library does."""
    logger = logging.getLogger("pinlater")
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter())
    handler.addFilter(JobFields())  # before `count_repeats`, which shows all warnings of single jobs
    count_repeats(handler)
    level, last_resort = logger.level, logging.lastResort
    logger.setLevel(level or logging.INFO)
    # Python gives it the lines for which no logger has a handler. On the root logger it would disable `logging.basicConfig()` in a task.
    logging.lastResort = handler
    try:
        yield
    finally:
        logging.lastResort = last_resort
        logger.setLevel(level)
