"""Log lines of the heartbeat thread. Another thread writes them: a log handler that hangs, or whose lock the blocked event loop holds, must
not stop the heartbeats."""

from __future__ import annotations

import contextlib
import logging
import threading
from queue import SimpleQueue
from typing import Any

_lines: SimpleQueue[tuple[logging.Logger, int, str, tuple[object, ...], dict[str, Any]]] = SimpleQueue()
_writers: list[threading.Thread] = []


def log_apart(logger: logging.Logger, level: int, text: str, *arguments: object, **more: Any) -> None:
    """Logs from another thread and does not wait for it. `more`: as for `logger.log`, but `exc_info` must be the exception."""
    if not logger.isEnabledFor(level):
        return
    _lines.put((logger, level, text, arguments, more))
    if not any(writer.is_alive() for writer in _writers):  # none is after a fork
        _writers[:] = [threading.Thread(target=_write, name="pinlater heartbeat log", daemon=True)]
        with contextlib.suppress(
            RuntimeError
        ):  # no further thread can start now: the heartbeats matter more than the line
            _writers[0].start()


def _write() -> None:
    while True:
        logger, level, text, arguments, more = _lines.get()
        logger.log(level, text, *arguments, **more)
