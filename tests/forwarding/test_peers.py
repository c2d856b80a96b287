"""Calls from one server to another, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import OutcomeUnknown, PinLaterError, QueueFull, QueueNotFound, ShardConnectionFailed
from pinlater.domain.job import NewJob, UniqueKey, UniqueScope
from pinlater.server.forwarding import peer_listener
from pinlater.server.forwarding.messages import Kind
from pinlater.server.forwarding.peer_connection import NotSent, PeerConnection
from pinlater.server.forwarding.peer_listener import PeerListener
from pinlater.server.storage.values import Inserted, InsertRequest

SECRET = b"the secret of shard 1"


class Owner:
    """The answering server: keeps what it was asked, and answers as told."""

    def __init__(self) -> None:
        self.asked: list[tuple[Kind, str, list[Any]]] = []
        self.answers: list[asyncio.Future[Sequence[Any]]] = []
        self.undelivered: list[Sequence[Any]] = []
        self.at_once = True
        self.listener = PeerListener(self.carry_out, self.not_delivered, lambda: [b"another", SECRET])
        self.port = 0

    def carry_out(self, kind: Kind, shard: str, items: Sequence[Any]) -> asyncio.Future[Sequence[Any]]:
        future: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        self.asked.append((kind, shard, list(items)))
        self.answers.append(future)
        if self.at_once:
            future.set_result([Inserted([job.id for job in item.jobs], {}, False) for item in items])
        return future

    def not_delivered(self, kind: Kind, shard: str, items: Sequence[Any], answers: Sequence[Any]) -> None:
        del kind, shard, items
        self.undelivered.append(answers)


class Asker:
    """The asking server."""

    def __init__(self) -> None:
        self.orphans: list[tuple[Kind, str, Sequence[Any], Sequence[Any]]] = []
        self.ended = 0

    async def connect(self, owner: Owner, secret: bytes = SECRET) -> PeerConnection:
        def made() -> PeerConnection:
            return PeerConnection(
                f"127.0.0.1:{owner.port}",
                "127.0.0.1:1",
                secret,
                SystemClock().monotonic,
                lambda *orphan: self.orphans.append(orphan),
                self.count_end,
            )

        _, connection = await asyncio.get_running_loop().create_connection(made, "127.0.0.1", owner.port)
        await connection.ready()
        return connection

    def count_end(self, connection: PeerConnection) -> None:
        del connection
        self.ended += 1


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    owner = Owner()
    owner.port = await owner.listener.open("127.0.0.1")
    yield owner
    owner.listener.close()
    await asyncio.sleep(0)


@pytest.fixture
async def asker() -> Asker:
    return Asker()


@pytest.fixture
async def link(owner: Owner, asker: Asker) -> AsyncIterator[PeerConnection]:
    connection = await asker.connect(owner)
    yield connection
    connection.abort()
    await asyncio.sleep(0)


def request(job_id: int, queue: str = "emails", body: bytes = b"x") -> InsertRequest:
    job = NewJob(job_id, body, 1, 5, 3, "", {"a": "b"}, UniqueKey("k", UniqueScope.TIME, 9), None, None)
    return InsertRequest(queue, [job], "key", b"\x00\xff", max_pending=4)


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_what_is_asked_in_one_turn_goes_in_one_frame_and_one_part(link: PeerConnection, owner: Owner) -> None:
    futures = [link.submit(Kind.INSERT, "1", [request(number)]) for number in range(30)]
    answers = await asyncio.gather(*futures)
    assert [answer[0].ids for answer in answers] == [[number] for number in range(30)]
    assert (link.frames, link.parts, link.items) == (1, 1, 30)
    assert owner.asked == [(Kind.INSERT, "1", [request(number) for number in range(30)])]


async def test_each_shard_and_kind_is_a_part_of_the_same_frame(link: PeerConnection, owner: Owner) -> None:
    await asyncio.gather(*(link.submit(Kind.INSERT, shard, [request(1)]) for shard in ("1", "2", "1")))
    assert (link.frames, link.parts) == (1, 2)
    assert [(shard, len(items)) for _, shard, items in owner.asked] == [("1", 2), ("2", 1)]


async def test_large_bodies_do_not_wait_for_the_end_of_the_turn(link: PeerConnection) -> None:
    body = b"x" * 1_000_000
    await asyncio.gather(
        *(link.submit(Kind.INSERT, "1", [request(number, body=body)], len(body)) for number in range(10))
    )
    assert link.frames == 2


async def test_errors_of_items_and_of_all_come_as_what_they_were(link: PeerConnection, owner: Owner) -> None:
    owner.at_once = False
    asked = [link.submit(Kind.INSERT, "1", [request(1)]), link.submit(Kind.INSERT, "1", [request(2)])]
    other = link.submit(Kind.INSERT, "2", [request(3)])
    await until(lambda: len(owner.answers) == 2)
    owner.answers[0].set_result([QueueFull("emails", 5, 4), Inserted([2], {}, False)])
    owner.answers[1].set_exception(QueueNotFound("emails"))
    [full], [stored] = await asyncio.gather(*asked)
    assert type(full) is QueueFull
    expected = QueueFull("emails", 5, 4)
    assert (full.message, full.detail, full.retryable, full.retry_after_ms) == (
        expected.message,
        "QUEUE_FULL",
        True,
        1000,
    )
    assert stored.ids == [2]
    with pytest.raises(QueueNotFound) as found:
        await other
    assert found.value.queue == "emails"


async def test_an_error_by_a_bug_tells_nothing_of_it(link: PeerConnection, owner: Owner) -> None:
    owner.at_once = False
    asked = link.submit(Kind.INSERT, "1", [request(1)])
    await until(lambda: owner.answers)
    owner.answers[0].set_exception(ZeroDivisionError("inside"))
    with pytest.raises(PinLaterError, match="log says more"):
        await asked


async def test_of_a_lost_connection_what_was_sent_is_unknown_and_what_was_not_can_go_another_way(
    link: PeerConnection, owner: Owner, asker: Asker
) -> None:
    owner.at_once = False
    sent = link.submit(Kind.INSERT, "1", [request(1)])
    await until(lambda: owner.answers)
    not_sent = link.submit(Kind.INSERT, "1", [request(2)])
    link.connection_lost(None)
    with pytest.raises(OutcomeUnknown):
        await sent
    with pytest.raises(NotSent):
        await not_sent
    with pytest.raises(NotSent):
        await link.submit(Kind.INSERT, "1", [request(3)])
    assert asker.ended == 1


async def test_answers_that_no_connection_takes_are_given_back(owner: Owner, asker: Asker) -> None:
    connection = await asker.connect(owner)
    owner.at_once = False
    asked = connection.submit(Kind.INSERT, "1", [request(1)])
    await until(lambda: owner.answers)
    connection.abort()
    with pytest.raises(OutcomeUnknown):
        await asked
    await until(lambda: not owner.listener.connections)
    owner.answers[0].set_result([Inserted([1], {}, False)])
    await until(lambda: owner.undelivered)


async def test_an_answer_whose_caller_has_gone_is_an_orphan(link: PeerConnection, owner: Owner, asker: Asker) -> None:
    owner.at_once = False
    gone, stays = (link.submit(Kind.INSERT, "1", [request(number)]) for number in (1, 2))
    await until(lambda: owner.answers)
    gone.cancel()
    owner.answers[0].set_result([Inserted([1], {}, False), Inserted([2], {}, False)])
    assert (await stays)[0].ids == [2]
    [(kind, shard, items, answers)] = asker.orphans
    assert (kind, shard, list(items), [answer.ids for answer in answers]) == (Kind.INSERT, "1", [request(1)], [[1]])


async def test_what_is_cancelled_before_it_is_sent_is_not_sent(link: PeerConnection, owner: Owner) -> None:
    gone, stays = (link.submit(Kind.INSERT, "1", [request(number)]) for number in (1, 2))
    gone.cancel()
    await stays
    assert owner.asked == [(Kind.INSERT, "1", [request(2)])]


async def test_who_does_not_know_the_secret_is_not_heard(owner: Owner, asker: Asker) -> None:
    with pytest.raises(NotSent):
        await asker.connect(owner, b"a guess")
    assert owner.asked == []


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        (2_000).to_bytes(4, "big"),
        b"\x00\x00\x00\x01\xc0",
        b"\x00\x00\x00\x05hello",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_a_stranger_is_disconnected(owner: Owner, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", owner.port)
    writer.write(sent)
    async with asyncio.timeout(20):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    writer.close()
    assert owner.asked == []


async def test_a_stranger_that_says_nothing_is_disconnected(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_listener, "HANDSHAKE_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", owner.port)
    async with asyncio.timeout(20):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    writer.close()


async def test_strangers_are_bounded(owner: Owner, asker: Asker) -> None:
    opened = [await asyncio.open_connection("127.0.0.1", owner.port) for _ in range(peer_listener.STRANGERS_MAX + 20)]
    await until(lambda: len(owner.listener.connections) == peer_listener.STRANGERS_MAX)
    for _, writer in opened:
        writer.transport.abort()
    await until(lambda: not owner.listener.connections)
    (await asker.connect(owner)).abort()


async def test_a_closed_connection_raises_a_world_error(owner: Owner, asker: Asker) -> None:
    connection = await asker.connect(owner)
    connection.abort()
    await asyncio.sleep(0)
    with pytest.raises(ShardConnectionFailed):
        await connection.submit(Kind.INSERT, "1", [request(1)])
