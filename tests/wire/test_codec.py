"""Calls and replies survive the way over the wire, and what can't be decoded says so in the one way there is."""

from __future__ import annotations

import struct
import time
from collections.abc import Generator
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from pinlater.wire.codec import (
    Decoder,
    encode_application_error,
    encode_call,
    encode_exception,
    encode_reply,
    encode_reply_in_steps,
)
from pinlater.wire.errors import ApplicationErrorKind, WireError
from pinlater.wire.limits import WireLimits
from pinlater.wire.methods import METHODS_BY_NAME, message_head
from tests import structs as types
from tests.compiled import PinLater, compiled, ttypes
from tests.wire.samples import CONTEXT, full_arguments, full_calls, full_job, message


def plain(value: Any) -> Any:
    """Structs as dictionaries, so that ours and generated ones compare."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    spec = types.SPECS.get(type(value))
    return value if spec is None else {entry[2]: plain(getattr(value, entry[2])) for entry in spec if entry is not None}


def by_apache(name: str, kind: int, seqid: int, arguments: Any, *, strict: bool) -> bytes:
    """The same message as Apache's own pure Python protocol writes it."""
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer, strictWrite=strict)
    protocol.writeMessageBegin(name, kind, seqid)
    protocol.writeStruct(arguments, arguments.thrift_spec)
    written: bytes = buffer.getvalue()
    return written


@pytest.mark.parametrize("name", METHODS_BY_NAME)
def test_every_field_of_every_call_arrives(name: str) -> None:
    call = Decoder().call(message(full_calls()[name]))
    sent = {"context": CONTEXT, **full_arguments()[name]}
    assert call.method.name == name
    assert call.seqid == 7
    assert not call.oneway
    assert {key: plain(getattr(call.arguments, key)) for key in sent} == plain(sent)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", METHODS_BY_NAME)
def test_calls_that_apache_thrift_writes_are_read_with_either_header(name: str, strict: bool) -> None:
    arguments = compiled(METHODS_BY_NAME[name].arguments.cls(context=CONTEXT, **full_arguments()[name]))
    call = Decoder().call(by_apache(name, TMessageType.CALL, -5, arguments, strict=strict))
    assert (call.method.name, call.seqid) == (name, -5)
    assert plain(call.arguments.context) == plain(CONTEXT)


def test_calls_are_written_as_apache_writes_them() -> None:
    arguments = PinLater.createQueue_args(compiled(CONTEXT), "emails")
    assert message(encode_call("createQueue", 3, context=CONTEXT, name="emails")) == by_apache(
        "createQueue", TMessageType.CALL, 3, arguments, strict=True
    )


def test_replies_are_written_as_apache_writes_them() -> None:
    answer = types.Enqueued(["emails:s1:p1:73"])
    frame = encode_reply(METHODS_BY_NAME["enqueueJobs"], 3, answer)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert message(frame) == by_apache(
        "enqueueJobs", TMessageType.REPLY, 3, PinLater.enqueueJobs_result(compiled(answer)), strict=True
    )


def test_fields_left_out_show_their_defaults_but_attempts_show_that_they_were() -> None:
    job = types.Job(b"x", priority=None, attempts_allowed=None, custom_status=None, unique_scope=None)
    frame = encode_call(
        "enqueueJobs",
        1,
        context=types.RequestContext("me", None),
        request=types.EnqueueRequest("q", [job]),
    )
    arguments = Decoder().call(message(frame)).arguments
    received = arguments.request.jobs[0]
    assert (received.priority, received.custom_status, received.unique_scope) == (1, "", 1)
    assert received.attempts_allowed is None
    assert arguments.context.request_id == ""


def test_one_job_s_fields_do_not_leak_into_the_next() -> None:
    jobs = [full_job(), types.Job(b"x", attempts_allowed=None)]
    frame = encode_call("enqueueJobs", 1, context=CONTEXT, request=types.EnqueueRequest("q", jobs))
    second = Decoder().call(message(frame)).arguments.request.jobs[1]
    assert second.headers is None
    assert second.attempts_allowed is None


def test_unknown_fields_are_skipped() -> None:
    head = message_head(b"createQueue", TMessageType.CALL) + struct.pack(">i", 1)
    context = (
        b"\x0b\x00\x01\x00\x00\x00\x01s" + b"\x0d\x00\xc8\x0b\x08\x00\x00\x00\x01\x00\x00\x00\x01k\x00\x00\x00\x05\x00"
    )
    body = b"\x0c\x00\x01" + context + b"\x0f\x03\xe7\x03\x00\x00\x00\x02ab" + b"\x0b\x00\x02\x00\x00\x00\x01q\x00"
    call = Decoder().call(head + body)
    assert (call.arguments.context.source, call.arguments.name) == ("s", "q")


