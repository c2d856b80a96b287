"""Order, pipelining, bad frames, peers that go away, bounds, idleness, draining: over real sockets."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.server.operations.values import DequeueResult
from pinlater.server.thrift.open_files import CONNECTIONS_MIN, RESERVED, TooFewOpenFiles, raise_file_limit
from pinlater.server.thrift.request_queue import QUEUED_BYTES
from pinlater.wire.codec import encode_call
from pinlater.wire.framing import LENGTH_BYTES
from pinlater.wire.generated import structs as types
from tests.thrift_server.conftest import CONTEXT, DEADLINE_S, Client, ThriftServerUnderTest
from tests.thrift_server.fake_operations import CLAIM, CLAIMED, Gate

Start = Callable[..., Awaitable[ThriftServerUnderTest]]
LONG_POLL = types.DequeueRequest("q", 1, wait_ms=60_000)
DEQUEUE = types.DequeueRequest("q", 1)


def names(desk: ThriftServerUnderTest) -> list[str]:
    return [name for name, _, _ in desk.operations.asked]


# --- order ----------------------------------------------------------------------------------------------------------------
async def test_a_request_does_not_start_before_the_one_before_it_is_done(desk: ThriftServerUnderTest) -> None:
    gate = Gate("create_queue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("createQueue", 1, name="q")
    client.send("getQueueNames", 2)
    await gate.arrived.wait()
    other = await desk.connect()
    assert (await other.call("getServerInfo")).value.version == "1.2.3"
    assert names(desk) == ["create_queue", "server_info"]
    gate.open()
    assert [(await client.receive()).seqid, (await client.receive()).seqid] == [1, 2]


async def test_an_answer_does_not_wait_for_the_slow_request_behind_it(desk: ThriftServerUnderTest) -> None:
    gate = Gate("create_queue")
    desk.operations.before = gate
    client = await desk.connect()
    client.writer.write(
        encode_call("getQueueNames", 1, context=CONTEXT) + encode_call("createQueue", 2, context=CONTEXT, name="q")
    )
    assert (await client.receive()).seqid == 1
    gate.open()
    assert (await client.receive()).seqid == 2


async def test_a_request_in_single_bytes_is_a_request(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    for byte in encode_call("getQueueNames", 3, context=CONTEXT):
        client.writer.write(bytes([byte]))
        await client.writer.drain()
    assert (await client.receive()).seqid == 3


async def test_reading_stops_while_too_much_waits_unanswered(start: Start) -> None:
    desk = await start(max_pipelined_requests=10)
    gate = Gate()
    desk.operations.before = gate
    client = await desk.connect()
    client.send("createQueue", 0, name="q")
    await gate.arrived.wait()
    frame = encode_call("createQueue", 1, context=CONTEXT, name="q" * 10_000)
    for _ in range(2_000):
        client.writer.write(frame)
    await desk.until(lambda: desk.server.paused_connections)
    gate.open()
    for _ in range(2_001):
        await client.receive()
    assert not desk.server.paused_connections


# --- bad frames -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_an_http_client_is_told_which_ports_http_has(desk: ThriftServerUnderTest, method: str) -> None:
    """A browser at the first port that the server logs would otherwise show an empty answer."""
    good, browser = await desk.connect(), await desk.connect()
    browser.writer.write(f"{method} / HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await browser.closed()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert f"Content-Length: {len(body)}\r\n".encode() in head
    assert body.startswith(b"this is PinLater's Thrift port; by default, the dashboard and the HTTP API have port 9998")
    assert (await good.call("getQueueNames")).seqid == 1
    assert desk.counted("thrift_bad_frames") == 1


async def test_a_tls_handshake_whose_length_looks_like_a_compact_call_is_no_call(
    desk: ThriftServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    client = await desk.connect()
    client.writer.write(b"\x16\x03\x01\x01\x82\x01\x00\x01\x7e\x03\x03" + bytes(380))
    assert await client.closed() == b""
    assert "a client has called the Thrift port with TLS" in caplog.text


async def test_the_largest_frame_is_taken(start: Start) -> None:
    desk = await start(max_frame_bytes=2 * 1024 * 1024)
    client = await desk.connect()
    longest = 2 * 1024 * 1024 + 4 - len(encode_call("createQueue", 1, context=CONTEXT, name=""))
    assert (await client.call("createQueue", name="q" * longest)).exception is None
    client.send("createQueue", 8, name="q" * (longest + 1))
    reply = await client.receive()
    assert reply.seqid == 8
    assert reply.application_error is not None
    assert "max_frame_bytes" in reply.application_error.message
    assert await client.closed() == b""


async def test_a_frame_too_long_is_refused_after_the_answers_to_what_came_before(start: Start) -> None:
    desk = await start(max_frame_bytes=2000)
    gate = Gate("create_queue")
    desk.operations.before = gate
    client = await desk.connect()
    client.writer.write(
        encode_call("createQueue", 1, context=CONTEXT, name="q")
        + encode_call("createQueue", 2, context=CONTEXT, name="q" * 3000)
        + encode_call("createQueue", 3, context=CONTEXT, name="after")
    )
    await gate.arrived.wait()
    gate.open()
    assert (await client.receive()).application_error is None
    assert (await client.receive()).application_error is not None
    assert await client.closed() == b""
    assert len(desk.operations.asked) == 1


async def test_a_frame_far_too_long_closes_at_once(start: Start) -> None:
    desk = await start(max_frame_bytes=2000)
    client = await desk.connect()
    client.writer.write(encode_call("createQueue", 2, context=CONTEXT, name="q" * 30_000)[:500])
    assert await client.closed() == b""


async def test_a_client_that_never_sends_the_rest_of_an_oversized_frame_is_disconnected(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, max_frame_bytes=2000)
    client = await desk.connect()
    client.writer.write(encode_call("createQueue", 2, context=CONTEXT, name="q" * 3000)[:500])
    await desk.until(lambda: desk.counted("thrift_bad_frames"))
    clock.advance(seconds=31)
    desk.server.sweep()
    assert await client.closed() == b""


# --- peers that go away ---------------------------------------------------------------------------------------------------
def hang_up(client: Client) -> None:
    """Closes hard: the server gets a reset."""
    peer = client.writer.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


def swept_out(desk: ThriftServerUnderTest) -> bool:
    """Whether no connection is left after one more sweep."""
    desk.server.sweep()
    return desk.server.connections == 0


@pytest.mark.parametrize("leave", [Client.close, hang_up])
async def test_a_waiting_dequeue_ends_when_its_caller_goes(
    desk: ThriftServerUnderTest, leave: Callable[[Client], None]
) -> None:
    gate = Gate("dequeue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("dequeueJobs", request=LONG_POLL)
    await gate.arrived.wait()
    assert (desk.server.answering.waiting, desk.server.answering.running) == (1, 0)
    leave(client)
    await desk.until(lambda: desk.operations.cancelled)
    await desk.until(lambda: desk.server.connections == 0)
    assert desk.server.answering.waiting == 0


@pytest.mark.parametrize("leave", [Client.close, hang_up])
async def test_jobs_claimed_for_a_caller_who_is_gone_are_given_back(
    desk: ThriftServerUnderTest, leave: Callable[[Client], None]
) -> None:
    gate = Gate("dequeue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("dequeueJobs", request=DEQUEUE)
    await gate.arrived.wait()
    (connection,) = desk.server.opened_connections
    leave(client)
    await desk.until(lambda: connection.gone)
    gate.open()
    await asyncio.wait_for(desk.operations.undelivered_event.wait(), DEADLINE_S)
    assert desk.operations.undelivered_calls == [("q", [CLAIM])]
    assert desk.operations.cancelled == []


@pytest.mark.parametrize("leave", [Client.close, hang_up])
async def test_a_running_request_is_carried_out_although_its_client_is_gone(
    desk: ThriftServerUnderTest, leave: Callable[[Client], None]
) -> None:
    gate = Gate("create_queue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("createQueue", name="q")
    await gate.arrived.wait()
    (connection,) = desk.server.opened_connections
    leave(client)
    await desk.until(lambda: connection.gone)
    gate.open()
    await desk.until(lambda: desk.server.connections == 0)
    assert desk.operations.cancelled == []


def unread_bytes(desk: ThriftServerUnderTest) -> float:
    """What waits for the kernel to take it, since its client does not read."""
    return desk.server.budget.by_kind()["answers"]


def take_little_at_once(client: Client) -> None:
    """The kernel keeps little for the client, so that what the client reads makes space for more."""
    client.read_no_further()
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)


# Most of what the kernel keeps of a connection: once a client has read so much, the kernel has taken more.
PROGRESS_BYTES = 3_000_000


async def unread_jobs(desk: ThriftServerUnderTest) -> Client:
    """A client that was sent more jobs than the kernel takes, and has read nothing of them."""
    large = CLAIM._replace(jobs=[CLAIMED._replace(body=b"x" * 14_000_000)])
    desk.operations.answers["dequeue"] = DequeueResult([large])
    client = await desk.connect()
    client.read_no_further()
    client.send("dequeueJobs", request=DEQUEUE)
    await desk.until(lambda: unread_bytes(desk))
    return client


@pytest.mark.parametrize("leave", [Client.close, hang_up])
async def test_jobs_that_the_kernel_did_not_take_when_the_caller_left_are_given_back(
    desk: ThriftServerUnderTest, leave: Callable[[Client], None]
) -> None:
    client = await unread_jobs(desk)
    assert desk.operations.undelivered_calls == []
    leave(client)
    await desk.until(lambda: swept_out(desk))
    kept = CLAIM._replace(jobs=[CLAIMED._replace(body=b"")])
    assert [claimed for _, claimed in desk.operations.undelivered_calls] == [[kept]]
    assert desk.server.budget.by_kind() == {"requests": 0, "answers": 0, "scans": 0}


async def test_jobs_of_a_slow_reader_that_is_cut_are_given_back(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock)
    await unread_jobs(desk)
    clock.advance(seconds=31)
    desk.server.sweep()
    await desk.until(lambda: desk.server.connections == 0)
    assert len(desk.operations.undelivered_calls) == 1


async def test_jobs_that_a_slow_reader_takes_in_the_end_are_delivered(desk: ThriftServerUnderTest) -> None:
    client = await unread_jobs(desk)
    assert (await client.receive()).value.jobs
    hang_up(client)
    await desk.until(lambda: desk.server.connections == 0)
    assert desk.operations.undelivered_calls == []


async def test_a_client_that_reads_slowly_is_not_cut_while_it_makes_progress(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, write_stall_timeout_s=30)
    desk.operations.answers["queue_names"] = ["q" * 14_000_000]
    client = await desk.connect()
    take_little_at_once(client)
    client.send("getQueueNames")
    await desk.until(lambda: unread_bytes(desk))
    for _ in range(2):
        await client.reader.readexactly(PROGRESS_BYTES)
        assert unread_bytes(desk)
        clock.advance(seconds=20)
        desk.server.sweep()
        assert desk.counted("thrift_slow_readers_cut") == 0


async def test_while_memory_is_scarce_a_client_that_reads_slowly_is_cut_all_the_same(start: Start) -> None:
    """Otherwise some that read a byte now and then would keep the budget full for ever."""
    clock = ManualClock()
    desk = await start(clock, write_stall_timeout_s=30, max_buffered_bytes=20_000_000)
    desk.operations.answers["queue_names"] = ["q" * 14_000_000]
    client = await desk.connect()
    take_little_at_once(client)
    client.send("getQueueNames")
    await desk.until(lambda: unread_bytes(desk))
    await client.reader.readexactly(PROGRESS_BYTES)
    clock.advance(seconds=31)
    desk.server.sweep()
    await desk.until(lambda: desk.server.connections == 0)
    assert desk.counted("thrift_slow_readers_cut") == 1


async def test_of_many_calls_pipelined_behind_a_long_poll_a_dead_client_gets_no_job(
    desk: ThriftServerUnderTest,
) -> None:
    """Whether a sweep finds the client gone first, or the server as it is about to write the job."""
    gate = Gate("dequeue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("dequeueJobs", 0, request=LONG_POLL)
    await gate.arrived.wait()
    for seqid in range(1, 131):
        client.send("dequeueJobs", seqid, request=LONG_POLL)
    await desk.until(lambda: desk.server.paused_connections)
    client.close()
    await client.writer.wait_closed()
    gate.open()
    await desk.until(lambda: desk.operations.undelivered_calls or desk.operations.cancelled)
    await desk.until(lambda: swept_out(desk))
    handed_out = names(desk).count("dequeue")
    assert len(desk.operations.undelivered_calls) + len(desk.operations.cancelled) == handed_out


async def test_a_peer_that_only_stopped_sending_gets_no_jobs(desk: ThriftServerUnderTest) -> None:
    """Mostly it is gone; were it handed jobs that go back to the queue as well, they would run twice."""
    gate = Gate("dequeue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("dequeueJobs", request=DEQUEUE)
    await gate.arrived.wait()
    (connection,) = desk.server.opened_connections
    client.writer.write_eof()
    await desk.until(lambda: connection.gone)
    gate.open()
    assert await client.closed() == b""
    assert len(desk.operations.undelivered_calls) == 1


async def test_a_peer_that_only_stopped_sending_gets_its_answers(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    for seqid in range(3):
        client.send("getQueueNames", seqid)
    client.writer.write_eof()
    assert [(await client.receive()).seqid for _ in range(3)] == [0, 1, 2]
    assert await client.closed() == b""


async def test_a_peer_that_only_stopped_sending_is_told_that_its_dequeue_is_refused(start: Start) -> None:
    desk = await start(max_concurrent_requests=1)
    desk.operations.before = gate = Gate("create_queue")
    (await desk.connect()).send("createQueue", name="q")
    await gate.arrived.wait()
    client = await desk.connect()
    for seqid in range(100):
        client.send("getQueueNames", seqid)
    client.send("dequeueJobs", 100, request=DEQUEUE)
    client.writer.write_eof()
    refused = [await client.receive() for _ in range(101)]
    assert [(each.seqid, each.exception.detail) for each in refused] == [(n, "TOO_MANY_WAITING") for n in range(101)]
    assert desk.metrics.method("dequeueJobs").msec.count == 1
    gate.open()


async def test_half_a_frame_and_then_nothing_leaves_nothing_behind(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    client.writer.write(encode_call("getQueueNames", 1, context=CONTEXT)[:-3])
    await desk.until(lambda: desk.server.budget.request_bytes > 0)
    client.close()
    await desk.until(lambda: desk.server.connections == 0)
    assert desk.server.budget.request_bytes == 0


# --- bounds ---------------------------------------------------------------------------------------------------------------
async def test_over_the_bound_of_requests_the_caller_is_told_to_come_again(start: Start) -> None:
    desk = await start(max_concurrent_requests=1)
    gate = Gate("create_queue")
    desk.operations.before = gate
    first, second = await desk.connect(), await desk.connect()
    first.send("createQueue", name="q")
    await gate.arrived.wait()
    exception = (await second.call("getQueueNames")).exception
    assert (exception.error_code, exception.detail, exception.retryable) == (500, "TOO_MANY_WAITING", True)
    assert exception.retry_after_ms
    gate.open()
    await first.receive()
    assert (await second.call("getQueueNames")).value == {"emails", "images"}


async def test_long_polls_do_not_count_as_requests_under_way(start: Start) -> None:
    desk = await start(max_concurrent_requests=1)
    gate = Gate("dequeue")
    desk.operations.before = gate
    waiting = [await desk.connect() for _ in range(3)]
    for client in waiting:
        client.send("dequeueJobs", request=LONG_POLL)
    await desk.until(lambda: desk.server.answering.waiting == 3)
    assert (await (await desk.connect()).call("getQueueNames")).exception is None
    gate.open()
    for client in waiting:
        assert (await client.receive()).value.jobs


async def test_one_connection_too_many_is_told_so_and_closed(start: Start) -> None:
    desk = await start(max_connections=2)
    first, second = await desk.connect(), await desk.connect()
    for client in (first, second):
        await client.call("getQueueNames")
    third = await desk.connect()
    exception = (await third.call("getQueueNames")).exception
    assert (exception.error_code, exception.detail, exception.retryable) == (500, "TOO_MANY_CONNECTIONS", True)
    assert await third.closed() == b""
    assert (await first.call("getQueueNames")).exception is None
    first.close()
    await desk.until(lambda: desk.server.connections == 1)
    assert (await (await desk.connect()).call("getQueueNames")).exception is None


async def test_far_over_the_bound_the_oldest_silent_connection_is_closed(start: Start) -> None:
    desk = await start(max_connections=2, max_connections_refused=1)
    speaking = await desk.connect()
    await speaking.call("getQueueNames")
    silent = [await desk.connect() for _ in range(2)]
    await desk.until(lambda: desk.server.connections == 3)
    await desk.connect()
    assert await silent[0].closed() == b""
    assert desk.server.connections == 3
    assert (await speaking.call("getQueueNames")).exception is None


async def test_two_thousand_silent_connections_affect_no_other_client(start: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 2_000 if raise_file_limit(4_500) == 4_500 else 200
    desk = await start(max_connections=count // 2, max_connections_refused=10)
    speaking = await desk.connect()
    await speaking.call("getQueueNames")
    silent = []
    try:
        for _ in range(count):
            peer = socket.socket()
            peer.setblocking(False)
            await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", desk.server.port))
            silent.append(peer)
        await desk.until(lambda: desk.counted("thrift_connections_over_limit") > count // 2)
        await desk.until(lambda: desk.server.connections <= count // 2 + 10)
        assert (await speaking.call("getQueueNames")).exception is None
    finally:
        for peer in silent:
            peer.close()
        await desk.until(lambda: desk.server.connections == 1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connections_are_bound_by_what_the_system_lets_a_process_open(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (RESERVED + CONNECTIONS_MIN, RESERVED + CONNECTIONS_MIN))
    desk = await start(max_connections=1000, max_connections_refused=2)
    clients = [await desk.connect() for _ in range(CONNECTIONS_MIN - 2)]
    for client in clients:
        assert (await client.call("getQueueNames")).exception is None
    assert (await (await desk.connect()).call("getQueueNames")).exception.detail == "TOO_MANY_CONNECTIONS"


async def test_with_few_files_most_connections_are_served_and_not_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections to be refused must not take all places."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (RESERVED + CONNECTIONS_MIN, RESERVED + CONNECTIONS_MIN))
    desk = await start(max_connections=1000, max_connections_refused=256)
    assert desk.server.max_connections == CONNECTIONS_MIN // 2
    assert (await (await desk.connect()).call("getQueueNames")).exception is None


def test_file_descriptors_are_reserved_for_connections_of_other_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (4096, 4096))
    assert raise_file_limit(20_000, 272) == 4096 - RESERVED - 272


async def test_a_server_with_too_few_open_files_does_not_start_and_says_how_many_it_needs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not answer health checks while its clients hold the few that there are."""
    allowed = RESERVED + CONNECTIONS_MIN - 1
    monkeypatch.setattr("resource.getrlimit", lambda _: (allowed, allowed))
    with pytest.raises(TooFewOpenFiles, match=f"may open {allowed} files.* at least {allowed + 1}: raise"):
        await start()


