"""The logs of `Worker.run()` in a program that sets up no logging: the worker's own lines, as text on standard error.

Python's default would show warnings only: no line would say that the worker runs, or which server and tasks it has. Celery and RQ set up
logging in such a program, too. Loggers of the program and of other libraries stay as they are.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from pinlater.supervision.logs import TextFormatter, count_repeats
from pinlater.worker.logs import JobFields


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Shows the lines during the block, from info on unless the program set a level. Does nothing if the program has set up logging."""
    logger = logging.getLogger("pinlater")
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter())
    count_repeats(handler)
    handler.addFilter(JobFields())
    handler.addFilter(_nothing_else_is_set_up)
    level = logger.level
    logger.setLevel(level or logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _nothing_else_is_set_up(_: logging.LogRecord) -> bool:
    """False once a task or a library has set up the root logger, which then shows the line: `logging.info()` does that."""
    return not logging.getLogger().handlers