def test_bytes_come_back_as_they_were() -> None:
    body = bytes(range(256)) * 4
    request = types.EnqueueRequest("q", [types.Job(body)])
    call = Decoder().call(message(encode_call("enqueueJobs", 1, context=CONTEXT, request=request)))
    assert call.arguments.request.jobs[0].body == body


# --- what can't be decoded ------------------------------------------------------------------------------------------------
def refused(frame: bytes) -> WireError:
    with pytest.raises(WireError) as caught:
        Decoder().call(frame)
    return caught.value


def test_the_probe_of_finagle_is_an_unknown_method_with_its_sequence_id() -> None:
    probe = message_head(b"__can__finagle__trace__v3__", TMessageType.CALL) + struct.pack(">i", 42) + b"\0"
    error = refused(probe)
    assert (error.kind, error.seqid, error.fatal) == (ApplicationErrorKind.UNKNOWN_METHOD, 42, False)


@pytest.mark.parametrize("size", [0, 256, 257, 2**16, 2**24])
@pytest.mark.parametrize("strict", [True, False])
def test_a_name_of_any_length_is_an_unknown_method(size: int, strict: bool) -> None:
    name = b"n" * size
    head = message_head(name, TMessageType.CALL) if strict else struct.pack(">i", size) + name + b"\x01"
    error = refused(head + struct.pack(">i", 42) + b"\0")
    assert (error.kind, error.name, error.seqid) == (ApplicationErrorKind.UNKNOWN_METHOD, name, 42)
    assert len(error.message) < 200


def _without(method: str, /, **arguments: object) -> bytes:
    return message(encode_call(method, 9, **arguments))


@pytest.mark.parametrize(
    "frame",
    [
        _without("createQueue", context=CONTEXT),
        _without("createQueue", name="q"),
        _without("getQueueNames"),
        _without("getQueueNames", context=types.RequestContext()),
        _without("enqueueJobs", context=CONTEXT, request=types.EnqueueRequest("q")),
        _without("enqueueJobs", context=CONTEXT, request=types.EnqueueRequest("q", [types.Job()])),
        _without("enqueueJobs", context=CONTEXT, request=types.EnqueueRequest(None, [types.Job(b"")])),
        _without("dequeueJobs", context=CONTEXT, request=types.DequeueRequest("q")),
        _without(
            "dequeueJobs",
            context=CONTEXT,
            request=types.DequeueRequest("q", 1, types.AckBatch("q", [types.Ack("d"), types.Ack()])),
        ),
        _without("cancelJobs", context=CONTEXT, queue="q"),
    ],
)
def test_a_missing_required_field_is_a_protocol_error(frame: bytes) -> None:
    error = refused(frame)
    assert (error.kind, error.seqid, error.fatal) == (ApplicationErrorKind.PROTOCOL_ERROR, 9, False)
    assert "missing" in error.message


def test_a_required_field_of_another_type_counts_as_missing() -> None:
    head = message_head(b"createQueue", TMessageType.CALL) + struct.pack(">i", 1)
    body = b"\x0c\x00\x01\x0b\x00\x01\x00\x00\x00\x01s\x00" + b"\x08\x00\x02\x00\x00\x00\x07" + b"\x00"
    assert "Required field name is missing" in refused(head + body).message


def test_a_list_with_elements_of_another_type_is_a_protocol_error() -> None:
    good = message(encode_call("lookupJobs", 1, context=CONTEXT, request=types.LookupRequest(["a"], None)))
    bad = good.replace(
        b"\x0f\x00\x01\x0b\x00\x00\x00\x01\x00\x00\x00\x01a", b"\x0f\x00\x01\x08\x00\x00\x00\x01\x00\x00\x00\x01"
    )
    assert bad != good
    assert refused(bad).kind is ApplicationErrorKind.PROTOCOL_ERROR


@pytest.mark.parametrize("name", METHODS_BY_NAME)
def test_a_call_cut_anywhere_is_refused(name: str) -> None:
    frame = message(full_calls()[name])
    for end in range(len(frame)):
        refused(frame[:end])


