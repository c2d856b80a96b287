"""Wakes over the connection to another server, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import msgspec
import pytest
import uvloop

from pinlater.server.cluster.forwarding import handshake, messages, peer_connection, peer_listener
from pinlater.server.cluster.forwarding.incoming_connection import IncomingConnection
from pinlater.server.cluster.forwarding.messages import WAKES_MAX, Wake
from pinlater.server.dispatch.interest import bit_of
from pinlater.server.dispatch.peer_wakes import PeerWakes
from pinlater.server.link.messages import NOTHING, BadMessage, Part, frame, message_of_asking
from pinlater.server.storage.values import NO_END_MS
from tests.forwarding.two_servers import Asker, Owner, encoded_items, proven, request, until

WAKE = Wake("emails", 2, False)


def heard_by(owner: Owner) -> list[Wake]:
    """What other servers tell the owner from now on."""
    heard: list[Wake] = []
    owner.listener.take_wakes = heard.extend
    return heard


def told_wakes(wakes: Sequence[Wake]) -> Part:
    return message_of_asking(messages.WAKES, wakes)


async def told(asker: Asker, owner: Owner) -> None:
    """Until the owner has taken all that was written before."""
    owner.asked.clear()
    await asker.insert(request(1))
    assert owner.asked


async def test_a_wake_is_written_in_the_turn_in_which_it_is_told_and_before_calls(asker: Asker, owner: Owner) -> None:
    heard = heard_by(owner)
    before = asker.link.frames
    call = asker.insert(request(1))
    assert asker.link.wake([WAKE, Wake("other", 1, True)])
    assert asker.link.frames == before + 1
    await call
    assert heard == [WAKE, Wake("other", 1, True)]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_an_enqueue_wakes_a_dequeue_that_has_just_begun_to_wait_at_another_server(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """On the server's own event loop, too. What its dequeues wait for is told after the job has come."""

    async def tell() -> None:
        owner, asker = Owner(), Asker()
        owner.port = await owner.listener.open("127.0.0.1")
        woken: list[tuple[str, int, bool]] = []
        here, there = PeerWakes(lambda *_: None), PeerWakes(lambda *queue: woken.append(queue))
        owner.listener.take_wakes = there.take
        here.has_peers = True
        link = await asker.connect(owner)
        asker.waits_changed = lambda link: here.know_waits(link, link.waits)
        await until(lambda: link.waits == 0)
        here.tell("emails", 2)
        owner.listener.tell_waits(bit_of("emails"))
        await until(lambda: woken == [("emails", 2, True)])
        here.tell("emails", 1)
        await until(lambda: woken[1:] == [("emails", 1, False)])
        assert (here.sent, there.received) == (2, 2)
        link.abort()
        await link.ended.wait()
        here.tell("emails", 1)
        assert here.sent == 2
        here.close()
        owner.listener.close()

    run(tell())


def test_a_wake_names_queues_and_how_many_jobs_and_nothing_else() -> None:
    part = told_wakes([WAKE])
    assert msgspec.msgpack.decode(part.items) == [["emails", 2, False]]
    assert part._replace(items=NOTHING) == Part(messages.WAKES, messages.WAKES, "", NOTHING, NO_END_MS)


