"""Isolates a simulation: it does not depend on earlier use of its interpreter, and leaves no trace in it."""

from __future__ import annotations

import gc
import logging
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import CoroutineType

from pinlater.simulation.loop import Timeline


@contextmanager
def common_dice(seed: int) -> Iterator[None]:
    """The worker's modules use the interpreter's common random numbers."""
    dice = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(dice)


@contextmanager
def collected_at_the_end() -> Iterator[None]:
    """Disables garbage collection until the end of a simulation: when a coroutine of a killed process is collected, its `finally`s run,
    and only the seed may decide when that happens. They run here, when they can no longer change anything. Must not be nested."""
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        with _ignored_ends():
            gc.collect()
            _close_coroutines()
            gc.collect()
        gc.unfreeze()
        if enabled:
            gc.enable()


def collect_young() -> None:
    """Frees what became garbage since the last time. Call it at times of the simulation, not of this machine. Must change nothing in the
    simulation: `Timeline.keep` has the coroutines of killed processes, and others end before they are garbage."""
    with _ignored_ends():
        gc.collect(1)


def _close_coroutines() -> None:
    """Closes the coroutines to which something in the interpreter still refers, and which would be closed within a later test. All are of
    this simulation: older objects are frozen, and not among these."""
    for each in gc.get_objects():
        if isinstance(each, CoroutineType):
            with suppress(Exception, BaseExceptionGroup):  # as it awaits in its `finally`, or in a TaskGroup
                each.close()


@contextmanager
def _ignored_ends() -> Iterator[None]:
    """Silences a killed process: it reports neither coroutines that never began nor those that await something while they are closed."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook


@contextmanager
def watched_logs(timeline: Timeline, expected: type[Exception] | tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """An exception that is logged and not answered is a bug that did not crash the process, unless it is `expected`."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if error is not None and not isinstance(error, expected):
                timeline.complain(f"{record.name}: {record.getMessage()}: {error!r}")

    handler = Handler(logging.ERROR)
    logger = logging.getLogger("pinlater")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