def test_bytes_left_over_are_refused() -> None:
    assert "left over" in refused(message(full_calls()["createQueue"]) + b"\0").message


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"ok\xe2\x82"])
@pytest.mark.parametrize("where", [b"emails", b"worker-1", b"order-1", b"00-ab-cd-01", b"traceparent"])
def test_text_that_is_not_utf8_is_refused(where: bytes, text: bytes) -> None:
    frame = message(full_calls()["enqueueJobs"])
    bad = frame.replace(
        len(where).to_bytes(4, "big") + where, len(where).to_bytes(4, "big") + text.rjust(len(where), b"x")
    )
    assert bad != frame
    assert "UTF-8" in refused(bad).message


def test_text_that_holds_a_replacement_character_itself_is_fine() -> None:
    frame = encode_call("cancelJobs", 1, context=CONTEXT, queue="q", descriptors=["\ufffd", "x"])
    assert Decoder().call(message(frame)).arguments.descriptors == ["\ufffd", "x"]


def test_bodies_need_not_be_utf8_and_neither_need_new_bodies() -> None:
    for name in ("enqueueJobs", "checkpointJobs"):
        Decoder().call(message(full_calls()[name]))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x80\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x80\x01\x00\x01\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x80\x01\x00\x01\x7f\xff\xff\xffname\x00\x00\x00\x00",
        b"\x80\x01\x00\x09\x00\x00\x00\x01q\x00\x00\x00\x01\x00",
        b"\x00\x00\x00\x01q\x09\x00\x00\x00\x01\x00",
        b"\0" * 100,
    ],
)
def test_a_frame_that_is_not_thrift_is_a_fatal_error(frame: bytes) -> None:
    assert refused(frame).fatal


def test_a_reply_where_a_call_belongs_is_answered() -> None:
    error = refused(message(encode_reply(METHODS_BY_NAME["createQueue"], 5)))
    assert (error.kind, error.seqid, error.fatal) == (ApplicationErrorKind.INVALID_MESSAGE_TYPE, 5, False)


def test_oneway_calls_say_so_even_when_they_are_unknown() -> None:
    frame = message(full_calls()["getQueueNames"])
    oneway = frame[:3] + bytes([TMessageType.ONEWAY]) + frame[4:]
    assert Decoder().call(oneway).oneway
    unknown = message_head(b"nothing", TMessageType.ONEWAY) + b"\0\0\0\1\0"
    assert refused(unknown).oneway


def test_containers_beyond_the_limit_are_refused_before_they_are_built() -> None:
    decoder = Decoder(WireLimits(max_container_items=10))
    frame = encode_call("cancelJobs", 1, context=CONTEXT, queue="q", descriptors=["x"] * 11)
    with pytest.raises(WireError):
        decoder.call(message(frame))
    assert decoder.call(message(encode_call("getQueueNames", 1, context=CONTEXT))).seqid == 1


def test_deeply_nested_unknown_fields_are_refused() -> None:
    head = message_head(b"getQueueNames", TMessageType.CALL) + b"\0\0\0\1"
    for depth in (100, 1_000_000):
        assert not refused(head + b"\x0c\x00\x63" * depth + b"\0" * (depth + 1)).fatal


# --- replies --------------------------------------------------------------------------------------------------------------
def test_a_reply_brings_its_value() -> None:
    answer = types.Enqueued(["a", "b"], [1])
    reply = Decoder().reply(message(encode_reply(METHODS_BY_NAME["enqueueJobs"], 8, answer)))
    assert (reply.name, reply.seqid, reply.exception, reply.application_error) == ("enqueueJobs", 8, None, None)
    assert plain(reply.value) == {"descriptors": ["a", "b"], "existing": [1]}


def test_a_void_reply_is_none_and_a_lacking_value_is_an_application_error() -> None:
    decoder = Decoder()
    assert decoder.reply(message(encode_reply(METHODS_BY_NAME["createQueue"], 8))) == (
        "createQueue",
        8,
        None,
        None,
        None,
    )
    empty = message_head(b"getJobCount", TMessageType.REPLY) + b"\0\0\0\1\0"
    lacking = decoder.reply(empty).application_error
    assert lacking is not None
    assert lacking.kind == ApplicationErrorKind.MISSING_RESULT


def test_numbers_sets_maps_and_lists_come_back() -> None:
    decoder = Decoder()
    for name, value in {
        "getJobCount": 2**31 - 1,
        "getQueueNames": {"a", "b"},
        "lookupJobs": {},
        "cancelJobs": [],
    }.items():
        assert decoder.reply(message(encode_reply(METHODS_BY_NAME[name], 1, value))).value == value


