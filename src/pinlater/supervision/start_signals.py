"""What SIGTERM and SIGINT do while a process starts.

The kernel drops a signal for process 1 of a container that has no handler for it, so a program whose imports take long would never learn
that it was stopped. Imports as little as it can: it runs before all other imports. Weakness: nothing can handle signals while the
interpreter itself starts.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def end_at_stop_signals(code: int) -> None:
    """Makes these signals end the process at once with `code`, until other handlers replace these."""
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, frame: os._exit(code))


def end_process_one_at_sigterm() -> None:
    """Makes SIGTERM end this process if it is process 1 of a container, with the code that a shell reports elsewhere."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))


class _Remembering:
    """A handler that does nothing, like the kernel for process 1, but records whether a signal came."""

    came = False

    def __call__(self, number: int, frame: object) -> None:
        self.came = True


def remember_sigterm() -> None:
    """If this is process 1 of a container, a SIGTERM without a handler does nothing, as before, but `stopped_by` will know of it.

    For programs that may run a worker later; for those that never do it must have no effect.
    """
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # only the main thread can set handlers
            signal.signal(signal.SIGTERM, _Remembering())
            os.register_at_fork(after_in_child=_forget_sigterm)


def _forget_sigterm() -> None:
    if isinstance(signal.getsignal(signal.SIGTERM), _Remembering):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def stopped_by(stop: Callable[[], object]) -> Iterator[None]:
    """Makes these signals call `stop` during the block, until other handlers replace these; afterwards they do what they did before.

    A signal that came after `remember_sigterm` calls it, too.
    """
    before = {number: signal.signal(number, lambda number, frame: stop()) for number in STOP_SIGNALS}
    if any(isinstance(handler, _Remembering) and handler.came for handler in before.values()):
        stop()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
