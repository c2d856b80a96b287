"""Workers over HTTP: of one server and of three."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from pinlater.client import Ack, AsyncClient, Claim, Job, WorkerInfo, WorkingProcess
from pinlater.client.errors import UnknownMethod
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from pinlater.console.endpoints import workers
from pinlater.domain.clock import ManualClock
from pinlater.server.features.workers.workers import Workers
from pinlater.server.main.core import Core
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.thrift.server import ThriftServer
from tests.assembly import listen, open_core
from tests.console.caller import Caller

PROCESS = WorkingProcess(7, WorkerInfo("python", "1.0", "host", 17, 16, 3, 1))


async def test_a_worker_is_told_with_its_jobs_and_what_it_says(
    caller: Caller, client: AsyncClient, clock: ManualClock
) -> None:
    [descriptor] = (await client.enqueue("mail", [b"x"])).descriptors
    await client.dequeue("mail", 1, process=PROCESS)
    clock.advance(seconds=2)
    answer = await caller.ok("GET", "/v1/workers")
    [worker] = answer.pop("workers")
    assert answer.pop("counted_ms") < 3_600_000  # the server has just started
    assert answer == {"total": 1, "running": 1, "looked_at": 1, "gaps": [], "incomplete": False}
    job = {"descriptor": descriptor, "queue": "mail", "for_ms": 2_000, "left_ms": 598_000}
    assert worker == {
        "source": "console",
        "trouble": "none",
        "reasons": [],
        "heard_ms": 2_000,
        "queues": ["mail"],
        "waiting": {},
        "holds": {"mail": 1},
        "longest": job,
        "next_end": job,
        "handed_out": 1,
        "timed_out": 0,
        "late": 0,
        "lost": [],
        "processes": [
            {
                "process": 7,
                "library": "python",
                "version": "1.0",
                "host": "host",
                "pid": 17,
                "concurrency": 16,
                "running": 3,
                "started_at_ms": 1,
                "heard_ms": 2_000,
                "said_ms": 2_000,
                "handed_out": 1,
            }
        ],
    }
    assert (await caller.ok("GET", "/v1/workers?queue=mail"))["total"] == 1
    assert (await caller.get("/v1/workers?queue=none")).status == 404


async def test_a_worker_that_is_heard_no_more_is_silent_and_its_claims_are_told(
    caller: Caller, client: AsyncClient, clock: ManualClock, core: Core
) -> None:
    [descriptor] = (await client.enqueue("mail", [Job(b"x", claim_timeout_ms=5_000)])).descriptors
    await client.dequeue("mail", 1, process=PROCESS)
    clock.advance(seconds=11)
    [worker] = (await caller.ok("GET", "/v1/workers"))["workers"]
    assert worker["trouble"] == "silent"
    assert worker["reasons"] == [
        "Not heard for 11s; it still holds 1 job",
        "The claim of 1 job should have ended 6s ago",
    ]
    await core.sweeps.time_out_claims()
    [worker] = (await caller.ok("GET", "/v1/workers"))["workers"]
    assert (worker["timed_out"], worker["holds"]) == (1, {})
    assert worker["reasons"] == ["Not heard for 11s", "1 claim timed out in the last 10 minutes"]
    assert worker["lost"] == [{"queue": "mail", "descriptor": descriptor, "ended_ms": 0}]
    clock.advance(seconds=60)
    [worker] = (await caller.ok("GET", "/v1/workers"))["workers"]
    assert worker["reasons"][1] == (
        f"Process 17 on host was last heard 1m 11s ago, before its claims timed out; this job may have killed it: {descriptor}"
    )


async def test_a_worker_that_is_heard_is_stuck_once_it_has_lost_claims_again_and_again(
    caller: Caller, client: AsyncClient, clock: ManualClock, core: Core
) -> None:
    """Once or twice, a server or a shard may have failed before the answer with the jobs reached it."""
    await client.create_queue("other")
    found = []
    for _ in range(3):
        await client.enqueue("mail", [Job(b"x", claim_timeout_ms=5_000, attempts_allowed=9)])
        await client.dequeue("mail", 1, process=PROCESS)
        clock.advance(seconds=61)
        await core.sweeps.time_out_claims()
        await client.dequeue("other", 1, process=PROCESS)
        [worker] = (await caller.ok("GET", "/v1/workers"))["workers"]
        found.append((worker["trouble"], worker["reasons"]))
    lost = "timed out in the last 10 minutes"
    assert found == [
        ("slow", [f"1 claim {lost}"]),
        ("slow", [f"2 claims {lost}"]),
        ("stuck", [f"3 claims {lost}; that happened 3 times in the last hour"]),
    ]


async def test_a_worker_that_repeats_an_answer_is_in_no_trouble(caller: Caller, client: AsyncClient) -> None:
    """The first one was carried out, and its own answer was lost."""
    await client.enqueue("mail", [Job(b"x", attempts_allowed=2)])
    [job] = (await client.dequeue("mail", 1, process=PROCESS)).jobs
    for _ in range(2):
        await client.ack("mail", [Ack(job.descriptor, succeeded=False, token=job.token)])
    [worker] = (await caller.ok("GET", "/v1/workers"))["workers"]
    assert (worker["late"], worker["timed_out"], worker["trouble"]) == (1, 0, "none")


async def test_a_server_that_knows_no_workers_is_a_gap(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_client: AsyncClient, *, everywhere: bool) -> None:
        raise UnknownMethod("The server doesn't know getWorkers")

    monkeypatch.setattr(AsyncClient, "workers", refused)
    answer = await caller.ok("GET", "/v1/workers")
    assert answer["incomplete"]
    assert "doesn't know getWorkers" in answer["gaps"][0]


async def test_the_answer_is_bounded(caller: Caller, client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WORKERS_MAX", 3)
    for number in range(5):
        await client.dequeue("mail", 1, process=WorkingProcess(number + 1))
    assert (await caller.ok("GET", "/v1/workers"))["total"] == 1  # processes of one source
    async with AsyncExitStack() as stack:
        for number in range(5):
            address = str(client.servers[0])
            one = await stack.enter_async_context(AsyncClient(address, source=f"w{number}", wait_for_servers=False))
            await one.dequeue("mail", 1)
    answer = await caller.ok("GET", "/v1/workers")
    assert (len(answer["workers"]), answer["total"]) == (3, 6)


# --- several servers ------------------------------------------------------------------------------------------------------


@dataclass
class ThreeServers:
    """Each has a shard of its own: to a client that merges their lists, they are like servers that share shards."""

    caller: Caller
    client: AsyncClient
    cores: list[Core]
    servers: list[ThriftServer]

    @contextlib.asynccontextmanager
    async def worker(self, server: int, source: str) -> AsyncIterator[AsyncClient]:
        address = f"127.0.0.1:{self.servers[server].port}"
        async with AsyncClient(address, source=source, wait_for_servers=False) as client:
            yield client

    async def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.caller.ok("GET", "/v1/workers")
        return found


@pytest_asyncio.fixture
async def three(clock: ManualClock) -> AsyncIterator[ThreeServers]:
    cores = [await open_core(MemoryShard(), clock=clock, random=Random(number)) for number in range(3)]
    servers = []
    for core in cores:
        await core.service.queues.create_queue("mail")
        servers.append(await listen(core))
    addresses = [f"127.0.0.1:{server.port}" for server in servers]
    async with AsyncClient(addresses, source="console", wait_for_servers=False) as client:
        yield ThreeServers(Caller(Console(client, clock.now_ms, LOOPBACK_NAMES).app), client, cores, servers)
    for server, core in zip(servers, cores, strict=True):
        await server.drain(0)
        await core.close()


async def test_what_three_servers_know_is_put_together(three: ThreeServers, clock: ManualClock) -> None:
    """A worker that asked one server and asks another now, and one that only the third server knows."""
    for number, source in ((0, "w"), (1, "w"), (2, "other")):
        async with three.worker(number, source) as client:
            await client.enqueue("mail", [b"x", b"y"])
            await client.dequeue("mail", 2, process=PROCESS)
        clock.advance(seconds=5)
    answer = await three.answer()
    found = {worker["source"]: worker for worker in answer["workers"]}
    assert answer["gaps"] == []
    assert (found["w"]["handed_out"], found["w"]["heard_ms"]) == (4, 10_000)
    assert [each["process"] for each in found["w"]["processes"]] == [7]
    assert (found["other"]["handed_out"], found["other"]["heard_ms"]) == (2, 5_000)


async def test_a_restarted_worker_does_not_take_over_the_numbers_of_the_one_before(
    three: ThreeServers, clock: ManualClock
) -> None:
    """It has the same source and gets to another server."""
    async with three.worker(0, "w") as client:
        await client.enqueue("mail", [b"x"])
        await client.dequeue("mail", 1, process=PROCESS)
    clock.advance(seconds=30)
    again = WorkingProcess(8, WorkerInfo("python", "1.1", "host", 17, 16, 0, clock.now_ms()))
    async with three.worker(1, "w") as client:
        await client.dequeue("mail", 1, process=again)
    [worker] = (await three.answer())["workers"]
    fields = ("process", "version", "running", "handed_out", "heard_ms")
    assert [tuple(each[name] for name in fields) for each in worker["processes"]] == [
        (8, "1.1", 0, 0, 0),
        (7, "1.0", 3, 1, 30_000),
    ]


async def test_an_unreachable_server_is_named_and_no_worker_is_called_silent(
    three: ThreeServers, clock: ManualClock
) -> None:
    async with three.worker(0, "w") as client:
        await client.enqueue("mail", [Job(b"x", claim_timeout_ms=60_000)])
        [job] = (await client.dequeue("mail", 1, process=PROCESS)).jobs
        clock.advance(seconds=59)
        await client.heartbeat("mail", [Claim(job.descriptor, job.token)])
    gone = f"127.0.0.1:{three.servers[2].port}"
    await three.servers[2].drain(0)
    clock.advance(seconds=30)
    answer = await three.answer()
    [gap] = answer["gaps"]
    assert gap.startswith(f"{gone} does not answer: ")
    assert answer["incomplete"]
    assert [worker["trouble"] for worker in answer["workers"]] == ["none"]


async def test_50_000_sources_leave_a_bounded_answer_that_says_what_it_lacks(
    three: ThreeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pinlater.server.operations.values import Caller as WorkerCaller

    registry = three.cores[0].service.of(Workers).registry
    for number in range(50_000):
        registry.asked(WorkerCaller(f"hostile {number} " + "x" * 200, process=1), "mail")
    answer = await three.answer()
    assert (len(answer["workers"]), answer["total"]) == (workers.WORKERS_MAX, 2_000)
    [gap] = answer["gaps"]
    assert "gave up workers 48,000 times" in gap