def test_a_declared_exception_brings_all_its_fields() -> None:
    exception = types.PinLaterException(ttypes.ErrorCode.UNKNOWN, "no", "STORE_FULL", True, 1_000)
    reply = Decoder().reply(message(encode_exception(METHODS_BY_NAME["createQueue"], 8, exception)))
    received = reply.exception
    assert (received.error_code, received.message, received.detail) == (500, "no", "STORE_FULL")
    assert (received.retryable, received.retry_after_ms) == (True, 1_000)


def test_an_application_error_is_read_by_us_and_by_apache() -> None:
    frame = message(
        encode_application_error(b"nope", 4, ApplicationErrorKind.UNKNOWN_METHOD, "Invalid method name: 'nope'")
    )
    reply = Decoder().reply(frame)
    assert (reply.name, reply.seqid) == ("nope", 4)
    assert reply.application_error == (1, "Invalid method name: 'nope'")
    protocol = TBinaryProtocol(TMemoryBuffer(frame))
    assert protocol.readMessageBegin() == ("nope", TMessageType.EXCEPTION, 4)
    theirs = TApplicationException()
    theirs.read(protocol)
    assert theirs.type == TApplicationException.UNKNOWN_METHOD


WITHOUT_ITS_ORDER = encode_reply(
    METHODS_BY_NAME["stopBulkRun"],
    1,
    types.BulkRun("run", None, "who", 1, 0, 0, 0, 0),
)


@pytest.mark.parametrize(
    "frame", [b"", b"junk and more junk", message(full_calls()["createQueue"]), message(WITHOUT_ITS_ORDER)]
)
def test_an_invalid_reply_is_a_wire_error(frame: bytes) -> None:
    with pytest.raises(WireError):
        Decoder().reply(frame)


@pytest.mark.parametrize(
    "job",
    [
        types.Job(b"x", priority=300),
        types.Job(b"x", run_after_ms=2**63),
        types.Job(b"x", custom_status="\ud800"),
        types.Job(b"x", headers={"a": 1}),
        types.Job(3.5),
    ],
)
def test_a_value_that_can_not_be_encoded_is_a_wire_error(job: Any) -> None:
    with pytest.raises(WireError):
        encode_call("enqueueJobs", 1, context=CONTEXT, request=types.EnqueueRequest("q", [job]))


