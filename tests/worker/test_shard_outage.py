"""Jobs of a worker that enqueue others with unique keys while a shard of the server in this process is unreachable."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from functools import partial
from unittest.mock import patch

import pytest

from pinlater.client import AsyncClient, JobState
from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.main.core import Core
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.wire.generated.structs import Enqueued, EnqueueRequest
from pinlater.worker import WorkerSettings
from tests.assembly import listen, open_core
from tests.sharding.faulty import FaultyShard
from tests.worker import chain_tasks
from tests.worker.conftest import eventually
from tests.worker.test_worker import state_of

_LOOK_S = 0.02
_PROBED_OFTEN = ShardingSettings(probe_interval_ms=20, probe_interval_max_ms=20)
_CHAINS = (chain_tasks.chain_on_loop, chain_tasks.chain_in_thread, chain_tasks.chain_in_process)
_KEYS = {chain_tasks.LOOP, chain_tasks.THREAD, chain_tasks.PROCESS}


class Refusals:
    """The request keys of refused enqueues, by the unique key of their job. A request that is made after a deadline has another one."""

    def __init__(self, core: Core) -> None:
        self.request_keys: dict[str, set[str]] = defaultdict(set)
        self._enqueue = core.service.enqueuing.enqueue

    async def enqueue(self, asked: EnqueueRequest, arrived_s: float | None = None) -> Enqueued:
        try:
            return await self._enqueue(asked, arrived_s)
        except ShardConnectionFailed:
            if asked.jobs[0].unique_key:
                self.request_keys[asked.jobs[0].unique_key].add(asked.request_key or "")
            raise

    def outlasted_deadlines(self) -> bool:
        return self.request_keys.keys() == _KEYS and all(len(keys) > 1 for keys in self.request_keys.values())


async def look_often(core: Core) -> None:
    while True:
        await core.shard_monitor.look()
        await core.shards.unique.learn(list(core.shards))
        await asyncio.sleep(_LOOK_S)


@contextlib.asynccontextmanager
async def serving(*stores: FaultyShard) -> AsyncIterator[tuple[str, Refusals]]:
    """The address of a server on these shards, and what it refuses."""
    core = await open_core(*(store.as_shard() for store in stores), clock=SystemClock(), sharding=_PROBED_OFTEN)
    server = await listen(core)
    refusals = Refusals(core)
    looking = asyncio.create_task(look_often(core))
    try:
        with patch.object(core.service.enqueuing, "enqueue", refusals.enqueue):
            yield f"127.0.0.1:{server.port}", refusals
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        await server.drain(1)
        await core.close()


@pytest.mark.thorough  # seconds, with a child process
async def test_an_outage_costs_jobs_that_enqueue_with_unique_keys_no_attempt() -> None:
    """A coroutine, a thread and a child process, each with one attempt, wait longer than a call of their client. The server was started
    without the shard, so it refuses all unique keys."""
    away = FaultyShard(MemoryShard("2"))
    away.dead = "connection refused"
    async with (
        serving(FaultyShard(MemoryShard("1")), away) as (address, refusals),
        AsyncClient(address) as client,
        AsyncClient(address, timeout_ms=1_000) as impatient,  # the one of the child process has ten seconds
    ):
        await client.create_queue("chains")
        await client.create_queue("links")
        jobs = [chain.job() for chain in _CHAINS]
        chains = (await client.enqueue("chains", jobs)).descriptors
        worker = chain_tasks.worker
        settings = WorkerSettings(concurrency=4, backoff_first_ms=10, backoff_max_ms=50)
        running = asyncio.create_task(worker.run_async(client=impatient, settings=settings))
        try:
            await eventually(refusals.outlasted_deadlines, timeout_s=90)
            away.dead = None
            for descriptor in chains:
                await eventually(partial(state_of, client, descriptor, JobState.SUCCEEDED))
            await eventually(lambda: worker.counts.succeeded == len(_CHAINS) + len(_KEYS))
        finally:
            worker.request_stop()
            await asyncio.wait_for(running, 30)
    assert (worker.counts.failed, worker.counts.lost) == (0, 0)
