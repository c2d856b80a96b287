"""What a recovery waits for, without servers and databases."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import cast

import pytest

from pinlater.domain.slices import SLICES, slice_of
from tests.faults.load import QUEUES, SteadyLoad
from tests.faults.recovery import CoreWaits, served_after

SHARDS = ("1", "3")
SERVERS = ("a:9010", "b:9010")


class FakeLoad:
    """A load whose jobs are done at once, but for those of `unserved`: a queue, a shard and a server."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.unserved: tuple[str, str, str] | None = None
        self.asked = asyncio.Event()
        self.workers: list[asyncio.Event] = []

    def begin_work(self, queue: str, server: str, over: asyncio.Event) -> None:
        del queue, server
        self.workers.append(over)

    def begin_put(self, queue: str, shard: str, server: str) -> asyncio.Task[Sequence[str]]:
        async def put() -> Sequence[str]:
            name = f"{queue}:s{shard}:p1:{server}"
            if self.unserved == (queue, shard, server):
                self.asked.set()
            else:
                self.done.add(name)
            return [name]

        return asyncio.ensure_future(put())


def test_the_queues_of_the_load_are_in_different_slices() -> None:
    assert len({slice_of(queue) for queue in QUEUES}) == len(QUEUES) == 5 <= SLICES


@pytest.mark.parametrize("queue", QUEUES)
async def test_each_queue_has_to_be_served_on_each_shard_by_each_server(queue: str) -> None:
    load = FakeLoad()
    load.unserved = queue, SHARDS[1], SERVERS[1]
    waits = asyncio.ensure_future(served_after(cast("SteadyLoad", load), SERVERS, SHARDS))
    await load.asked.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waits.done()
    load.unserved = None
    load.done.add(f"{queue}:s{SHARDS[1]}:p1:{SERVERS[1]}")
    served_s = await waits
    assert served_s.keys() == set(QUEUES)
    assert all(over.is_set() for over in load.workers)
    assert len(load.workers) == len(QUEUES) * len(SERVERS)


def test_a_thread_that_finds_no_core_is_seen() -> None:
    """Two processes on one core: each waits while the other runs."""
    cores = os.sched_getaffinity(0)
    waits = CoreWaits([os.getpid()])
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            for process in (0, other.pid):
                os.sched_setaffinity(process, {min(cores)})
            ends_at = time.monotonic() + 30.0
            while waits.longest_s() < 0.05:
                assert time.monotonic() < ends_at
        finally:
            other.kill()
            os.sched_setaffinity(0, cores)
