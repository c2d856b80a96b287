"""Wakes between servers, over real sockets on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from pinlater.server.dispatch import wake_datagrams
from pinlater.server.dispatch.interest import bit_of
from pinlater.server.dispatch.wake_datagrams import Wakes
from tests.databases.ports import free_port

SECRET = b"known to all servers"
WAIT_S = 30.0


class ListeningServer:
    """A server that listens, and what it heard."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.past_owner: list[str] = []
        self.wakes = Wakes(self.hear)
        self.port = 0

    def hear(self, queue: str, jobs: int, past_owner: bool) -> None:
        self.heard.put_nowait((queue, jobs))
        if past_owner:
            self.past_owner.append(queue)

    async def next(self) -> tuple[str, int]:
        return await asyncio.wait_for(self.heard.get(), WAIT_S)

    async def total(self, jobs: int) -> dict[str, int]:
        """The jobs announced for each queue, once they add up to this number."""
        told: dict[str, int] = {}
        while sum(told.values()) < jobs:
            queue, more = await self.next()
            told[queue] = told.get(queue, 0) + more
        return told


@contextlib.asynccontextmanager
async def servers(count: int, secret: bytes = SECRET) -> AsyncIterator[list[ListeningServer]]:
    listening = [ListeningServer() for _ in range(count)]
    for server in listening:
        server.port = await server.wakes.open("127.0.0.1")
    for server in listening:
        server.wakes.know([secret], {("127.0.0.1", other.port): secret for other in listening if other is not server})
    try:
        yield listening
    finally:
        for server in listening:
            server.wakes.close()


async def test_all_others_are_woken() -> None:
    async with servers(3) as (one, two, three):
        one.wakes.tell("emails", 2)
        assert await two.next() == ("emails", 2)
        assert await three.next() == ("emails", 2)
        assert one.heard.empty()


async def test_a_wake_says_whether_the_owner_knows_of_the_jobs() -> None:
    async with servers(2) as (one, two):
        one.wakes.tell("first", 1)  # sent at once; the others share a datagram
        one.wakes.tell("known", 1)
        one.wakes.tell("mixed", 1)
        one.wakes.tell("mixed", 2, past_owner=True)
        assert await two.total(5) == {"first": 1, "known": 1, "mixed": 3}
        assert two.past_owner == ["mixed"]


async def test_a_server_is_woken_only_for_queues_that_its_dequeues_wait_for() -> None:
    async with servers(3) as (one, two, three):
        one.wakes.know_waits(("127.0.0.1", two.port), bit_of("emails"))
        one.wakes.know_waits(("127.0.0.1", three.port), 0)
        one.wakes.tell("other", 1)
        one.wakes.tell("emails", 2)
        assert await two.next() == ("emails", 2)
        assert one.wakes.sent == 1
        one.wakes.know_waits(("127.0.0.1", three.port), None)  # it is not connected any more
        one.wakes.tell("third", 3)
        assert dict([await three.next() for _ in range(3)]) == {"other": 1, "emails": 2, "third": 3}


async def test_a_server_that_says_late_that_it_waits_is_woken_for_jobs_that_came_meanwhile() -> None:
    async with servers(2) as (one, two):
        there = ("127.0.0.1", two.port)
        one.wakes.know_waits(there, 0)
        one.wakes.tell("emails", 2)
        one.wakes.tell("other", 1)
        one.wakes.tell("emails", 1)
        assert one.wakes.sent == 0
        one.wakes.know_waits(there, bit_of("emails"))
        assert await two.next() == ("emails", 3)
        one.wakes.know_waits(there, bit_of("emails") | bit_of("third"))
        one.wakes.tell("third", 1)
        assert await two.next() == ("third", 1)  # and nothing again of emails


async def test_jobs_that_came_long_before_a_server_waits_wake_it_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_datagrams, "_NEW_S", 0.0)
    async with servers(2) as (one, two):
        one.wakes.know_waits(("127.0.0.1", two.port), 0)
        one.wakes.tell("emails", 2)
        one.wakes.know_waits(("127.0.0.1", two.port), bit_of("emails"))
        one.wakes.tell("emails", 1)
        assert await two.next() == ("emails", 1)


