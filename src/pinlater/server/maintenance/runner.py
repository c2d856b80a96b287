"""The one way to run background work: named, supervised, jittered, counted, and safe to stop twice.

A task that fails is logged and counted and runs again at its next turn; a bug in one never stops another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError
from pinlater.server.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class Periodic(NamedTuple):
    """One piece of work. `run` does a bounded part of it and returns the seconds until its next turn, or None for the interval. `finish` is
    called once when the runner has stopped.
    """

    name: str
    interval_ms: int
    run: Callable[[], Awaitable[float | None]]
    finish: Callable[[], Awaitable[None]] | None = None


class MaintenanceRunner:
    """Runs all periodic work until stopped."""

    def __init__(self, work: Sequence[Periodic], metrics: Metrics, random: Random) -> None:
        self._work = work
        self._metrics = metrics
        self._random = random
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts; needs a running loop."""
        self._tasks = [asyncio.create_task(self._repeat(one), name=f"maintenance {one.name}") for one in self._work]

    async def stop(self) -> None:
        """Stops between two pieces of work or at their next await; a second call does no harm."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        await asyncio.wait(tasks)
        for one in self._work:
            if one.finish is not None:
                await one.finish()

    async def _repeat(self, one: Periodic) -> None:
        interval = one.interval_ms / 1000
        # Servers that start together don't sweep together.
        await asyncio.sleep(interval * self._random.random())
        while True:
            pause = await self._run_once(one)
            await asyncio.sleep(interval * self._random.uniform(0.9, 1.1) if pause is None else pause)

    async def _run_once(self, one: Periodic) -> float | None:
        try:
            return await one.run()
        except PinLaterError as error:
            self._metrics.count(f"maintenance-failures-{one.name}")
            logger.warning("maintenance could not run", extra={"work": one.name, "reason": error.message})
        except Exception:
            self._metrics.count(f"maintenance-failures-{one.name}")
            logger.exception("maintenance failed by a bug", extra={"work": one.name})
        return None
