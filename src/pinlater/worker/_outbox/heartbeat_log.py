"""Log lines of the heartbeat thread. Each is written by a thread of its own: a log handler that hangs, or whose lock the blocked event loop
holds, must not stop the heartbeats."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

_THREAD_NAME = "pinlater heartbeat log"


def log_apart(logger: logging.Logger, level: int, text: str, *arguments: object, **more: Any) -> None:
    """Logs from another thread and does not wait for it. `more`: as for `logger.log`, but `exc_info` must be the exception."""
    if not logger.isEnabledFor(level):
        return
    with contextlib.suppress(RuntimeError):  # no further thread can start: the heartbeats matter more than the line
        threading.Thread(
            target=logger.log, args=(level, text, *arguments), kwargs=more, name=_THREAD_NAME, daemon=True
        ).start()
