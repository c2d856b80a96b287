"""Clients that send their calls to the owner of a queue: against servers that say who that is, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import pytest

from pinlater.client import AsyncClient, Client
from pinlater.client.errors import ConnectionLost
from pinlater.domain.clock import SystemClock
from pinlater.domain.slices import SLICES
from tests import structs as types
from tests.client.fake_server import FakeServer

QUEUE = "emails"
INFO = types.ServerInfo("1", [], "memory", 1, 2, 3, 4, 5, 6, 7, 8)


class TurnedClock(SystemClock):
    """The system's, but a test may turn it forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        system = SystemClock()
        super().__init__(monotonic=lambda: system.monotonic() + self.ahead_s)


class OwningServer(FakeServer):
    """Answers enqueues and dequeues, and says who owns all queues."""

    def __init__(self, name: str, cluster: Servers) -> None:
        super().__init__(
            enqueueJobs=lambda _: types.Enqueued(["emails:s1:p1:1"]),
            dequeueJobs=lambda _: types.DequeueResponse(),
            ackJobs=lambda call: [types.AckResult(each.descriptor, 0) for each in call.request.succeeded],
            getServerInfo=self.info,
            getQueueOwners=lambda _: cluster.owners(),
        )
        self.name = name
        self.advertised = ""

    def info(self, call: Any) -> types.ServerInfo:
        del call
        return types.ServerInfo(
            **{**{name: getattr(INFO, name) for name in INFO.__struct_fields__}, "server_id": self.name}
        )

    @property
    def jobs(self) -> int:
        """How many enqueues it has got."""
        return len(self.called("enqueueJobs"))


class Servers:
    """Running servers. `owner` owns all queues on the one shard."""

    def __init__(self, *names: str) -> None:
        self.all = [OwningServer(name, self) for name in names]
        self.owner = self.all[-1]
        self._running = AsyncExitStack()

    @property
    def addresses(self) -> Sequence[str]:
        return [server.address for server in self.all]

    def owners(self) -> types.QueueOwners:
        servers = [types.OwningServer(server.name, server.advertised or server.address) for server in self.all]
        place = self.all.index(self.owner)
        return types.QueueOwners(servers, [types.OwnedShard("1", True, [place] * SLICES)])

    async def __aenter__(self) -> Self:
        for server in self.all:
            await self._running.enter_async_context(server)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()


async def until(found: Callable[[], bool], client: AsyncClient | None = None) -> None:
    """Makes calls until something is so."""
    async with asyncio.timeout(10):
        while not found():
            if client is not None:
                await client.enqueue(QUEUE, [b"x"])
            await asyncio.sleep(0.005)


async def until_followed(servers: Servers, client: AsyncClient) -> None:
    """Makes calls until several in a row went to the owner."""
    async with asyncio.timeout(10):
        while True:
            before = servers.owner.jobs
            for _ in range(3):
                await client.enqueue(QUEUE, [b"x"])
            if servers.owner.jobs == before + 3:
                return
            await asyncio.sleep(0.005)


async def test_calls_go_to_the_owner_and_follow_when_it_moves() -> None:
    clock = TurnedClock()
    async with Servers("a", "b", "c") as servers, AsyncClient(servers.addresses, clock=clock) as client:
        await until_followed(servers, client)
        for server in (servers.all[0], servers.all[1]):
            servers.owner = server
            clock.ahead_s += 30
            await until_followed(servers, client)
        others = [server.jobs for server in servers.all if server is not servers.owner]
        for _ in range(20):
            await client.enqueue(QUEUE, [b"x"])
        assert [server.jobs for server in servers.all if server is not servers.owner] == others


async def test_long_polls_and_acks_go_to_the_owner_too() -> None:
    async with Servers("a", "b", "c") as servers, AsyncClient(servers.addresses) as client:
        await until_followed(servers, client)
        for _ in range(5):
            await client.dequeue(QUEUE, wait_ms=1)
            await client.ack(QUEUE, [])
        for method in ("dequeueJobs", "ackJobs"):
            assert [len(server.called(method)) for server in servers.all] == [0, 0, 5]


async def test_a_synchronous_client_follows() -> None:
    async with Servers("a", "b", "c") as servers:

        def work() -> None:
            with Client(servers.addresses) as client:
                in_a_row = 0
                while in_a_row < 5:
                    before = servers.owner.jobs
                    client.enqueue(QUEUE, [b"x"])
                    in_a_row = in_a_row + 1 if servers.owner.jobs > before else 0

        async with asyncio.timeout(10):
            await asyncio.to_thread(work)


