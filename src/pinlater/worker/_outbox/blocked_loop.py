"""Warns of a task that blocks the worker's event loop, while it does so: its name, its line, and what to write instead.

The heartbeat thread looks; the loop itself does nothing for it. Weaknesses: code that holds the interpreter's lock stops that thread too.
An asyncio task that a task starts does not say for which job it runs.
"""

from __future__ import annotations

import logging
import sys
import threading
from types import FrameType
from typing import NamedTuple

from pinlater.domain.durations import duration_text
from pinlater.worker.context import JobContext

# A logger of its own: lines of attempts would make the filter of repeated warnings show the next one.
_log = logging.getLogger("pinlater.worker.event_loop")
THREAD_NAME = "pinlater blocked loop warning"
# One block is told when it has lasted this long. The texts are equal, so that the filter can count them.
_WARN_S = (3, 30, 300)
# After the process was stopped for a time, the loop has run by the next look.
_LOOKS_MIN = 4
# What runs a loop; the program's own code is above it.
_RUNS_THE_LOOP = ("asyncio.base_events", "asyncio.events", "asyncio.runners", "pinlater.worker._process.event_loop")


class _Blocker(NamedTuple):
    """What runs on the loop's thread: its job, if that is known, and the line in the task's function."""

    job: JobContext | None
    at: str


class BlockedLoopWarnings:
    """Belongs to the event loop that runs on this thread."""

    def __init__(self, thread_id: int) -> None:
        self._thread_id = thread_id
        self._looks = 0  # that found the loop blocked, without a break
        self._told = 0  # how many of the lengths

    def looked(self, blocked_s: float) -> None:
        """For how long the loop has been blocked by now; 0 if it runs."""
        if not blocked_s:
            self._looks = self._told = 0
            return
        self._looks += 1
        reached = sum(blocked_s >= length_s for length_s in _WARN_S)
        if reached > self._told and self._looks >= _LOOKS_MIN:
            self._told = reached
            warning = (_blocker_on(self._thread_id), _WARN_S[reached - 1])
            # On a thread of its own: if it is a log handler that blocks the event loop, its lock must not stop the heartbeats.
            threading.Thread(target=_warn, args=warning, name=THREAD_NAME, daemon=True).start()


def _warn(blocker: _Blocker, length_s: int) -> None:
    job = blocker.job
    _log.warning(
        "the event loop has been blocked for %s, now by %s; other coroutines of this worker wait. Make the task a plain function "
        "(`def`), which runs in a thread, or await asyncio.to_thread(...) around what blocks",
        duration_text(length_s * 1000), "some task" if job is None else f"task {job.task} of queue {job.queue}",
        extra={"at": blocker.at} if blocker.at else {},
    )  # fmt: skip


def _blocker_on(thread_id: int) -> _Blocker:
    """From the innermost frame outwards: the task's function is the last one before those of the worker."""
    frame: FrameType | None = sys._current_frames().get(thread_id)  # noqa: SLF001 - documented
    at = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module in _RUNS_THE_LOOP:
            break
        if module.startswith("pinlater.worker."):
            context = frame.f_locals.get("context")
            if isinstance(context, JobContext):
                return _Blocker(context, at)
        elif not module.startswith("asyncio."):
            at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return _Blocker(None, at)
