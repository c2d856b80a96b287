"""Calls from one server to another, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import ErrorCode, OutcomeUnknown, PinLaterError, QueueFull, QueueNotFound
from pinlater.domain.job import UniqueKey, UniqueScope
from pinlater.server.cluster.forwarding import forwarding as forwarding_module
from pinlater.server.cluster.forwarding import handshake, incoming_connection, messages, peer_listener
from pinlater.server.cluster.forwarding.forward_lane import NotSent
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.link.messages import Part, PartAnswer, frame, part_answers_of
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.storage.options import Options
from pinlater.server.storage.values import NO_END_MS, Inserted, InsertRequest, NewJob
from tests.forwarding.test_refused_calls import OwnLane, lane_over
from tests.forwarding.two_servers import (
    SECRET,
    Asker,
    Owner,
    claimed,
    encoded_items,
    proven,
    read_message,
    request,
    until,
    wish,
)


async def test_a_server_says_what_its_dequeues_wait_for_at_once_and_whenever_that_changes(
    asker: Asker, owner: Owner
) -> None:
    await until(lambda: asker.link.waits == 0)
    for bits in (1 << 255 | 5, 4, 0):
        owner.listener.tell_waits(bits)
        await until(lambda bits=bits: asker.link.waits == bits)
    asker.link.abort()
    await asker.link.ended.wait()
    assert asker.link.waits is None
    assert asker.waits == [0, 1 << 255 | 5, 4, 0, None]


async def test_requests_of_one_loop_turn_are_one_call_in_one_frame(asker: Asker, owner: Owner) -> None:
    before = asker.link.frames
    answers = await asyncio.gather(*(asker.insert(request(number)) for number in range(30)))
    assert [answer.ids for answer in answers] == [[number] for number in range(30)]
    assert asker.link.frames == before + 1
    assert owner.asked == [(CallKind.INSERT, "1", [request(number) for number in range(30)])]


async def test_calls_for_several_shards_share_a_frame(asker: Asker, owner: Owner) -> None:
    before = asker.link.frames
    await asyncio.gather(*(asker.insert(request(1), shard) for shard in ("1", "2", "1")))
    assert asker.link.frames == before + 1
    assert [(shard, len(items)) for _, shard, items in owner.asked] == [("1", 2), ("2", 1)]


async def test_large_calls_do_not_share_a_frame(asker: Asker) -> None:
    before, body = asker.link.frames, b"x" * 5_000_000
    await asyncio.gather(*(asker.insert(request(1, body=body), shard) for shard in ("1", "2", "3")))
    assert asker.link.frames == before + 3


async def test_errors_of_items_and_of_all_come_as_what_they_were(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    full, stored = asker.insert(request(1)), asker.insert(request(2))
    other = asker.insert(request(3), "2")
    await until(lambda: len(owner.answers) == 2)
    expected = QueueFull.of("emails", 5, 4, 1)
    owner.answers[0].set_result([expected, Inserted([2], {}, False)])
    owner.answers[1].set_exception(QueueNotFound.of("emails"))
    with pytest.raises(QueueFull) as raised:
        await full
    error = raised.value
    assert (error.message, error.detail, error.retryable, error.retry_after_ms) == (
        expected.message,
        "QUEUE_FULL",
        True,
        1000,
    )
    assert (await stored).ids == [2]
    with pytest.raises(QueueNotFound, match="emails"):
        await other


async def test_an_error_by_a_bug_tells_nothing_of_it(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    asked = asker.insert(request(1))
    await until(lambda: owner.answers)
    owner.answers[0].set_exception(ZeroDivisionError("inside"))
    with pytest.raises(PinLaterError, match="log says more"):
        await asked


async def test_of_a_lost_connection_what_was_sent_is_unknown_and_what_was_not_is_not(
    asker: Asker, owner: Owner
) -> None:
    owner.at_once = False
    sent = asker.insert(request(1))
    await until(lambda: owner.answers)
    not_sent = asker.insert(request(2))
    asker.link.connection_lost(None)
    with pytest.raises(OutcomeUnknown):
        await sent
    with pytest.raises(NotSent):
        await not_sent
    with pytest.raises(NotSent):
        asker.insert(request(3))
    assert asker.changes == 1


async def test_calls_and_items_are_counted_where_they_are_sent_and_where_they_are_taken(
    asker: Asker, owner: Owner
) -> None:
    await asyncio.gather(*(asker.insert(request(number)) for number in range(3)))
    await asker.insert(request(4))
    taken = owner.listener.taken
    for traffic in (asker.traffic, taken.whole):
        assert (traffic.calls[CallKind.INSERT], traffic.items[CallKind.INSERT], traffic.lost) == (2, 4, 0)
    assert (asker.link.unanswered, taken.items("127.0.0.1:1")) == (0, 4)


async def test_an_answer_that_is_late_and_then_lost_with_its_connection_is_lost_once(
    asker: Asker, owner: Owner
) -> None:
    owner.at_once = False
    asked = asker.insert(request(1))
    await until(lambda: owner.answers)
    assert asker.link.unanswered == 1
    for _ in range(2):
        asker.link.limit_s = 0.0
        asker.link.look(ask_after_s=60.0, stall_s=60.0)
    asker.link.connection_lost(None)
    with pytest.raises(OutcomeUnknown):
        await asked
    assert asker.traffic.lost == 1


async def test_an_answer_whose_caller_has_gone_is_an_orphan(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    gone, stays = asker.insert(request(1)), asker.insert(request(2))
    await until(lambda: owner.answers)
    gone.cancel()
    owner.answers[0].set_result([Inserted([1], {}, False), Inserted([2], {}, False)])
    assert (await stays).ids == [2]
    assert asker.orphans == [(request(1), Inserted([1], {}, False))]


async def test_a_request_cancelled_before_it_is_sent_is_not_sent(asker: Asker, owner: Owner) -> None:
    gone, stays = asker.insert(request(1)), asker.insert(request(2))
    gone.cancel()
    await stays
    assert owner.asked == [(CallKind.INSERT, "1", [request(2)])]


async def ask_whether_it_runs(asker: Asker) -> None:
    """Returns once the owner has said so."""
    before = asker.link.told
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    await until(lambda: asker.link.told is not before)


async def test_a_server_that_stops_gets_no_more_calls_and_answers_those_it_has(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    asked = asker.insert(request(1))
    await until(lambda: owner.answers)
    owner.listener.say_goodbye()
    await until(lambda: not asker.link.usable)
    with pytest.raises(NotSent):
        asker.insert(request(2))
    await ask_whether_it_runs(asker)
    assert not asker.link.usable
    owner.answers[0].set_result([Inserted([1], {}, False)])
    assert (await asked).ids == [1]


async def test_a_server_that_runs_and_has_a_slow_store_keeps_its_calls(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    asked = asker.insert(request(1))
    await until(lambda: owner.answers)
    await ask_whether_it_runs(asker)
    asker.link.look(ask_after_s=60.0, stall_s=0.0)
    assert asker.link.usable
    owner.answers[0].set_result([Inserted([1], {}, False)])
    await asked


async def test_a_server_that_is_slow_to_say_that_it_runs_is_left_aside_until_it_says_so_in_time(
    asker: Asker, owner: Owner
) -> None:
    owner.at_once = False
    asked = asker.insert(request(1))
    await until(lambda: owner.answers)
    told = asker.link.told
    asker.link.look(ask_after_s=0.0, stall_s=0.0)
    asker.link.look(ask_after_s=0.0, stall_s=0.0)  # its answer had no time to come
    assert not asker.link.usable
    for _ in range(2):  # its answers come, and late
        await until(lambda before=told: asker.link.told is not before)
        told = asker.link.told
        owner.listener.tell()
        assert not asker.link.usable
        asker.link.look(ask_after_s=60.0, stall_s=0.0)
    await until(lambda: asker.link.told is not told)
    asker.link.look(ask_after_s=60.0, stall_s=60.0)
    await until(lambda: asker.link.usable)
    asker.link.limit_s = 0.0
    asker.link.look(ask_after_s=60.0, stall_s=0.0)
    with pytest.raises(OutcomeUnknown, match="did not answer"):
        await asked
    owner.answers[0].set_result([Inserted([1], {}, False)])
    await until(lambda: asker.orphans)


async def test_the_connection_to_a_server_that_says_nothing_for_the_time_of_a_call_ends(
    asker: Asker, owner: Owner
) -> None:
    """It may be half open, and then another one is better."""
    await until(lambda: [each for each in owner.listener.connections if each.proven])
    [incoming] = owner.listener.connections
    incoming.data_received = lambda data: None  # type: ignore[method-assign]
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    assert asker.link.usable
    asker.link.limit_s = 0.0
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    assert not asker.link.usable
    async with asyncio.timeout(20):
        await asker.link.ended.wait()


async def test_shards_that_a_server_can_not_reach_any_more_are_known_though_it_answers_calls_all_the_time(
    asker: Asker, owner: Owner
) -> None:
    owner.unreachable = ["2"]
    async with asyncio.timeout(20):
        while asker.link.unreachable != ["2"]:
            await asker.insert(request(1))
            asker.link.look(ask_after_s=0.05, stall_s=60.0)
    owner.unreachable = []
    async with asyncio.timeout(20):
        while asker.link.unreachable != []:
            await asker.insert(request(1))
            asker.link.look(ask_after_s=0.05, stall_s=60.0)


async def test_a_server_says_at_once_that_it_has_changed_queues(asker: Asker, owner: Owner) -> None:
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    await until(lambda: asker.queue_changes == 1)  # before it had said anything
    owner.listener.tell()
    owner.queue_changes += 1
    owner.listener.tell()
    await until(lambda: asker.queue_changes == 2)
    assert asker.link.says_what_it_changes(60.0)
    assert not asker.link.says_what_it_changes(-1.0)


async def test_calls_that_are_read_together_with_the_proof_are_carried_out(owner: Owner) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", owner.port)
    asked = handshake.hello("127.0.0.1:1")
    writer.write(frame(asked))
    answered = handshake.decoded(await read_message(reader), handshake.Welcome)
    part = Part(1, CallKind.INSERT, "1", encoded_items([request(1, body=b"x" * 5_000)]), NO_END_MS)
    writer.write(frame(handshake.prove(asked, answered, SECRET)) + frame([part]))
    await until(lambda: owner.asked)
    writer.transport.abort()
    await until(lambda: not owner.listener.connections)


async def test_an_answer_that_can_not_be_read_fails_its_callers_and_those_after_it(
    asker: Asker, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = encoded_items([["no", "Inserted"]])
    monkeypatch.setattr(messages, "answer", lambda number, *_: PartAnswer(number, unreadable, {}))
    asked = [asker.insert(request(number), str(number)) for number in range(2)]
    for future in asked:
        with pytest.raises(OutcomeUnknown):
            async with asyncio.timeout(20):
                await future
    assert not asker.link.usable
    assert asker.link.unanswered == 0


async def test_a_request_that_can_not_be_encoded_fails_alone(asker: Asker, owner: Owner) -> None:
    asked = [asker.insert(request(number, queue="\ud800" if number == 2 else "emails")) for number in range(4)]
    with pytest.raises(UnicodeEncodeError):
        async with asyncio.timeout(20):
            await asked.pop(2)
    answers = await asyncio.gather(*asked)
    assert [answer.ids for answer in answers] == [[0], [1], [3]]
    with pytest.raises(UnicodeEncodeError):
        async with asyncio.timeout(20):
            await asker.insert(request(5, queue="\ud800"))
    assert (await asker.insert(request(6))).ids == [6]
    assert asker.lanes["1"].waiting == 0


def test_a_call_that_was_not_sent_is_to_clients_one_to_an_unreachable_shard() -> None:
    error = NotSent()
    assert (error.code, error.detail) == (ErrorCode.SHARD_CONNECTION_FAILED, "SHARD_UNREACHABLE")


async def test_a_server_that_does_not_know_the_secret_is_not_heard(
    owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    """Not a warning: one whose shard is just back does not know it for a moment."""
    with caplog.at_level(logging.INFO), pytest.raises(ConnectionError):
        await Asker().connect(owner, b"a guess")
    assert owner.asked == []
    [reason] = [record.__dict__["reason"] for record in caplog.records if "to a server closed" in record.message]
    assert "perhaps it has not reached that shard yet" in reason
    assert {record.levelno for record in caplog.records} == {logging.INFO}


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        (2_000).to_bytes(4, "big"),
        b"\x00\x00\x00\x01\xc0",
        b"\x00\x00\x00\x05hello",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x1a\x94\x92\x03\x03\xa3\xed\xa0\x80\xc4\x10a nonce of bytes",  # an address that is not UTF-8
    ],
)
async def test_a_connection_without_proof_is_closed(
    owner: Owner, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", owner.port)
    writer.write(sent)
    async with asyncio.timeout(20):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    writer.close()
    assert owner.asked == []
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_connection_that_says_nothing_is_closed(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_listener, "HANDSHAKE_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", owner.port)
    async with asyncio.timeout(20):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    writer.close()


async def test_connections_without_proof_are_bounded_and_keep_no_server_out(owner: Owner) -> None:
    opened = [await asyncio.open_connection("127.0.0.1", owner.port) for _ in range(peer_listener.UNPROVEN_MAX + 20)]
    assert len(owner.listener.connections) <= peer_listener.UNPROVEN_MAX
    link = await Asker().connect(owner)
    await until(lambda: link.waits is not None)
    assert 1 <= len(owner.listener.connections) <= peer_listener.UNPROVEN_MAX + 1
    link.abort()
    for _, writer in opened:
        writer.transport.abort()
    await until(lambda: not owner.listener.connections)


async def test_a_host_that_opens_very_many_connections_takes_no_place_of_another_host(owner: Owner) -> None:
    """A server on the other one has connected, and is slow to prove itself."""
    _, slow = await asyncio.open_connection("127.0.0.1", owner.port, local_addr=("127.0.0.2", 0))
    opened = [await asyncio.open_connection("127.0.0.1", owner.port) for _ in range(peer_listener.UNPROVEN_MAX + 20)]
    assert [each.peer for each in owner.listener.connections].count("127.0.0.2") == 1
    assert len(owner.listener.connections) <= peer_listener.UNPROVEN_MAX
    for writer in [slow, *(writer for _, writer in opened)]:
        writer.transport.abort()
    await until(lambda: not owner.listener.connections)


def transport_of(writer: asyncio.StreamWriter) -> asyncio.Transport:
    return cast("asyncio.Transport", writer.transport)


def large(number: int) -> bytes:
    """A call whose answer has about a MiB."""
    return frame([Part(number, CallKind.CLAIM, "1", encoded_items([wish("token")]), NO_END_MS)])


def answer_large(owner: Owner) -> None:
    for future in owner.answers:
        if not future.done():
            future.set_result([claimed(1, b"x" * 1_000_000)])


async def test_a_server_that_does_not_read_its_answers_is_read_no_further_until_it_does(owner: Owner) -> None:
    owner.at_once = False
    reader, writer = await proven(owner)
    transport_of(writer).pause_reading()
    for number in range(60):
        writer.write(large(number + 1))
    await until(lambda: len(owner.answers) == 60)
    answer_large(owner)
    [connection] = owner.listener.connections
    await until(lambda: connection.unsent_bytes > incoming_connection.UNTAKEN_BYTES_MAX)
    assert connection.unsent_bytes < 2 * incoming_connection.UNTAKEN_BYTES_MAX
    writer.write(large(61))
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert len(owner.answers) == 60
    transport_of(writer).resume_reading()
    answered: list[int] = []
    async with asyncio.timeout(20):
        while len(answered) < 61:
            answered += [part.number for part in part_answers_of(await read_message(reader))]
            answer_large(owner)
    assert answered == list(range(1, 62))
    transport_of(writer).abort()
    await until(lambda: not owner.listener.connections)
    assert owner.undelivered == []


async def test_a_server_that_takes_no_answers_for_the_time_of_a_call_is_disconnected_and_they_are_given_back(
    owner: Owner,
) -> None:
    owner.at_once = False
    owner.listener.limit_s = 0.1
    _, writer = await proven(owner)
    transport_of(writer).pause_reading()
    for number in range(60):
        writer.write(large(number + 1))
    await until(lambda: len(owner.answers) == 60)
    answer_large(owner)
    await until(lambda: not owner.listener.connections)
    assert 20 < len(owner.undelivered) < 60
    transport_of(writer).abort()


async def test_a_server_that_stops_waits_for_what_it_owes_and_for_the_others_to_close(
    asker: Asker, owner: Owner
) -> None:
    owner.at_once = False
    asked = asker.insert(request(1))
    await until(lambda: owner.answers)
    owner.listener.say_goodbye()
    draining = asyncio.ensure_future(owner.listener.drain(60.0))
    await until(lambda: not asker.link.usable)
    assert not draining.done()
    owner.answers[0].set_result([Inserted([1], {}, False)])
    assert (await asked).ids == [1]
    async with asyncio.timeout(20):
        await draining
        await asker.link.ended.wait()
    with pytest.raises(ConnectionError):
        await Asker().connect(owner)


async def test_a_server_that_stops_waits_no_longer_than_its_grace(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    asked = asker.insert(request(1))
    await until(lambda: owner.answers)
    owner.listener.say_goodbye()
    async with asyncio.timeout(20):
        await owner.listener.drain(0.05)
    owner.listener.close()
    with pytest.raises(OutcomeUnknown):
        await asked
    owner.answers[0].set_result([])


async def test_a_connection_that_is_not_wanted_any_more_before_it_is_ready_is_closed() -> None:
    ended = asyncio.Event()

    began = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    forwarding = Forwarding(cast("Any", NoShards()), "127.0.0.1:1", lambda _: [])
    forwarding.know({f"127.0.0.1:{port}": SECRET})
    async with asyncio.timeout(20):
        await began.wait()
        forwarding.know({})
        await ended.wait()
    await forwarding.close()
    server.close()


async def test_servers_of_one_supervisor_use_a_unix_socket_and_others_tcp(owner: Owner) -> None:
    """A server elsewhere has no socket in the folder of this one's supervisor."""
    with TemporaryDirectory() as folder:
        here, elsewhere = "no such host:2", f"127.0.0.1:{owner.port}"
        await owner.listener.open_local(f"{folder}/{here}")
        forwarding = Forwarding(
            cast("Any", NoShards()), "127.0.0.1:1", lambda _: [], local_path=lambda address: f"{folder}/{address}"
        )
        forwarding.know({here: SECRET, elsewhere: SECRET})
        await until(lambda: len(forwarding.connections) == 2)
        assert set(forwarding.connections) == {here, elsewhere}, "one has no address, the other no socket in the folder"
        for connection in list(forwarding.connections.values()):
            connection.abort()
        await forwarding.close()
        await until(lambda: not owner.listener.connections)


