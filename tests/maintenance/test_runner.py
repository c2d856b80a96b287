"""The runner of periodic work."""

from __future__ import annotations

import asyncio
from random import Random

from pinlater.domain.errors import StoreFull
from pinlater.server.maintenance.runner import MaintenanceRunner, Periodic
from pinlater.server.telemetry.metrics import Metrics


class Work:
    """Counts its runs, fails when told to, and tells the test of each."""

    def __init__(self, *faults: Exception | None) -> None:
        self.runs = 0
        self.ran = asyncio.Event()
        self._faults = list(faults)

    async def run(self) -> float | None:
        self.runs += 1
        fault = self._faults.pop(0) if self._faults else None
        if not self._faults:
            self.ran.set()
        if fault is not None:
            raise fault
        return 0.0 if self._faults else None


async def test_work_that_fails_is_counted_and_runs_again_and_harms_no_other() -> None:
    failing, healthy = Work(StoreFull.of("disk"), ZeroDivisionError(), None), Work(None)
    metrics = Metrics()
    runner = MaintenanceRunner(
        [Periodic("failing", 1, failing.run), Periodic("healthy", 1, healthy.run)], metrics, Random(1)
    )
    runner.start()
    async with asyncio.timeout(30):
        await failing.ran.wait()
        await healthy.ran.wait()
    await runner.stop()
    assert failing.runs >= 3
    counters = metrics.read().counters
    assert counters["maintenance-failures-failing"] == 2


async def test_work_that_asks_for_another_turn_gets_it_before_its_interval() -> None:
    work = Work(None, None, None)
    runner = MaintenanceRunner([Periodic("busy", 50, work.run)], Metrics(), Random(1))
    runner.start()
    async with asyncio.timeout(30):
        await work.ran.wait()
    await runner.stop()


async def test_stopping_twice_does_no_harm() -> None:
    runner = MaintenanceRunner([Periodic("work", 1, Work().run)], Metrics(), Random(1))
    runner.start()
    await runner.stop()
    await runner.stop()
