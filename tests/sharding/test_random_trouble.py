"""Random faults, outages and changes of the map and of partitions under a load of keyed and unique enqueues: nothing is lost or doubled.

Each seed is one history on a turned clock, the same in each run. Producers send again as clients do, as repeats, until they are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random

import pytest

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.domain.job import JobState
from pinlater.domain.queue import QueueConfig
from pinlater.server.storage.commands import ClaimJobs, FindRequests, FindUnique, FinishJobs, InsertJobs
from pinlater.wire.generated.structs import ScanRequest
from tests.sharding.sharded_server import ShardedServer, run_on_shards

NAMES = "1234"
STEPS = 60
_METHODS = (
    InsertJobs,
    InsertJobs,
    InsertJobs,
    ClaimJobs,
    FinishJobs,
    FindRequests,
    FindUnique,
    "ping",
)


class TroubleHistory:
    """What was sent, what was answered, and the trouble meanwhile."""

    def __init__(self, server: ShardedServer, seed: int) -> None:
        self.server = server
        self.random = Random(seed)
        self.answered: dict[bytes, str] = {}
        self.unique: dict[str, set[str]] = {}
        self.acked: set[str] = set()
        self.over = False
        self._numbers = iter(range(10**6))

    async def produce(self) -> None:
        """One keyed request, until it is answered."""
        body = b"%d" % next(self._numbers)
        repeat = False
        while True:
            try:
                enqueued = await self.server.enqueue(body, key=body.decode(), repeat=repeat)
            except PinLaterError:
                repeat = True
                await asyncio.sleep(0.3)
            else:
                self.answered[body] = enqueued.descriptors[0]
                return

    async def produce_unique(self) -> None:
        """One job under a key that others use too; without a request key, for the unique key is one."""
        key = f"u{self.random.randrange(30)}"
        while True:
            try:
                enqueued = await self.server.enqueue(b"unique " + key.encode(), unique=key)
            except PinLaterError:
                await asyncio.sleep(0.3)
            else:
                self.unique.setdefault(key, set()).add(enqueued.descriptors[0])
                return

    async def consume(self) -> None:
        """Takes and acks what isn't unique, so that unique keys stay taken."""
        while not self.over:
            try:
                jobs = (await self.server.dequeue(3, wait_ms=500)).jobs
            except PinLaterError:
                await asyncio.sleep(0.2)
                continue
            for job in jobs:
                if not job.job.body.startswith(b"unique"):
                    await self._ack(job.descriptor)

    async def _ack(self, descriptor: str) -> None:
        while True:
            try:
                await self.server.ack(descriptor)
            except PinLaterError:
                await asyncio.sleep(0.2)
            else:
                assert descriptor not in self.acked
                self.acked.add(descriptor)
                return

    async def trouble(self) -> None:
        """One thing goes wrong, or is repaired."""
        server, random = self.server, self.random
        store = server.store(random.choice(NAMES))
        match random.randrange(10):
            case 0:
                store.dead = None if store.dead else "gone"
            case 1 | 2:
                store.fails(random.choice(_METHODS))
            case 3:
                store.fails(InsertJobs, error=OutcomeUnknown("lost"), done_first=random.random() < 0.5)
            case 4 | 5:
                done_first = random.random() < 0.5
                cut = OutcomeUnknown("cut") if done_first else ShardConnectionFailed("cut")
                error = cut if random.random() < 0.3 else None
                fault = store.hangs(random.choice(_METHODS), error=error, done_first=done_first)
                asyncio.get_running_loop().call_later(random.uniform(0.1, 15), fault.release)
            case 6:
                drained = random.choice(NAMES)
                change = server.replace(*[server.desired(name, takes_enqueues=name != drained) for name in NAMES])
                await server.within(30_000, change)
            case 7:
                for each in server.stores.values():
                    each.dead = None
            case 8:
                config = QueueConfig(partitions=random.randint(1, 3))
                with contextlib.suppress(PinLaterError):  # stored on some shards, or on none
                    await server.within(30_000, server.service.queues.configure_queue("q", config))
            case 9:
                with contextlib.suppress(PinLaterError):
                    await server.within(30_000, server.count())


async def stored(server: ShardedServer) -> Counter[bytes]:
    """All jobs on all shards, by body."""
    found: list[bytes] = []
    for state in JobState:
        for future in (False, True) if state is JobState.PENDING else (False,):
            scanned = await server.service.job_queries.scan(
                ScanRequest("q", state, future=future, limit=10_000, bodies=True)
            )
            found += [job.body or b"" for job in scanned.jobs]
    return Counter(found)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_or_doubled_whatever_goes_wrong(seed: int) -> None:
    async def scenario(server: ShardedServer) -> None:
        history = TroubleHistory(server, seed)
        consumers = [asyncio.ensure_future(history.consume()) for _ in range(3)]
        producers = []
        for _ in range(STEPS):
            producers += [asyncio.ensure_future(history.produce()) for _ in range(history.random.randrange(4))]
            producers += [asyncio.ensure_future(history.produce_unique()) for _ in range(history.random.randrange(2))]
            await history.trouble()
            await server.pass_time(history.random.randrange(100, 1_500))
        for store in server.stores.values():
            store.recover()
        await server.pass_time(30_000)
        assert all(task.done() for task in producers)
        await asyncio.gather(*producers)
        server.clock.advance(seconds=601)  # claims whose answer was lost time out
        await server.core.sweeps.time_out_claims()
        await server.pass_time(5_000)
        history.over = True
        await server.pass_time(10_000)
        await asyncio.gather(*consumers)

        jobs = await stored(server)
        plain = {body: number for body, number in jobs.items() if not body.startswith(b"unique")}
        assert {body: number for body, number in plain.items() if number != 1} == {}
        assert set(plain) == set(history.answered)
        assert set(history.answered.values()) == history.acked
        assert {key: names for key, names in history.unique.items() if len(names) != 1} == {}
        assert {key: jobs[b"unique " + key.encode()] for key in history.unique} == dict.fromkeys(history.unique, 1)

    run_on_shards(scenario, shards=NAMES)