async def test_wakes_of_one_moment_share_datagrams() -> None:
    """A thousand enqueues in one moment are a few datagrams, and none of their jobs is forgotten."""
    async with servers(2) as (one, two):
        for number in range(1000):
            one.wakes.tell(f"queue{number % 3}", 1)
        assert await two.total(1000) == {"queue0": 334, "queue1": 333, "queue2": 333}
        assert one.wakes.sent <= 3


async def test_many_queues_are_several_datagrams() -> None:
    async with servers(2) as (one, two):
        names = [f"q{'x' * 60}{number}" for number in range(200)]
        one.wakes.tell("first", 1)
        for name in names:
            one.wakes.tell(name, 1)
        assert set(await two.total(201)) == {"first", *names}
        assert one.wakes.sent > 2


async def test_a_wake_names_queues_and_how_many_jobs_and_nothing_else() -> None:
    """After sixteen bytes of signature: a listener on the network learns no data."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        async with servers(1) as (one,):
            one.wakes.know([SECRET], {listener.getsockname(): SECRET})
            one.wakes.tell("emails", 2)
            datagram = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(listener, 65_536), WAIT_S)
    assert datagram[16:] == b'{"emails":2}'
    assert datagram[:16] == hmac.digest(SECRET, datagram[16:], "sha256")[:16]


async def test_an_invalid_datagram_wakes_no_waiter() -> None:
    """Without the secret, cut short, or no datagram of ours at all: counted and dropped."""
    async with servers(2) as (one, two), servers(1, b"another secret") as (outsider,):
        outsider.wakes.know([], {("127.0.0.1", two.port): b"another secret"})
        outsider.wakes.tell("emails", 1)
        for data in (b"", b"x" * 10, b"x" * 2000):
            two.wakes.datagram_received(data, ("127.0.0.1", 1))
        one.wakes.tell("emails", 7)

        assert await two.next() == ("emails", 7)
        async with asyncio.timeout(WAIT_S):
            while two.wakes.refused < 4:  # those of the unauthenticated sender may come later
                await asyncio.sleep(0)
        assert two.heard.empty()


async def test_a_datagram_longer_than_any_wake_is_refused_before_it_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers(1) as (one,):
        one.wakes.know([SECRET], {})
        monkeypatch.delattr(hmac, "digest")
        one.wakes.datagram_received(b"x" * 60_000, ("127.0.0.1", 1))
        assert one.wakes.refused == 1


async def test_a_host_without_the_first_family_of_its_name_listens_at_the_next_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a kernel without IPv6, where `localhost` is ::1 first."""
    port = free_port()
    plain = socket.socket

    def opened(family: int, *more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return plain(family, *more)

    async def found(*_: object, **__: object) -> list[object]:
        kinds = ((socket.AF_INET6, ("::1", port, 0, 0)), (socket.AF_INET, ("127.0.0.1", port)))
        return [(family, socket.SOCK_DGRAM, 17, "", address) for family, address in kinds]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    monkeypatch.setattr(wake_datagrams, "socket", SimpleNamespace(**vars(socket) | {"socket": opened}))
    assert await wake_datagrams.refusal_of("localhost", port) is None
    with plain(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        refused = await wake_datagrams.refusal_of("localhost", port)
    assert refused is not None
    assert refused.errno == errno.EADDRINUSE


async def test_alone_nothing_is_sent() -> None:
    async with servers(1) as (one,):
        one.wakes.tell("emails", 1)
        assert one.wakes.sent == 0


async def test_the_other_peers_get_wakes_although_one_peer_is_gone() -> None:
    async with servers(3) as (one, two, three):
        three.wakes.close()
        for number in range(5):
            one.wakes.tell("emails", number + 1)
        assert await two.total(15) == {"emails": 15}


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_other_peers_get_wakes_although_one_address_does_not_resolve(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """On the server's own event loop, too, which refuses names: the enqueue continues, and others are woken."""

    async def tell() -> None:
        async with servers(2) as (one, two):
            one.wakes.know([SECRET], {("no.such.host.invalid", 1): SECRET, ("127.0.0.1", two.port): SECRET})
            one.wakes.tell("emails", 1)
            assert await two.next() == ("emails", 1)

    run(tell())
