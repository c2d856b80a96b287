"""Signal handlers of an event loop, for the duration of a `with` block."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def handled(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Calls the handlers on the running loop meanwhile."""
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