async def test_a_limit_on_open_files_that_lowers_the_connections_is_said_at_info(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pinlater")
    monkeypatch.setattr("resource.getrlimit", lambda _: (RESERVED + 100, RESERVED + 100))
    desk = await start(max_connections=20_000, max_connections_refused=10)
    (line,) = [record for record in caplog.records if "open files" in record.getMessage()]
    assert (line.levelname, line.getMessage()) == ("INFO", "the limit on open files lowers max_connections")
    assert (
        (vars(line)["max_connections"], vars(line)["wanted"]) == (desk.server.max_connections, 20_000) == (90, 20_000)
    )


def test_the_limit_of_open_files_is_raised_up_to_the_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr("resource.setrlimit", lambda _, limits: made.append(limits))
    assert raise_file_limit(100) == 100
    assert raise_file_limit(2000) == 2000
    assert raise_file_limit(20_000) == 4096 - RESERVED
    assert made == [(2000 + RESERVED, 4096), (4096, 4096)]
    made.clear()
    monkeypatch.setattr("resource.getrlimit", lambda _: (4096, 4096))
    assert raise_file_limit(20_000) == 4096 - RESERVED
    assert made == []


FAR_TOO_LONG = encode_call("createQueue", 9, context=CONTEXT, name="q" * 900_000)


def in_flight(desk: ThriftServerUnderTest) -> dict[str, float]:
    """What the budget counts, where it is not 0."""
    return {kind: held for kind, held in desk.server.budget.by_kind().items() if held}


async def refused_for_memory(client: Client, seqid: int) -> str:
    """The next answer is this call's, and a refusal; its text."""
    reply = await client.receive()
    assert (reply.seqid, reply.exception.detail, reply.exception.retryable) == (seqid, "TOO_MANY_WAITING", True)
    return str(reply.exception.message)


async def test_a_frame_for_which_no_memory_is_left_is_read_unheld_and_refused_in_its_turn(start: Start) -> None:
    """The connection stays usable, and so does the server for small requests."""
    desk = await start(max_buffered_bytes=1_000_000)
    first, second = await desk.connect(), await desk.connect()
    first.writer.write(FAR_TOO_LONG[:800_000])
    await desk.until(lambda: desk.server.budget.request_bytes >= 800_000)
    second.writer.write(FAR_TOO_LONG + encode_call("getQueueNames", 10, context=CONTEXT))
    assert "max_buffered_bytes" in await refused_for_memory(second, 9)
    assert (await second.receive()).seqid == 10
    first.writer.write(FAR_TOO_LONG[800_000:])
    assert (await first.receive()).exception is None
    assert (await second.call("createQueue", name="q" * 900_000)).exception is None
    assert (in_flight(desk), desk.counted("thrift_requests_refused_for_memory")) == ({}, 1)


async def test_a_frame_that_alone_is_more_than_the_budget_is_refused_and_nothing_waits_for_it(start: Start) -> None:
    desk = await start(max_buffered_bytes=500_000)
    client = await desk.connect()
    client.writer.write(FAR_TOO_LONG)
    await refused_for_memory(client, 9)
    assert (await client.call("getQueueNames")).exception is None
    assert in_flight(desk) == {}


async def test_while_memory_is_scarce_a_frame_that_never_ends_is_cut(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, max_buffered_bytes=1_000_000)
    client = await desk.connect()
    client.writer.write(FAR_TOO_LONG[:800_000])
    await desk.until(lambda: desk.server.budget.request_bytes >= 800_000)
    clock.advance(seconds=29)
    desk.server.sweep()
    assert desk.server.connections == 1
    clock.advance(seconds=2)
    desk.server.sweep()
    assert await client.closed() == b""
    await desk.until(lambda: desk.server.connections == 0)
    assert (in_flight(desk), desk.counted("thrift_connections_cut_for_memory")) == ({}, 1)


async def test_a_budget_full_of_frames_behind_long_polls_refuses_large_requests_and_takes_small_ones(
    start: Start,
) -> None:
    desk = await start(max_buffered_bytes=2_000_000)
    gate = Gate("dequeue")
    desk.operations.before = gate
    waiting = [await desk.connect() for _ in range(2)]
    for client in waiting:
        client.send("dequeueJobs", request=LONG_POLL)
        client.writer.write(FAR_TOO_LONG)
    await desk.until(lambda: desk.server.budget.request_bytes >= 2 * len(FAR_TOO_LONG))
    assert not desk.server.budget.exhausted
    other = await desk.connect()
    assert (await other.call("getQueueNames")).exception is None
    other.writer.write(FAR_TOO_LONG)
    await refused_for_memory(other, 9)
    gate.open()
    for client in waiting:
        assert (await client.receive()).value.jobs
        assert (await client.receive()).exception is None
    assert in_flight(desk) == {}


async def test_a_frame_behind_a_request_under_way_is_not_read_whole(start: Start) -> None:
    """Otherwise eighty connections with a long poll each would hold eighty times two frames."""
    desk = await start(max_pipelined_bytes=100_000)
    gate = Gate("dequeue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("dequeueJobs", request=LONG_POLL)
    await gate.arrived.wait()
    for seqid in range(10):
        client.send("createQueue", seqid, name="q" * 5_000_000)
    await desk.until(lambda: desk.server.paused_connections)
    assert desk.server.budget.request_bytes < 1_000_000
    gate.open()
    await client.receive()
    for seqid in range(10):
        assert (await client.receive()).seqid == seqid
    assert in_flight(desk) == {}


@pytest.mark.parametrize("leave", [Client.close, hang_up])
@pytest.mark.parametrize("frames", [(200, 10), (12, 5_000_000)], ids=["many", "large"])
async def test_that_the_peer_has_gone_is_seen_though_reading_is_paused(
    start: Start, leave: Callable[[Client], None], frames: tuple[int, int]
) -> None:
    """Also if unread bytes fill the kernel's buffer, with the end of the connection behind them."""
    desk = await start(max_frame_bytes=5_100_000)
    gate = Gate("dequeue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("dequeueJobs", request=LONG_POLL)
    await gate.arrived.wait()
    number, size = frames
    for seqid in range(number):
        client.send("createQueue", seqid, name="q" * size)
    await desk.until(lambda: desk.server.paused_connections)
    leave(client)
    await desk.until(lambda: swept_out(desk) and desk.operations.cancelled)
    assert desk.operations.cancelled == ["dequeue"]
    assert (names(desk), in_flight(desk)) == (["dequeue"], {})


async def test_requests_beyond_the_bound_behind_a_long_poll_are_refused_in_order(start: Start) -> None:
    desk = await start(max_pipelined_requests=10)
    gate = Gate("dequeue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("dequeueJobs", 0, request=LONG_POLL)
    await gate.arrived.wait()
    (connection,) = desk.server.opened_connections
    frame = encode_call("createQueue", 1, context=CONTEXT, name="q")[LENGTH_BYTES:]
    for seqid in range(1, 21):
        client.send("createQueue", seqid, name="q")
    await desk.until(lambda: desk.server.paused_connections)
    kept = connection.held_bytes // (len(frame) + QUEUED_BYTES)
    desk.server.sweep()
    for seqid in range(21, 41):
        client.send("createQueue", seqid, name="q")
    await desk.until(lambda: connection.held_bytes == 40 * (len(frame) + QUEUED_BYTES))
    gate.open()
    replies = [await client.receive() for _ in range(41)]
    assert [reply.seqid for reply in replies] == list(range(41))
    refused = [reply.seqid for reply in replies if reply.exception is not None]
    assert refused == list(range(kept + 1, 41))
    assert (await client.call("createQueue", name="q")).exception is None
    assert in_flight(desk) == {}


async def test_calls_that_show_jobs_reserve_memory_before_they_start(start: Start) -> None:
    desk = await start(max_buffered_bytes=90_000_000)
    gate = Gate("scan")
    desk.operations.before = gate
    clients = [await desk.connect() for _ in range(4)]
    request = types.ScanRequest("q", 0, limit=10_000, bodies=True)
    for client in clients[:3]:
        client.send("scanJobs", 9, request=request)
    await gate.arrived.wait()
    reply = await clients[3].call("scanJobs", request=request)
    refusals = [reply.exception.detail]
    gate.open()
    for client in clients[:3]:
        answer = await client.receive()
        refusals += [answer.exception.detail] if answer.exception is not None else []
    assert refusals == ["TOO_MANY_WAITING"] * 2
    assert (await clients[3].call("scanJobs", request=request)).exception is None
    assert in_flight(desk) == {}


async def test_a_dry_run_that_says_it_would_wait_reserves_memory_too(start: Start) -> None:
    """It shows at once what there is, so it is no long poll."""
    desk = await start(max_buffered_bytes=70_000_000)
    client = await desk.connect()
    request = types.DequeueRequest("q", 1_000, dry_run=True, wait_ms=60_000)
    assert (await client.call("dequeueJobs", request=request)).exception is None
    held = desk.server.budget.reserve_scan(60_000_000)
    assert (await client.call("dequeueJobs", request=request)).exception.detail == "TOO_MANY_WAITING"
    desk.server.budget.free_scan(held)


@pytest.mark.parametrize(
    ("method", "request_of"),
    [("scanJobs", partial(types.ScanRequest, limit=1, paged=True)), ("countJobs", types.CountRequest)],
)
async def test_a_filter_reserves_memory_for_the_jobs_that_it_compares(
    desk: ThriftServerUnderTest, method: str, request_of: Callable[..., object]
) -> None:
    client = await desk.connect()
    desk.server.budget.reserve_scan(desk.server.budget.free_bytes - 100_000)
    assert (await client.call(method, request=request_of("q", 0))).exception is None
    reply = await client.call(method, request=request_of("q", 0, filter=types.JobFilter(0, min_attempts=1)))
    assert reply.exception.detail == "TOO_MANY_WAITING"


async def test_a_scan_that_may_need_more_than_the_whole_budget_runs_alone(start: Start) -> None:
    desk = await start(max_buffered_bytes=1_000)
    client = await desk.connect()
    request = types.ScanRequest("q", 0, limit=10_000, bodies=True)
    frame = encode_call("scanJobs", 1, context=CONTEXT, request=request)
    assert desk.server.answering.budget.reserve_scan(10**9) == 1_000
    client.writer.write(frame)
    await refused_for_memory(client, 1)
    desk.server.answering.budget.free_scan(1_000)
    # The request itself is counted too, so it fits only where its answer may take the rest.
    assert desk.server.answering.budget.reserve_scan(1_000 - len(frame)) == 1_000 - len(frame)


async def test_answers_that_are_not_read_are_counted_and_beyond_the_budget_the_oldest_are_cut(start: Start) -> None:
    desk = await start(max_buffered_bytes=30_000_000)
    desk.operations.answers["queue_names"] = ["q" * 12_000_000]
    clients = []
    for _ in range(10):
        client = await desk.connect()
        client.read_no_further()
        client.send("getQueueNames")
        clients.append(client)
        await desk.until(lambda: all(each.active_at_s and not each.busy for each in desk.server.opened_connections))
    await desk.until(lambda: desk.counted("thrift_slow_readers_cut_for_memory") >= 3)
    assert in_flight(desk)["answers"] <= 30_000_000 * 5 / 4
    assert (await clients[-1].receive()).exception is None
    for client in clients:
        client.close()
    await desk.until(lambda: desk.server.connections == 0)
    assert in_flight(desk) == {}


async def test_a_client_that_does_not_read_gets_no_more_and_is_cut(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, write_buffer_high_bytes=10_000, write_stall_timeout_s=30)
    desk.operations.answers["queue_names"] = ["q" * 100_000]
    client = await desk.connect()
    client.read_no_further()
    for seqid in range(2_000):
        client.send("getQueueNames", seqid)
    await desk.until(lambda: unread_bytes(desk))
    asked = len(desk.operations.asked)
    assert asked < 2_000
    clock.advance(seconds=29)
    desk.server.sweep()
    assert desk.server.connections == 1
    clock.advance(seconds=2)
    desk.server.sweep()
    await desk.until(lambda: desk.server.connections == 0)
    assert desk.counted("thrift_slow_readers_cut") == 1
    assert len(desk.operations.asked) == asked


async def test_a_slow_reader_gets_everything_in_the_end(start: Start) -> None:
    desk = await start(write_buffer_high_bytes=10_000)
    desk.operations.answers["queue_names"] = ["q" * 100_000]
    client = await desk.connect()
    client.read_no_further()
    for seqid in range(300):
        client.send("getQueueNames", seqid)
    await desk.until(lambda: unread_bytes(desk))
    assert [(await client.receive()).seqid for _ in range(300)] == list(range(300))


# --- idleness -------------------------------------------------------------------------------------------------------------
async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, idle_timeout_s=300)
    gate = Gate("dequeue")
    desk.operations.before = gate
    silent, spoken, waiting = [await desk.connect() for _ in range(3)]
    await spoken.call("getQueueNames")
    waiting.send("dequeueJobs", request=LONG_POLL)
    await gate.arrived.wait()
    await desk.until(lambda: desk.server.connections == 3)
    clock.advance(seconds=299)
    await spoken.call("getQueueNames")
    clock.advance(seconds=2)
    desk.server.sweep()
    assert await silent.closed() == b""
    clock.advance(seconds=300)
    desk.server.sweep()
    assert await spoken.closed() == b""
    gate.open()
    assert (await waiting.receive()).value.jobs
    clock.advance(seconds=299)
    desk.server.sweep()
    assert (await waiting.call("getQueueNames")).exception is None
    assert desk.counted("thrift_idle_connections_closed") == 2


async def test_the_sweep_runs_by_itself(start: Start) -> None:
    desk = await start(idle_timeout_s=0.1)
    assert await (await desk.connect()).closed() == b""


async def test_a_trickle_of_bytes_is_idle_too(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, idle_timeout_s=300)
    client = await desk.connect()
    for sent, byte in enumerate(b"\0\0\1", start=1):
        client.writer.write(bytes([byte]))
        await desk.until(partial(lambda sent: desk.server.budget.request_bytes == sent, sent))
        clock.advance(seconds=150)
    desk.server.sweep()
    assert await client.closed() == b""


# --- draining -------------------------------------------------------------------------------------------------------------
async def test_a_drain_answers_running_requests_and_accepts_no_connections(desk: ThriftServerUnderTest) -> None:
    gate = Gate("create_queue")
    desk.operations.before = gate
    busy, idle = await desk.connect(), await desk.connect()
    busy.send("createQueue", 5, name="q")
    await gate.arrived.wait()
    port = desk.server.port
    drain = asyncio.create_task(desk.server.drain(DEADLINE_S))
    assert await idle.closed() == b""
    with pytest.raises(OSError, match=r"refused|failed"):
        await asyncio.open_connection("127.0.0.1", port)
    assert not drain.done()
    gate.open()
    assert (await busy.receive()).seqid == 5
    await drain
    assert await busy.closed() == b""
    assert desk.server.connections == 0


async def test_draining_answers_what_was_on_its_way(desk: ThriftServerUnderTest) -> None:
    clients = [await desk.connect() for _ in range(20)]
    await desk.until(lambda: desk.server.connections == 20)
    for client in clients:
        client.send("getQueueNames", 3)
    await desk.server.drain(DEADLINE_S)
    for client in clients:
        assert (await client.receive()).seqid == 3


async def test_a_request_that_outlasts_the_grace_time_is_cancelled(desk: ThriftServerUnderTest) -> None:
    desk.operations.before = Gate("create_queue")
    client = await desk.connect()
    client.send("createQueue", name="q")
    await desk.until(lambda: desk.operations.asked)
    await desk.server.drain(0.1)
    assert await client.closed() == b""
    assert desk.operations.cancelled == ["create_queue"]


async def test_draining_twice_is_harmless_and_so_is_draining_before_the_start(
    desk: ThriftServerUnderTest, start: Start
) -> None:
    await desk.server.drain(1)
    await desk.server.drain(1)


async def test_a_port_in_use_is_an_error_at_the_start(desk: ThriftServerUnderTest, start: Start) -> None:
    with pytest.raises(OSError, match="in use"):
        await start(port=desk.server.port)
