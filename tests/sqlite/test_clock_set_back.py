"""A clock that was set back between two runs: times stay what they are, ids go on, and the server says why jobs wait."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from pinlater.client import Ack, AsyncClient
from pinlater.domain.clock import SystemClock
from pinlater.domain.job import JobState
from pinlater.server.config.load import load
from pinlater.server.main.app import App


@pytest.mark.parametrize("how", ["delete", "collect"])
async def test_ids_do_not_repeat_though_the_clock_was_set_back_and_the_jobs_are_gone(tmp_path: Path, how: str) -> None:
    flags = {"store": f"sqlite:{tmp_path}/jobs.db", "thrift.port": 0, "http.port": 0, "jobs.succeeded_ttl_ms": 1}
    flags |= {"maintenance.garbage_interval_ms": 10}
    given: list[int] = []
    moment = time.time()
    for behind_s in (0, 3_600, 7_200):
        clock = SystemClock(wall=lambda behind_s=behind_s: moment - behind_s)  # type: ignore[misc]
        app = App(load(None, {}, flags).settings, clock=clock)
        await app.start()
        async with AsyncClient(f"127.0.0.1:{app.thrift.port}") as client:
            await client.create_queue("q")
            enqueued = (await client.enqueue("q", [b"x"] * 50)).descriptors
            if how == "delete":
                assert await client.delete_jobs_by_descriptor("q", enqueued) == 50
            else:
                jobs = (await client.dequeue("q", 50)).jobs
                await client.ack("q", [Ack(job.descriptor) for job in jobs])
                async with asyncio.timeout(60):
                    while await client.lookup(enqueued):
                        await asyncio.sleep(0.01)
        given += [int(descriptor.rpartition(":")[2]) for descriptor in enqueued]
        await app.stop(1)
    assert len(set(given)) == 150
    assert given == sorted(given)


@pytest.mark.parametrize("set_back_s", [3_600, 0])
async def test_a_restart_with_the_clock_set_back_is_said_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, set_back_s: int
) -> None:
    flags = {"store": f"sqlite:{tmp_path}/jobs.db", "thrift.port": 0, "http.port": 0}
    descriptors: list[str] = []
    handed_out: list[str] = []
    for behind_s in (0, set_back_s):
        clock = SystemClock(wall=lambda behind_s=behind_s: time.time() - behind_s)  # type: ignore[misc]
        app = App(load(None, {}, flags).settings, clock=clock)
        await app.start()
        async with AsyncClient(f"127.0.0.1:{app.thrift.port}") as client:
            await client.create_queue("q")
            descriptors += (await client.enqueue("q", [b"x"])).descriptors
            if len(descriptors) == 2:
                handed_out += [job.descriptor for job in (await client.dequeue("q", 10)).jobs]
                waiting = await client.count("q", JobState.PENDING, future=True)
        await app.stop(1)
    ids = [int(descriptor.rpartition(":")[2]) for descriptor in descriptors]
    assert ids[0] < ids[1]
    assert ("the clock was set back" in caplog.text) is bool(set_back_s)
    assert handed_out == (descriptors[1:] if set_back_s else descriptors)
    assert waiting == (1 if set_back_s else 0)
