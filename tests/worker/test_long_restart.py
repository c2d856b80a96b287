"""A worker's only server is away for nine seconds of real time, and what the worker could not tell it meanwhile arrives after."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

from pinlater.client import AsyncClient, JobState
from pinlater.testing import RealServer
from pinlater.worker import Snooze, Worker, WorkerSettings, current_job
from tests.worker.conftest import eventually
from tests.worker.test_worker import running, state_of

AWAY_S = 9.0
SHORT_S = 2.0


async def test_a_restart_of_the_server_costs_jobs_that_checkpoint_snooze_or_reschedule_no_attempt(
    tmp_path: Path,
) -> None:
    """On the loop and in a thread: the checkpoint returns once the server has it."""
    with RealServer(tmp_path) as server:
        async with AsyncClient(server.address) as client:
            await client.create_queue("q")
            worker = Worker(client, settings=WorkerSettings(concurrency=4))
            begun: list[str] = []
            is_away = threading.Event()

            @worker.task("q", attempts=1)
            async def on_loop(done: int = 0) -> None:
                begun.append("loop")
                await asyncio.to_thread(is_away.wait, 60)
                await current_job().checkpoint_async({"done": done + 1})
                await current_job().progress_async(1, "done")

            @worker.task("q", attempts=1)
            def in_thread(done: int = 0) -> None:
                begun.append("thread")
                is_away.wait(60)
                current_job().checkpoint({"done": done + 1})
                current_job().progress(1, "done")

            @worker.task("q", attempts=1)
            async def snoozes() -> None:
                begun.append("snoozes")
                if begun.count("snoozes") == 1:
                    await asyncio.to_thread(is_away.wait, 60)
                    raise Snooze(0.001)

            @worker.task("q", attempts=1)
            async def moves(is_new: bool = False) -> None:
                begun.append("moved" if is_new else "moves")
                if not is_new:
                    await asyncio.to_thread(is_away.wait, 60)
                    current_job().reschedule(0, {"is_new": True})

            placed = [await task.enqueue_async() for task in (on_loop, in_thread, snoozes, moves)]
            async with running(worker):
                await eventually(lambda: len(begun) == 4, 30)
                await asyncio.to_thread(server.kill)
                loop = asyncio.get_running_loop()
                went = loop.time()
                is_away.set()
                await eventually(lambda: loop.time() > went + SHORT_S, 60)
                await asyncio.to_thread(server.start)
                infos = [
                    await eventually(partial(state_of, client, one.descriptor, JobState.SUCCEEDED), 30)
                    for one in placed
                ]
    assert [info.progress for info in infos[:2]] == ["100 % done"] * 2
    assert sorted(begun) == ["loop", "moved", "moves", "snoozes", "snoozes", "thread"]
