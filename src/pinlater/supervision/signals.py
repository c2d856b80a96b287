"""Signal handlers of an event loop, and signals to its child processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def handled(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Calls the handlers on the running loop during the block. Afterwards, the signals do what they did before."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            loop.remove_signal_handler(number)
            if earlier is not None:
                signal.signal(number, earlier)


def send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Sends a signal, or does nothing if the process has ended.

    `Process.send_signal` first asks the system whether the process has ended, and thereby takes the exit code for which the event loop
    waits: then the loop warns about an unknown child process and reports 255. Weakness: between the end of the process and the loop's
    notice of it, the signal could go to a new process with the same id.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
