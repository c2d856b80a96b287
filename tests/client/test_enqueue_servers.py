"""Clients that have servers for enqueues alone, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pinlater.client import AsyncClient, Client
from tests.client.test_following import QUEUE, Servers, TurnedClock, until, until_followed


async def test_enqueues_go_to_the_servers_for_enqueues_even_if_another_one_owns_the_queue() -> None:
    async with Servers("a", "b") as others, Servers("c", "d") as enqueues:
        enqueue_servers = list(enqueues.addresses)
        async with AsyncClient(others.addresses, enqueue_servers=enqueue_servers) as client:
            async with asyncio.timeout(10):
                in_a_row = 0
                while in_a_row < 5:
                    before = len(others.owner.called("dequeueJobs"))
                    await client.dequeue(QUEUE, wait_ms=1)
                    in_a_row = in_a_row + 1 if len(others.owner.called("dequeueJobs")) > before else 0
            for _ in range(30):
                await client.enqueue(QUEUE, [b"x"])
        assert [server.jobs for server in others.all] == [0, 0]
        assert sum(server.jobs for server in enqueues.all) == 30
        assert not any(server.called("dequeueJobs") or server.called("getQueueOwners") for server in enqueues.all)


async def test_a_synchronous_client_enqueues_at_the_servers_for_enqueues_too() -> None:
    async with Servers("a") as others, Servers("b") as enqueues:

        def work() -> None:
            with Client(others.addresses, enqueue_servers=enqueues.addresses) as client:
                client.enqueue(QUEUE, [b"x"])
                client.submit(client.enqueue_call(QUEUE, [b"x"])).result()
                client.dequeue(QUEUE)

        await asyncio.to_thread(work)
        assert (others.owner.jobs, enqueues.owner.jobs) == (0, 2)
        assert len(others.owner.called("dequeueJobs")) == 1


@pytest.mark.parametrize("face", [AsyncClient, Client])
async def test_without_any_server_for_enqueues_they_go_to_the_others_and_return_within_a_minute(
    face: type[AsyncClient | Client],
) -> None:
    clock = TurnedClock()
    async with Servers("a") as others, Servers("b", "c") as enqueues:
        client = face(others.addresses, enqueue_servers=enqueues.addresses, clock=clock)

        async def enqueue(times: int) -> None:
            for _ in range(times):
                call = client.enqueue_call(QUEUE, [b"x"])
                await asyncio.wrap_future(client.submit(call))

        if isinstance(client, AsyncClient):
            await client.open()
        await enqueue(10)
        assert others.owner.jobs == 0
        for server in enqueues.all:
            await server.stop()
        await enqueue(10)
        assert others.owner.jobs == 10
        for server in enqueues.all:
            await server.start()
        clock.ahead_s += 60
        await enqueue(10)
        assert others.owner.jobs == 10
        if isinstance(client, AsyncClient):
            await client.close()
        else:
            await asyncio.to_thread(client.close)


async def test_a_client_without_servers_for_enqueues_sends_them_to_the_owner() -> None:
    async with Servers("a", "b") as servers, AsyncClient(servers.addresses) as client:
        await until_followed(servers, client)


async def test_a_server_that_joins_the_file_of_servers_for_enqueues_gets_some(tmp_path: Path) -> None:
    listed, clock = tmp_path / "servers", TurnedClock()
    async with Servers("a") as others, Servers("b", "c") as enqueues:
        first, second = enqueues.all
        listed.write_text(first.address)
        async with AsyncClient(others.addresses, enqueue_servers=listed, clock=clock) as client:
            await client.enqueue(QUEUE, [b"x"])
            listed.write_text(second.address)
            clock.ahead_s += 2
            await until(lambda: bool(second.jobs), client)
        assert others.owner.jobs == 0


@pytest.mark.parametrize("servers", [None, "b:2"], ids=["without servers", "the same servers"])
async def test_the_servers_for_enqueues_in_the_environment_are_those_of_its_servers(
    servers: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Servers("a") as others, Servers("b") as enqueues:
        address = others.owner.address
        monkeypatch.setenv("PINLATER_SERVERS", address)
        monkeypatch.setenv("PINLATER_ENQUEUE_SERVERS", enqueues.owner.address)
        async with AsyncClient(servers and address) as client:
            await client.enqueue(QUEUE, [b"x"])
        assert (others.owner.jobs, enqueues.owner.jobs) == (0, 1)
        monkeypatch.setenv("PINLATER_SERVERS", "127.0.0.1:1")
        async with AsyncClient(address) as client:
            await client.enqueue(QUEUE, [b"x"])
        assert (others.owner.jobs, enqueues.owner.jobs) == (1, 1)


@pytest.mark.parametrize("face", [AsyncClient, Client])
def test_an_invalid_server_for_enqueues_is_refused(face: type[AsyncClient | Client]) -> None:
    with pytest.raises(ValueError, match="not a server address: 'b:port'"):
        face("a", enqueue_servers="b:port")
    with pytest.raises(ValueError, match="no server given"):
        face("a", enqueue_servers="")