def in_steps(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """What the generator returns, and in how many steps."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.mark.parametrize("items_a_step", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ackJobs", [types.AckResult(f"q:s1:p1:{number}", number % 3) for number in range(7)]),
        ("lookupJobs", {f"q:s1:p1:{number}": types.JobInfo(f"d{number}", 1, 2, 3) for number in range(7)}),
        ("getQueueStats", [types.QueueStats(f"q{number}", False, [], 0) for number in range(7)]),
    ],
)
def test_a_reply_that_is_encoded_in_steps_has_the_same_bytes(name: str, value: Any, items_a_step: int) -> None:
    method = METHODS_BY_NAME[name]
    encoded, steps = in_steps(encode_reply_in_steps(method, 9, value, items_a_step))
    assert encoded == encode_reply(method, 9, value)
    assert steps == -(-7 // items_a_step)


@pytest.mark.parametrize("items_a_step", [1, 3, 7])
@pytest.mark.parametrize("more", [{}, {"continuation": "12.3", "incomplete": True}, {"continuation": None}])
def test_a_struct_with_a_list_that_is_encoded_in_steps_has_the_same_bytes(
    more: dict[str, Any], items_a_step: int
) -> None:
    method = METHODS_BY_NAME["scanJobs"]
    jobs = [types.JobInfo(f"d{number}", 1, 2, 3) for number in range(7)]
    value = types.Scanned(jobs, **more)
    encoded, steps = in_steps(encode_reply_in_steps(method, 9, value, items_a_step))
    assert encoded == encode_reply(method, 9, value)
    assert steps == -(-7 // items_a_step)
    assert value.jobs == jobs


class TestInPieces:
    """A decoder that gives other threads their turn in between."""

    def request(self, jobs: int) -> types.EnqueueRequest:
        bodies = [bytes([number % 256]) * (number * 7 % 1_000) for number in range(jobs)]
        return types.EnqueueRequest("q", [types.Job(body=body, headers={"a": "é"}) for body in bodies])

    @pytest.mark.parametrize("piece_bytes", [1, 7, 100, 4_096, 10**6])
    def test_it_decodes_as_one_without(self, piece_bytes: int) -> None:
        frame = message(encode_call("enqueueJobs", 5, context=CONTEXT, request=self.request(50)))
        whole, in_pieces = Decoder().call(frame), Decoder(piece_bytes=piece_bytes).call(frame)
        assert in_pieces.method is whole.method
        assert in_pieces.seqid == whole.seqid
        assert [(job.body, job.headers) for job in in_pieces.arguments.request.jobs] == [
            (job.body, job.headers) for job in whole.arguments.request.jobs
        ]

    @pytest.mark.parametrize("piece_bytes", [1, 100, 10**6])
    def test_a_message_that_is_cut_or_too_long_is_refused(self, piece_bytes: int) -> None:
        frame = message(encode_call("enqueueJobs", 5, context=CONTEXT, request=self.request(5)))
        decoder = Decoder(piece_bytes=piece_bytes)
        for cut in range(30, len(frame)):
            with pytest.raises(WireError, match="can't be decoded"):
                decoder.call(frame[:cut])
        with pytest.raises(WireError, match="3 bytes left over"):
            decoder.call(frame + b"abc")
        assert decoder.call(frame).seqid == 5

    def test_a_message_that_takes_too_long_is_refused_and_the_next_one_is_not(self) -> None:
        slow = message(encode_call("enqueueJobs", 5, context=CONTEXT, request=self.request(50)))
        decoder = Decoder(piece_bytes=1_000, cpu_s_max=-1.0)
        with pytest.raises(WireError, match="takes too long") as caught:
            decoder.call(slow)
        assert caught.value.name == b"enqueueJobs"
        assert decoder.call(message(encode_call("getQueueNames", 6, context=CONTEXT))).seqid == 6


def enqueue_frame(*jobs: types.Job) -> bytes:
    request = types.EnqueueRequest("q", list(jobs))
    return message(encode_call("enqueueJobs", 9, context=CONTEXT, request=request))


def test_a_missing_field_is_named_with_the_job_that_lacks_it() -> None:
    frame = enqueue_frame(types.Job(b"a"), types.Job(b"b"), types.Job(b"gone"))
    lacking = frame.replace(b"\x0b\x00\x01\x00\x00\x00\x04gone", b"")
    assert refused(lacking).message == "Required field request.jobs[2].body is missing"


@pytest.mark.parametrize(
    ("job", "path"),
    [
        (types.Job(b"", custom_status="caf?"), "request.jobs[1].customStatus"),
        (types.Job(b"", headers={"name": "caf?"}), "request.jobs[1].headers['name']"),
        (types.Job(b"", headers={"caf?": "value"}), "request.jobs[1].headers (a key)"),
    ],
)
def test_a_text_that_is_not_utf8_is_named_with_its_job(job: types.Job, path: str) -> None:
    frame = enqueue_frame(types.Job(b""), job).replace(b"caf?", b"caf\xe9")
    assert refused(frame).message == f"Text that is not UTF-8 in {path}"


@pytest.mark.parametrize("pieces", [None, 16])
def test_a_frame_that_begins_with_a_call_that_was_not_written_to_its_end_says_so(pieces: int | None) -> None:
    """So the library of a client sends it after an error while it wrote a call. The next call may pass for the body of the job: only the
    check for bytes left over keeps a job that no program made from being stored."""
    begun = enqueue_frame(types.Job(b"1234"))
    begun = begun[: begun.index(b"1234")]
    following = message(encode_call("getQueueNames", 3, context=CONTEXT))
    for cut in (len(begun), len(begun) - 4, len(begun) - 20):
        with pytest.raises(WireError) as raised:
            Decoder(piece_bytes=pieces).call(begun[:cut] + following)
        assert (raised.value.name, raised.value.seqid) == (b"enqueueJobs", 9)
        assert "a call (enqueueJobs) that was not written to its end" in raised.value.message


@pytest.mark.parametrize("head", [b"\x80\x01\x00\x01", b"\x80\x01\x00\x01\x00\x00\x00\x0b"])
def test_a_frame_full_of_beginnings_of_calls_is_looked_through_once(head: bytes) -> None:
    """Each of the first kind is followed by a length of two gigabytes: to cut that out of the frame would take minutes of the server."""
    begun_s = time.process_time()
    assert "left over" in refused(message(full_calls()["createQueue"]) + head * 1_000_000).message
    assert time.process_time() - begun_s < 10