async def test_no_call_waits_for_what_is_asked_about_owners() -> None:
    async with Servers("a", "b", "c") as servers:
        asked = asyncio.Event()

        async def hang(_: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        for server in servers.all:
            server.methods["getServerInfo"] = hang
        async with AsyncClient(servers.addresses, request_keys=False) as client, asyncio.timeout(5):
            await until(asked.is_set, client)
            for _ in range(10):
                await client.enqueue(QUEUE, [b"x"])


async def test_a_client_of_one_server_asks_nothing_unless_told_to_follow() -> None:
    async with Servers("a", "b") as servers:
        async with AsyncClient(servers.all[0].address) as client:
            for _ in range(20):
                await client.enqueue(QUEUE, [b"x"])
        async with AsyncClient(servers.addresses, follow_owners=False) as client:
            for _ in range(20):
                await client.enqueue(QUEUE, [b"x"])
        assert [server.called("getQueueOwners") for server in servers.all] == [[], []]
        async with AsyncClient(servers.all[0].address, follow_owners=True) as client:
            await until_followed(servers, client)


async def test_no_server_gets_the_token_before_it_has_said_who_it_is() -> None:
    async with Servers("a", "b") as servers:
        [listed, owner] = servers.all
        async with AsyncClient(listed.address, follow_owners=True, token="secret") as client:
            await until_followed(servers, client)
        assert {call.context.auth_token for call in listed.called("getQueueOwners")} == {"secret"}
        assert next(call.context.auth_token for call in owner.called("getServerInfo")) == ""
        owner.name = "another"
        calls = len(owner.calls)
        async with AsyncClient(listed.address, follow_owners=True, token="secret") as client:
            servers.owners = lambda: types.QueueOwners(  # type: ignore[method-assign]
                [types.OwningServer("b", owner.address)], [types.OwnedShard("1", True, [0] * SLICES)]
            )
            await until(lambda: len(owner.calls) > calls, client)
            for _ in range(10):
                await client.enqueue(QUEUE, [b"x"])
        later = owner.calls[calls:]
        assert {method for method, _ in later} == {"getServerInfo"}
        assert {call.context.auth_token for _, call in later} == {""}


async def test_servers_that_lack_the_method_are_asked_once_each() -> None:
    clock = TurnedClock()
    async with Servers("a", "b") as servers, AsyncClient(servers.addresses, clock=clock) as client:
        for server in servers.all:
            del server.methods["getQueueOwners"]
        for _ in range(10):
            for _ in range(10):
                await client.enqueue(QUEUE, [b"x"])
            clock.ahead_s += 26
        assert [len(server.called("getQueueOwners")) for server in servers.all] == [1, 1]
        assert sum(server.jobs for server in servers.all) == 100


async def test_an_owner_that_stops_costs_no_call_and_is_used_again_once_it_is_back() -> None:
    clock = TurnedClock()
    async with Servers("a", "b", "c") as servers, AsyncClient(servers.addresses, clock=clock) as client:
        await until_followed(servers, client)
        await servers.owner.stop()
        for _ in range(20):
            await client.enqueue(QUEUE, [b"x"])
        servers.owner.name = "c again"
        await servers.owner.start()
        clock.ahead_s += 70
        await until_followed(servers, client)


async def test_an_owner_that_breaks_off_gets_no_repeat_of_the_call() -> None:
    async with Servers("a", "b", "c") as servers, AsyncClient(servers.addresses) as client:
        await until_followed(servers, client)
        got = servers.owner.jobs
        servers.owner.methods["enqueueJobs"] = lambda _: FakeServer.HANG_UP
        await client.enqueue(QUEUE, [b"x"], request_key="k")
        assert servers.owner.jobs == got + 1
        keyed = [
            (server.name, bool(call.request.repeated))
            for server in servers.all
            for call in server.called("enqueueJobs")
            if call.request.request_key == "k"
        ]
        assert max(keyed) == ("c", False)
        assert [repeat for name, repeat in keyed if name != "c"] == [True]
        servers.owner.methods["dequeueJobs"] = lambda _: FakeServer.HANG_UP
        await client.dequeue(QUEUE)  # goes elsewhere meanwhile


async def test_a_lost_dequeue_is_not_made_again() -> None:
    async with Servers("a", "b", "c") as servers, AsyncClient(servers.addresses) as client:
        await until_followed(servers, client)
        servers.owner.methods["dequeueJobs"] = lambda _: FakeServer.HANG_UP
        with pytest.raises(ConnectionLost):
            await client.dequeue(QUEUE)
        assert sum(len(server.called("dequeueJobs")) for server in servers.all) == 1


async def test_an_owner_that_hangs_leaves_time_for_another_server_and_gets_no_more_calls() -> None:
    async with Servers("a", "b") as servers:
        listed, owner = servers.all
        async with AsyncClient(listed.address, follow_owners=True, timeout_ms=600) as client:
            await until_followed(servers, client)

            async def hang(_: Any) -> Any:
                await asyncio.Event().wait()

            owner.methods.update(enqueueJobs=hang, getServerInfo=hang)
            jobs = owner.jobs
            for _ in range(20):
                await client.enqueue(QUEUE, [b"x"])
            assert owner.jobs == jobs + 1


async def test_an_address_without_an_answer_delays_no_call() -> None:
    """Servers may be behind a network that only they can cross."""
    async with Servers("a", "b") as servers:
        gone = FakeServer()
        async with gone:
            pass
        servers.owner.advertised = gone.address
        async with AsyncClient(servers.all[0].address, follow_owners=True) as client:
            for _ in range(50):
                await client.enqueue(QUEUE, [b"x"])
                await asyncio.sleep(0)
        assert (servers.all[0].jobs, servers.owner.jobs) == (50, 0)


async def test_an_owner_that_announces_another_address_is_found_in_the_list() -> None:
    async with Servers("a", "b", "c") as servers, AsyncClient(servers.addresses) as client:
        servers.owner.advertised = "192.0.2.1:9010"  # not routable from here
        await until_followed(servers, client)


async def test_a_refused_token_is_no_reason_to_follow_or_to_fail() -> None:
    async with Servers("a", "b") as servers, AsyncClient(servers.addresses) as client:

        def refuse(_: Any) -> Any:
            raise types.PinLaterException(500, "no role allows it", "ACCESS_DENIED", False, None)

        for server in servers.all:
            server.methods["getQueueOwners"] = refuse
        for _ in range(30):
            await client.enqueue(QUEUE, [b"x"])
        assert max(len(server.called("getQueueOwners")) for server in servers.all) <= 1
