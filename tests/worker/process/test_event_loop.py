"""`asyncio.to_thread` in a worker's process, whose threads don't keep it from ending (`test_signals` shows that)."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pinlater.testing import InProcessService
from pinlater.worker import Worker

THREADS_MAX = 100  # more than any pool has


def test_to_thread_gives_results_and_errors_and_uses_its_threads_again() -> None:
    worker, names, results = Worker(), list[str](), list[int]()

    @worker.task("q", attempts=1)
    async def look() -> None:
        names.extend([await asyncio.to_thread(lambda: threading.current_thread().name) for _ in range(3)])
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        results.extend(await asyncio.gather(*(asyncio.to_thread(int, n) for n in range(100))))
        worker.request_stop()

    with InProcessService() as service, service.serving(worker):
        look.enqueue()
        worker.run()
    assert len(set(names)) < 3
    assert results == list(range(100))


def test_a_function_cancelled_before_a_thread_was_free_does_not_run() -> None:
    worker, ran, gate = Worker(), list[str](), threading.Event()

    @worker.task("q", attempts=1)
    async def look() -> None:
        loop = asyncio.get_running_loop()
        busy = [loop.run_in_executor(None, gate.wait) for _ in range(THREADS_MAX)]
        late = loop.run_in_executor(None, ran.append, "cancelled")
        late.cancel()
        await asyncio.sleep(0)  # until the pool knows
        gate.set()
        assert all(await asyncio.gather(*busy))
        await asyncio.to_thread(ran.append, "after it")
        worker.request_stop()

    with InProcessService() as service, service.serving(worker):
        look.enqueue()
        worker.run()
    assert ran == ["after it"]
