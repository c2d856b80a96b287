"""Starts, stops and kills the processes of all slots of a supervisor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pinlater.supervision.process_slot import ProcessSlot

_log = logging.getLogger(__name__)
S = TypeVar("S", bound=ProcessSlot[Any])
# How long processes may take after the order to stop now, before they are killed.
_STOP_NOW_S = 10.0


class ProcessGroup(Generic[S]):
    """`slots` may be filled until `keep`. Processes that have not stopped after `stop_timeout_s` are killed."""

    def __init__(self, slots: Sequence[S], stopping: asyncio.Event, stop_timeout_s: Callable[[], float]) -> None:
        self._slots = slots
        self._stopping = stopping
        self._stop_timeout_s = stop_timeout_s
        self._stopping_now = False

    async def keep(self, gave_up: Callable[[S, int], None]) -> None:
        """Keeps all processes running until stopped. Calls `gave_up` with a slot that gave up, and its exit code."""
        async with asyncio.TaskGroup() as group:
            first, *others = self._slots
            group.create_task(self._keep(first, gave_up))
            await first.settled.wait()  # the first process detects wrong settings, and migrates the store
            if not self._stopping.is_set():
                for slot in others:
                    group.create_task(self._keep(slot, gave_up))

    async def _keep(self, slot: S, gave_up: Callable[[S, int], None]) -> None:
        code = await slot.keep()
        if code is not None:
            gave_up(slot, code)
            self.stop()

    def signalled(self) -> None:
        """The first signal stops all processes in order, the second one without their grace time."""
        if not self._stopping.is_set():
            _log.info("signal received: stopping all processes")
            self.stop()
        elif not self._stopping_now:
            self._stopping_now = True
            _log.warning("second signal: stopping all processes now")
            for slot in self._slots:
                slot.stop_now()
            self._kill_in(_STOP_NOW_S)

    def stop(self) -> None:
        """Stops all processes in order."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for slot in self._slots:
            slot.stop()
            slot.settled.set()
        self._kill_in(self._stop_timeout_s())

    def _kill_in(self, seconds: float) -> None:
        for slot in self._slots:
            asyncio.get_running_loop().call_later(seconds, slot.kill)
