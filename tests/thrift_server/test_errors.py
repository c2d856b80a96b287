"""What a caller reads of a failure, and that a failure never costs more than its own request."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest
from thrift.Thrift import TMessageType

from pinlater.domain import errors
from pinlater.server.operations.values import DequeueResult
from pinlater.wire.codec import Reply
from pinlater.wire.methods import METHODS_BY_NAME, message_head
from tests import structs as types
from tests.thrift_server.conftest import ThriftServerUnderTest
from tests.thrift_server.fake_operations import CLAIM, CLAIMED

ERRORS = [
    (errors.QueueNameInvalid.of("a b"), 410, "QUEUE_NAME_INVALID", "Invalid queue name: a b"),
    (errors.QueueNameTooLong.of("a" * 65, 64), 411, "QUEUE_NAME_TOO_LONG", None),
    (errors.QueueNotFound.of("q"), 413, "QUEUE_NOT_FOUND", "Queue not found: q"),
    (errors.PasswordInvalid(), 403, "PASSWORD_INVALID", "Invalid admin password."),
    (errors.PriorityNotSupported.of(9, 3), 416, "PRIORITY_NOT_SUPPORTED", None),
    (errors.ContinuationInvalid.of("x"), 400, "CONTINUATION_INVALID", None),
    (errors.DequeueRateLimited.of("q"), 429, "DEQUEUE_RATE_LIMITED", "Dequeue rate limit exceeded for queue: q"),
    (errors.QueueFull.of("q", 2, 1, 1), 430, "QUEUE_FULL", None),
    (errors.StoreFull.of("/x"), 430, "STORE_FULL", None),
    (errors.NoHealthyShards(), 501, "NO_HEALTHY_SHARDS", "Unable to find healthy shard"),
    (errors.ShardConnectionFailed("gone"), 502, "SHARD_UNREACHABLE", None),
    (errors.BodyTooLarge.of(0, 2, 1), 500, "BODY_TOO_LARGE", None),
    (errors.TooManyWaiting("no"), 500, "TOO_MANY_WAITING", None),
    (errors.InvalidArgument("no"), 500, "INVALID_ARGUMENT", None),
    (errors.DescriptorInvalid.of("no"), 500, "DESCRIPTOR_INVALID", None),
    (errors.Draining(), 500, "DRAINING", None),
]


async def failing(
    desk: ThriftServerUnderTest, error: BaseException, method: str = "createQueue", **arguments: Any
) -> Reply:
    async def fail(*_: Any, **__: Any) -> None:
        raise error

    desk.operations.before = fail
    client = await desk.connect()
    return await client.call(method, **(arguments or {"name": "q"}))


@pytest.mark.parametrize(("error", "code", "detail", "text"), ERRORS, ids=lambda value: type(value).__name__)
async def test_errors_of_the_service_are_declared_exceptions(
    desk: ThriftServerUnderTest, error: errors.PinLaterError, code: int, detail: str, text: str | None
) -> None:
    exception = (await failing(desk, error)).exception
    assert (exception.error_code, exception.detail) == (code, detail)
    assert exception.message == (text or error.message)
    assert exception.retryable is error.retryable
    assert exception.retry_after_ms == error.retry_after_ms
    assert desk.metrics.method("createQueue").errors == {errors.ErrorCode(code).name: 1}


async def test_a_fault_of_ours_is_logged_and_told_without_its_inside(
    desk: ThriftServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        exception = (await failing(desk, ZeroDivisionError("secret inside"))).exception
    assert (exception.error_code, exception.detail, exception.retryable) == (500, "INTERNAL", False)
    assert "secret" not in exception.message
    assert "secret inside" in caplog.text


async def test_after_a_failure_the_connection_goes_on(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()

    async def fail(*_: Any, **__: Any) -> None:
        raise KeyError("x")

    desk.operations.before = fail
    assert (await client.call("getQueueNames")).exception.detail == "INTERNAL"
    desk.operations.before = None
    assert (await client.call("getQueueNames")).value == {"emails", "images"}


@pytest.mark.parametrize("name", [b"__can__finagle__trace__v3__", b"noSuchMethod", b"\xff\xfe"])
async def test_an_unknown_method_is_answered_and_the_connection_stays_open(
    desk: ThriftServerUnderTest, name: bytes
) -> None:
    client = await desk.connect()
    probe = message_head(name, TMessageType.CALL) + struct.pack(">i", 99) + b"\0"
    client.writer.write(struct.pack(">i", len(probe)) + probe)
    reply = await client.receive()
    assert reply.seqid == 99
    assert reply.application_error is not None
    assert reply.application_error.kind == 1
    assert (await client.call("getJobCount", request=types.CountRequest("q", 0))).value == 2**31 - 1


async def test_a_call_that_cannot_be_decoded_is_answered_and_the_connection_stays_open(
    desk: ThriftServerUnderTest,
) -> None:
    client = await desk.connect()
    reply = await client.call("enqueueJobs", request=types.EnqueueRequest("q", None))
    assert reply.application_error is not None
    assert reply.application_error.kind == 7
    assert "jobs" in reply.application_error.message
    assert (await client.call("getQueueNames")).value == {"emails", "images"}
    assert desk.counted("thrift_undecodable_requests") == 1


async def test_methods_whose_answers_hold_no_outcomes_report_no_errors_of_single_items(
    desk: ThriftServerUnderTest,
) -> None:
    """Such an error would reach no caller."""
    client = await desk.connect()
    acks = types.AckBatch("q", [types.Ack("d")], per_item_errors=True)
    await client.call("ackDequeuedJobs", request=acks)
    checkpoints = types.CheckpointBatch("q", [types.Checkpoint("d")], per_item_errors=True)
    await client.call("checkpointJobs", request=checkpoints)
    assert [arguments[1].per_item_errors for _, arguments, _ in desk.operations.asked] == [None, None]


async def test_oneway_calls_take_effect_and_get_no_answer(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    head = bytearray(METHODS_BY_NAME["createQueue"].call_head)
    head[3] = TMessageType.ONEWAY
    body = b"\x0c\x00\x01\x0b\x00\x01\x00\x00\x00\x01s\x00\x0b\x00\x02\x00\x00\x00\x01q\x00"
    frame = bytes(head) + struct.pack(">i", 5) + body
    unknown = message_head(b"nothing", TMessageType.ONEWAY) + struct.pack(">i", 6) + b"\0"
    for one in (frame, unknown):
        client.writer.write(struct.pack(">i", len(one)) + one)
    reply = await client.call("getQueueNames")
    assert reply.seqid == 1
    assert [name for name, _, _ in desk.operations.asked] == ["create_queue", "queue_names"]


async def test_an_answer_larger_than_a_frame_is_an_error_and_its_jobs_go_back(start: Any) -> None:
    desk: ThriftServerUnderTest = await start(max_frame_bytes=2000)
    large = CLAIM._replace(jobs=[CLAIMED._replace(body=b"x" * 2000)])
    desk.operations.answers["dequeue"] = DequeueResult([large])
    client = await desk.connect()
    reply = await client.call("dequeueJobs", request=types.DequeueRequest("q", 1))
    assert reply.exception.detail == "ANSWER_TOO_LARGE"
    assert desk.operations.undelivered_calls == [("q", [large])]


async def test_an_answer_that_cannot_be_encoded_is_our_fault_and_its_jobs_go_back(desk: ThriftServerUnderTest) -> None:
    broken = CLAIM._replace(jobs=[CLAIMED._replace(attempt=2**40)])
    desk.operations.answers["dequeue"] = DequeueResult([broken])
    client = await desk.connect()
    reply = await client.call("dequeueJobs", request=types.DequeueRequest("q", 1))
    assert reply.exception.detail == "INTERNAL"
    assert len(desk.operations.undelivered_calls) == 1


async def test_requests_are_counted_and_timed(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    for _ in range(3):
        await client.call("getQueueNames")
    metrics = desk.metrics.method("getQueueNames")
    assert metrics.requests == 3
    assert metrics.msec.count == 3


async def test_at_debug_a_request_is_one_line_without_its_body(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pinlater.server.thrift"):
        desk: ThriftServerUnderTest = await start()
        client = await desk.connect()
        await client.call("enqueueJobs", request=types.EnqueueRequest("q", [types.Job(b"secret")]))
    (record,) = [record for record in caplog.records if record.message == "request"]
    assert vars(record)["method"] == "enqueueJobs"
    assert vars(record)["source"] == "worker-1"
    assert "secret" not in str(vars(record))


async def test_a_fault_while_an_answer_is_made_closes_the_connection(
    desk: ThriftServerUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client would wait for ever for the answer. No request is known to cause one, so the test puts it there."""

    async def fails(*_: object) -> bytes:
        raise AttributeError("no such field")

    monkeypatch.setattr(desk.server.answering, "answer", fails)
    client = await desk.connect()
    client.send("getQueueNames")
    assert await client.closed() == b""
    assert "its request failed" in caplog.text
