"""The benchmark's hand-written frames are what the generated types read and write."""

from __future__ import annotations

from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from bench import frames
from tests.compiled import PinLater as _service
from tests.compiled import ttypes as _ttypes

# Generated code has no types.
PinLater: Any = _service
ttypes: Any = _ttypes


def decoded(frame: bytes, method: str) -> Any:
    """The arguments of a call frame, which must be of that method and have nothing behind them."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    buffer = TMemoryBuffer(frame[4:])
    protocol = TBinaryProtocol(buffer)
    assert protocol.readMessageBegin()[:2] == (method, TMessageType.CALL)
    arguments = getattr(PinLater, f"{method}_args")()
    arguments.read(protocol)
    assert buffer.read(1) == b""
    return arguments


def reply(method: str, result: Any, kind: int = TMessageType.REPLY) -> bytes:
    """A reply frame."""
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    protocol.writeMessageBegin(method, kind, 1)
    result.write(protocol)
    frame: bytes = buffer.getvalue()
    return len(frame).to_bytes(4, "big") + frame


def test_an_enqueue_carries_its_jobs() -> None:
    call = decoded(frames.enqueue("q", [b"one", b"\xff"], run_after_ms=5), "enqueueJobs")
    assert call.requestContext.source == "bench"
    assert call.request.queueName == "q"
    assert [job.body for job in call.request.jobs] == [b"one", b"\xff"]
    assert {job.runAfterTimestampMillis for job in call.request.jobs} == {5}


def test_a_dequeue_carries_its_limit_and_wait() -> None:
    assert decoded(frames.dequeue("q", 7), "dequeueJobs").request.waitMillis is None
    request = decoded(frames.dequeue("q", 7, wait_ms=900), "dequeueJobs").request
    assert (request.queueName, request.limit, request.waitMillis, request.coverage) == ("q", 7, 900, 1.0)


def test_an_ack_names_each_job() -> None:
    names = [b"q:s1:p1:1", b"q:s1:p1:20"]
    request = decoded(frames.AckMaker("q").frame(names), "ackDequeuedJobs").request
    assert request.queueName == "q"
    assert [info.jobDescriptor.encode() for info in request.jobsSucceeded] == names


def test_a_failed_ack_says_why_and_when_the_job_is_due_again() -> None:
    request = decoded(frames.AckMaker("q", "no disk").frame([b"q:s1:p1:1"]), "ackDequeuedJobs").request
    (info,) = request.jobsFailed
    assert (info.jobDescriptor, info.appendCustomStatus, info.retryDelayMillis) == ("q:s1:p1:1", "no disk", 3_600_000)
    assert request.jobsSucceeded is None


def test_a_create_queue_names_it() -> None:
    assert decoded(frames.create_queue("q"), "createQueue").name == "q"


def test_claimed_jobs_are_read_from_an_answer() -> None:
    jobs = {"q:s1:p1:1": b"one", "q:s1:p1:20": b""}
    result = PinLater.dequeueJobs_result(success=ttypes.PinLaterDequeueResponse(jobs=jobs))
    frame = reply("dequeueJobs", result)
    assert {job.descriptor.decode(): job.body for job in frames.claimed_jobs(frame)} == jobs
    assert [name.decode() for name in frames.claimed_descriptors(frame)] == list(jobs)


@pytest.mark.parametrize("answer", [{}, {"jobs": {}}, {"jobOrder": []}])
def test_an_empty_answer_has_no_jobs(answer: dict[str, Any]) -> None:
    result = PinLater.dequeueJobs_result(success=ttypes.PinLaterDequeueResponse(**answer))
    assert frames.claimed_jobs(reply("dequeueJobs", result)) == []
    assert frames.claimed_descriptors(reply("dequeueJobs", result)) == []


def test_an_answer_without_a_value_is_no_error() -> None:
    frames.result_at(reply("ackDequeuedJobs", PinLater.ackDequeuedJobs_result()))


def test_a_refusal_says_its_code_and_message() -> None:
    error = ttypes.PinLaterException(errorCode=413, message="Queue not found: q")
    with pytest.raises(frames.RefusedFrame, match="413: Queue not found: q"):
        frames.result_at(reply("enqueueJobs", PinLater.enqueueJobs_result(e=error)))


def test_thrifts_own_error_is_a_refusal() -> None:
    error = TApplicationException(TApplicationException.PROTOCOL_ERROR, "bad")
    with pytest.raises(frames.RefusedFrame, match="bad"):
        frames.result_at(reply("enqueueJobs", error, TMessageType.EXCEPTION))