async def test_an_older_server_is_not_told(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the message for a call of an unknown kind, and close the connection."""
    monkeypatch.setattr(handshake, "VERSION", messages.OLDEST_VERSION)
    heard, asker = heard_by(owner), Asker()
    link = await asker.connect(owner)
    assert not link.wake([WAKE])
    await told(asker, owner)
    assert heard == []
    link.abort()


async def test_a_server_that_stops_or_that_is_no_peer_any_more_is_not_told(asker: Asker, owner: Owner) -> None:
    heard = heard_by(owner)
    owner.at_once = False
    call = asker.insert(request(1))
    await until(lambda: owner.answers)
    owner.listener.say_goodbye()
    await until(lambda: not asker.link.usable)
    assert not asker.link.wake([WAKE])
    owner.answers[0].set_result([])
    with pytest.raises(Exception, match="lost"):
        await call
    assert not asker.link.wake([WAKE])
    assert heard == []


async def test_wakes_for_a_server_that_takes_nothing_are_dropped_and_not_kept(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that come after it has taken all are written again."""
    monkeypatch.setattr(peer_connection, "WAKES_UNTAKEN_BYTES_MAX", 100_000)
    heard = heard_by(owner)
    transports: list[asyncio.Transport] = []

    class PausedIncoming(IncomingConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transports.append(cast("asyncio.Transport", transport))
            super().connection_made(transport)

    monkeypatch.setattr(peer_listener, "IncomingConnection", PausedIncoming)
    asker = Asker()
    await asker.connect(owner)
    await until(lambda: [each for each in owner.listener.connections if each.proven])
    [incoming] = transports
    incoming.pause_reading()
    many = [Wake(f"{number:064}", 1, False) for number in range(WAKES_MAX)]
    written = 0
    async with asyncio.timeout(20):
        while asker.link.wake(many):
            written += 1
            await asyncio.sleep(0)
    for _ in range(100):
        assert not asker.link.wake(many)
    assert asker.link.unsent_bytes < 200_000
    incoming.resume_reading()
    await until(lambda: len(heard) == written * WAKES_MAX)
    assert asker.link.wake([WAKE])
    await until(lambda: heard[-1] == WAKE)
    asker.link.abort()


async def test_the_most_queues_with_the_longest_names_are_taken() -> None:
    wakes = [Wake(f"{number:064}", 2**62, True) for number in range(WAKES_MAX)]
    part = told_wakes(wakes)
    assert messages.wakes_of(part) == wakes


@pytest.mark.parametrize(
    "items",
    [
        [("q", 0, False)],
        [("q", -1, False)],
        [("q", "many", False)],
        [("q", 1)],
        "emails",
        [(b"\xed\xa0\x80", 1, False)],
    ],
)
async def test_a_message_that_is_no_wake_ends_the_connection_and_wakes_no_dequeue(
    owner: Owner, items: Sequence[object]
) -> None:
    heard = heard_by(owner)
    part = Part(messages.WAKES, messages.WAKES, "", encoded_items(items), NO_END_MS)
    _, writer = await proven(owner)
    writer.write(frame([part]))
    await until(lambda: not owner.listener.connections)
    writer.close()
    assert heard == []


@pytest.mark.parametrize("parts", [[told_wakes([WAKE] * 30_000)], [told_wakes([WAKE])] * 2])
async def test_more_wakes_than_a_server_tells_at_once_end_the_connection_and_wake_no_dequeue(
    owner: Owner, parts: Sequence[Part]
) -> None:
    """They would hold up the event loop."""
    heard = heard_by(owner)
    _, writer = await proven(owner)
    writer.write(frame(parts))
    await until(lambda: not owner.listener.connections)
    writer.close()
    assert heard == []


def test_a_long_message_of_wakes_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_wakes", None)
    with pytest.raises(BadMessage, match="bytes of wakes; at most"):
        messages.wakes_of(told_wakes([WAKE] * 30_000))


@pytest.mark.parametrize("number", [-1, -3, -7, -(2**40)])
async def test_a_message_of_unknown_kind_ends_the_connection(owner: Owner, number: int) -> None:
    """Also if it looks like a call."""
    _, writer = await proven(owner)
    writer.write(frame([Part(number, 0, "1", encoded_items([request(1)]), NO_END_MS)]))
    await until(lambda: not owner.listener.connections)
    writer.close()
    assert owner.asked == []


async def test_without_proof_no_wake_is_taken(owner: Owner) -> None:
    heard = heard_by(owner)
    _, writer = await asyncio.open_connection("127.0.0.1", owner.port)
    writer.write(frame([told_wakes([WAKE])]))
    await until(lambda: not owner.listener.connections)
    writer.close()
    assert heard == []