@pytest.mark.parametrize("version", range(messages.OLDEST_VERSION, messages.VERSION + 1))
async def test_the_owner_gets_jobs_as_they_are_in_each_version(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(handshake, "VERSION", version)
    asker = Asker()
    await asker.connect(owner)
    unique = UniqueKey("key", UniqueScope.TIME, 9)
    options = [None, Options("s"), Options("s", {"a": "b"}, unique, timeout_ms=5, expires_ms=7)]
    sent = InsertRequest("emails", [NewJob(1, b"x", 1, 5, 3, each) for each in options], "key", b"\xff", max_backlog=4)
    await asker.insert(sent)
    [(_, _, received)] = owner.asked
    assert received == [sent]
    asker.link.abort()


@pytest.mark.parametrize("version", range(messages.OLDEST_VERSION, messages.VERSION + 1))
async def test_a_claim_through_a_priority_goes_past_an_owner_that_would_hand_out_all(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Others bring the best job that is left there."""
    monkeypatch.setattr(handshake, "VERSION", version)
    knows = version >= messages.HEADS_SINCE_VERSION
    owner.at_once = False
    asker, own = Asker(), OwnLane()
    own.go.set()
    await asker.connect(owner)
    lane = lane_over(asker, own, CallKind.CLAIM)
    plain, capped = wish("a"), wish("b")._replace(through_priority=2)
    answers = [lane.submit(plain), lane.submit(capped)]
    await until(lambda: owner.asked)
    assert owner.asked == [(CallKind.CLAIM, "1", [plain, capped] if knows else [plain])]
    assert own.began == ([] if knows else [capped])
    found = claimed(1)._replace(head=(3, 5))
    owner.answers[0].set_result([found] * (2 if knows else 1))
    first, second = await asyncio.gather(*answers)
    assert first.head == ((3, 5) if knows else None)
    assert second == (first if knows else "done 1")
    asker.link.abort()


async def test_the_name_of_a_server_is_looked_up_for_each_connection(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that starts again on another machine may have the name of the former one. A name without an answer holds up no other."""
    places = ["127.0.0.2", "127.0.0.1"]
    asked: list[str] = []

    async def find(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        if host != "moved":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (places.pop(0), port))]

    monkeypatch.setattr(forwarding_module, "_PAUSE_S", 0.01)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", find)
    forwarding = Forwarding(cast("Any", NoShards()), "127.0.0.1:1", lambda _: [])
    moved = f"moved:{owner.port}"
    forwarding.know({moved: SECRET, "unknown:1": SECRET, "nonsense": SECRET, "x:70000": SECRET})
    await until(lambda: moved in forwarding.connections)
    assert places == []
    assert set(asked) == {"moved", "unknown"}
    assert set(forwarding.connections) == {moved}
    await forwarding.close()


class NoShards(list[Any]):
    """What connections need of a server's shards."""

    settings = ShardingSettings()
    clock = SystemClock()
