"""What servers say to each other: frames of four bytes of length and MessagePack, in both directions.

A frame from the asking side is a list of parts, each one call of one kind for one shard with the items of many requests. The other side
answers part by part, in any order. Items and answers are the values of `storage.values` and `sharding`, as arrays in the order of their
fields; a field that is added later must have a default, and goes last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from pinlater.domain import errors
from pinlater.domain.calls import ServerFacts
from pinlater.domain.errors import PinLaterError
from pinlater.domain.workers import ServerWorkers, WorkerStatus
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.storage.values import (
    NO_END_MS,
    Acked,
    Claimed,
    ClaimRef,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
)

VERSION = 8
OLDEST_VERSION = 6  # without `Told.waiting` and `WAKES`
_TOLD_FIELDS_OLDEST = 8
WAKES_SINCE_VERSION = 7
_TIMES_SINCE_VERSION = 8  # `WorkerQueue.timed_out_times`
_QUEUE_FIELDS_BEFORE = 7
LENGTH_BYTES = 4
WAITS_BYTES = 32
FRAME_BYTES_MAX = 256 * 1024 * 1024
LEFT_PLACES_MAX = 10_000
"""Places in one message about callers that left."""
_LEFT_BYTES_MAX = 20 * LEFT_PLACES_MAX + 5  # if each place is of another call
WAKES_MAX = 500  # in one message
_LONG_ARRAY = b"\xdd"  # how MessagePack begins one of more than 65,535 items
_WAKES_BYTES_MAX = 64 * 1024
_length = Struct(">I")

T = TypeVar("T")


class CallKind(IntEnum):
    """The calls that are forwarded: those of the lanes."""

    INSERT = 0
    CLAIM = 1
    FINISH = 2
    EXTEND = 3
    CHECKPOINT = 4
    RELEASE = 5


class Part(NamedTuple):
    """One call. `number`: of this connection; its answer has the same. `begin_by_ms`: the other side is not to begin it later.
    `sent_ms`: the time of the asking side; 0 if it does not say it."""

    number: int
    kind: int
    shard: str
    items: msgspec.Raw
    begin_by_ms: int
    sent_ms: int = 0


# Numbers of messages that are no calls. Asked whether it runs, a server says so at once, and what it has changed so far (`Told`), which it
# also says unasked when it has changed queues; the question says how many answers have come. One that stops says goodbye: it takes no
# calls from now on, and answers those it has. One that has changed who owns what says that the others are to look. The side that is asked
# says which queues its dequeues wait for. One that is asked for the workers that it knows tells them page by page. The side that asks says
# which callers wait no longer for calls that take long, and of which queues jobs can be claimed.
RUNNING = 0
GOODBYE = -1
LOOK = -2
WAITS = -3
WORKERS = -4
LEFT = -5
WAKES = -6


class Told(NamedTuple):
    """What a server says of itself. `unreachable`: shards that it can't work on. `changes`: by shard, `SharedStore.changes`.
    `queue_changes`: how often it has made, changed or deleted queues. `server_id`, `clients_at`: how clients know it, and where they
    reach it; '' if they can't. `busy`: its event loop has little time left. `facts`: for operators. `work`: on each slice in the last
    minute (`ownership.work.Work`). `waiting`: how many dequeues wait there, by queue."""

    unreachable: Sequence[str]
    changes: Mapping[str, int]
    queue_changes: int
    server_id: str = ""
    clients_at: str = ""
    busy: bool = False
    facts: ServerFacts = ServerFacts()
    work: Mapping[str, Mapping[int, int]] = {}
    waiting: Mapping[str, int] = {}


class CallersLeft(NamedTuple):
    """Callers of call `number` that wait for it no longer, by the places of their items."""

    number: int
    places: Sequence[int]


class Wake(NamedTuple):
    """Says how many jobs of a queue can be claimed. `past_owner`: the server that owns the queue may not know of them."""

    queue: str
    jobs: Annotated[int, msgspec.Meta(ge=1)]
    past_owner: bool


class WorkersQuestion(NamedTuple):
    """Which workers does the other side know? `number`: of this question on this connection. `workers_max`: to be told."""

    number: int
    workers_max: int


class WorkersPage(NamedTuple):
    """A part of the answer to the question with that number. `rest`: with the last page, all but the workers."""

    number: int
    workers: Sequence[WorkerStatus]
    rest: ServerWorkers | None = None


class Failure(NamedTuple):
    """A `PinLaterError` of an item or of a whole part. `name`: its class in `domain.errors`."""

    name: str
    message: str
    detail: str
    retryable: bool
    retry_after_ms: int | None


TOO_LATE = "TOO_LATE"
"""The detail of the failure of a part that was not begun, as it came later than `Part.begin_by_ms`. Clients get it from no server."""


class PartAnswer(NamedTuple):
    """What became of a part: an answer for each item, None where it failed, and the failures by index; or the failure of all of it."""

    number: int
    answers: msgspec.Raw
    failures: Mapping[int, Failure]
    failure: Failure | None = None


_encoder = msgspec.msgpack.Encoder()
_parts = msgspec.msgpack.Decoder(list[Part])
_bytes = msgspec.msgpack.Decoder(bytes)
_count = msgspec.msgpack.Decoder(int)
_told = msgspec.msgpack.Decoder(Told)
_workers_question = msgspec.msgpack.Decoder(WorkersQuestion)
_callers_left = msgspec.msgpack.Decoder(list[CallersLeft])
_wakes = msgspec.msgpack.Decoder(list[Wake])
_workers_page = msgspec.msgpack.Decoder(WorkersPage)
_part_answers = msgspec.msgpack.Decoder(list[PartAnswer])
_items: Mapping[int, msgspec.msgpack.Decoder[list[Any]]] = {
    CallKind.INSERT: msgspec.msgpack.Decoder(list[InsertRequest]),
    CallKind.CLAIM: msgspec.msgpack.Decoder(list[ClaimRequest]),
    CallKind.FINISH: msgspec.msgpack.Decoder(list[JobAck]),
    CallKind.EXTEND: msgspec.msgpack.Decoder(list[ClaimRef]),
    CallKind.CHECKPOINT: msgspec.msgpack.Decoder(list[JobCheckpoint]),
    CallKind.RELEASE: msgspec.msgpack.Decoder(list[ClaimRef]),
}
_answers: Mapping[int, msgspec.msgpack.Decoder[list[Any]]] = {
    CallKind.INSERT: msgspec.msgpack.Decoder(list[Inserted | None]),
    CallKind.CLAIM: msgspec.msgpack.Decoder(list[Claimed | None]),
    CallKind.FINISH: msgspec.msgpack.Decoder(list[Acked | None]),
    CallKind.EXTEND: msgspec.msgpack.Decoder(list[Acked | None]),
    CallKind.CHECKPOINT: msgspec.msgpack.Decoder(list[Acked | None]),
    CallKind.RELEASE: msgspec.msgpack.Decoder(list[Acked | None]),
}
_NONE = msgspec.Raw(_encoder.encode([]))
LOOK_AT_OWNERS = Part(LOOK, LOOK, "", _NONE, NO_END_MS)
I_AM_STOPPING = PartAnswer(GOODBYE, _NONE, {})


class BadMessage(Exception):
    """What came is none of ours: the connection is lost with it."""


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises: `DecodeError` does not include text that is not UTF-8."""


def frame(parts: Sequence[tuple[Any, ...]]) -> bytes:
    """A frame with these parts or answers."""
    message = bytearray(LENGTH_BYTES)
    _encoder.encode_into(parts, message, LENGTH_BYTES)
    _length.pack_into(message, 0, len(message) - LENGTH_BYTES)
    return bytes(message)


def encoded_items(items: Sequence[object]) -> msgspec.Raw:
    """The items of a part."""
    return msgspec.Raw(_encoder.encode(items))


def parts_of(message: bytes) -> list[Part]:
    """What `frame` made of parts. Raises `BadMessage`, for very many before they are decoded."""
    if message[:1] == _LONG_ARRAY:
        raise BadMessage("a message of more than 65,535 parts")
    return _decoded(_parts, message)


def items_of(part: Part) -> list[Any]:
    """The items of a part, as its kind's values. Raises `BadMessage`."""
    decoder = _items.get(part.kind)
    if decoder is None:
        raise BadMessage(f"a call of unknown kind {part.kind}")
    return _decoded(decoder, part.items)


def answer(number: int, answers: Sequence[object]) -> PartAnswer:
    """The answer to a part whose items had these answers, some of which may be errors."""
    failures = {index: failure_of(each) for index, each in enumerate(answers) if isinstance(each, PinLaterError)}
    values = [None if index in failures else each for index, each in enumerate(answers)] if failures else answers
    return PartAnswer(number, msgspec.Raw(_encoder.encode(values)), failures)


def failed(number: int, error: PinLaterError) -> PartAnswer:
    """The answer to a part all of which failed."""
    return PartAnswer(number, _NONE, {}, failure_of(error))


def are_you_running(taken: int) -> Part:
    """The question whether the other side runs. `taken`: how many answers to calls have come from it."""
    return Part(RUNNING, RUNNING, "", msgspec.Raw(_encoder.encode(taken)), NO_END_MS)


def taken_of(part: Part) -> int:
    """How many answers the asking side has taken. Raises `BadMessage`."""
    return _decoded(_count, part.items)


def running(told: Told, version: int = VERSION) -> PartAnswer:
    """The answer of a server that runs. One of an older version takes no fields that it does not know."""
    known = told if version >= WAKES_SINCE_VERSION else told[:_TOLD_FIELDS_OLDEST]
    return PartAnswer(RUNNING, msgspec.Raw(_encoder.encode(known)), {})


def told_of(part: PartAnswer) -> Told:
    """What a server which runs says of itself. Raises `BadMessage`."""
    return _decoded(_told, part.answers)


def which_workers(question: WorkersQuestion) -> Part:
    """The question for the workers that the other side knows."""
    return Part(WORKERS, WORKERS, "", msgspec.Raw(_encoder.encode(question)), NO_END_MS)


def workers_question_of(part: Part) -> WorkersQuestion:
    """What `which_workers` was told. Raises `BadMessage`."""
    return _decoded(_workers_question, part.items)


def callers_left(left: Sequence[CallersLeft]) -> Iterator[Part]:
    """Says which callers wait no longer, in messages of `LEFT_PLACES_MAX` places at most."""
    told: list[CallersLeft] = []
    free = LEFT_PLACES_MAX
    for number, places in left:
        rest = places
        while rest:
            told.append(CallersLeft(number, rest[:free]))
            free, rest = free - len(told[-1].places), rest[free:]
            if not free:
                yield _left(told)
                told, free = [], LEFT_PLACES_MAX
    if told:
        yield _left(told)


def _left(told: Sequence[CallersLeft]) -> Part:
    return Part(LEFT, LEFT, "", msgspec.Raw(_encoder.encode(told)), NO_END_MS)


def callers_left_of(part: Part) -> list[CallersLeft]:
    """What a message of `callers_left` says. Raises `BadMessage`, for a long one before it is decoded."""
    _check_length(part, _LEFT_BYTES_MAX, "about callers that left")
    left = _decoded(_callers_left, part.items)
    places = sum([len(each.places) for each in left])
    if places > LEFT_PLACES_MAX:
        raise BadMessage(f"{places} callers that left; at most {LEFT_PLACES_MAX} are told at once")
    return left


def wakes(queues: Sequence[Wake]) -> Part:
    """Says of which queues jobs can be claimed, of at most `WAKES_MAX`."""
    return Part(WAKES, WAKES, "", msgspec.Raw(_encoder.encode(queues)), NO_END_MS)


def wakes_of(part: Part) -> list[Wake]:
    """What `wakes` was told. Raises `BadMessage`, for a long message before it is decoded."""
    _check_length(part, _WAKES_BYTES_MAX, "of wakes")
    told = _decoded(_wakes, part.items)
    if len(told) > WAKES_MAX:
        raise BadMessage(f"{len(told)} wakes; at most {WAKES_MAX} are told at once")
    return told


def _check_length(part: Part, bytes_max: int, what: str) -> None:
    size_bytes = memoryview(part.items).nbytes
    if size_bytes > bytes_max:
        raise BadMessage(f"{size_bytes} bytes {what}; at most {bytes_max} are taken")


def workers_page(page: WorkersPage, version: int = VERSION) -> PartAnswer:
    """A page of the answer. One of an older version takes no fields that it does not know."""
    if version < _TIMES_SINCE_VERSION:
        statuses = [
            (*each[:3], [queue[:_QUEUE_FIELDS_BEFORE] for queue in each.queues], *each[4:]) for each in page.workers
        ]
        return PartAnswer(WORKERS, msgspec.Raw(_encoder.encode((page.number, statuses, page.rest))), {})
    return PartAnswer(WORKERS, msgspec.Raw(_encoder.encode(page)), {})


def workers_page_of(part: PartAnswer) -> WorkersPage:
    """What `workers_page` was told. Raises `BadMessage`."""
    return _decoded(_workers_page, part.answers)


def waits(bits: int) -> PartAnswer:
    """Which queues the dequeues of a server wait for, as `interest.Interest` has it."""
    return PartAnswer(WAITS, msgspec.Raw(_encoder.encode(bits.to_bytes(WAITS_BYTES, "big"))), {})


def waits_of(part: PartAnswer) -> int:
    """What `waits` was told. Raises `BadMessage`."""
    told = _decoded(_bytes, part.answers)
    if len(told) != WAITS_BYTES:
        raise BadMessage(f"{len(told)} bytes about waiting dequeues")
    return int.from_bytes(told, "big")


def part_answers_of(message: bytes) -> list[PartAnswer]:
    """What `frame` made of answers. Raises `BadMessage`."""
    return _decoded(_part_answers, message)


def answers_of(kind: int, part: PartAnswer) -> list[Any]:
    """The answers to the items of a part, errors among them as values. Raises `BadMessage`."""
    answers = _decoded(_answers[kind], part.answers)
    for index, failure in part.failures.items():
        if not 0 <= index < len(answers):
            raise BadMessage(f"a failure of item {index} of {len(answers)}")
        answers[index] = error_of(failure)
    if None in answers:
        raise BadMessage("an item without an answer")
    return answers


def error_of(failure: Failure) -> PinLaterError:
    """The error that a failure stands for. A class that this version does not know becomes `PinLaterError`."""
    known = getattr(errors, failure.name, None)
    kind = known if isinstance(known, type) and issubclass(known, PinLaterError) else PinLaterError
    return kind(
        failure.message,
        detail=failure.detail,
        retryable=failure.retryable,
        retry_after_ms=failure.retry_after_ms,
    )


def failure_of(error: PinLaterError) -> Failure:
    """What another server is told of an error. A class that one package alone knows becomes the class of `domain.errors` above it."""
    return Failure(
        next(kind.__name__ for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind),
        error.message,
        error.detail,
        error.retryable,
        error.retry_after_ms,
    )


def _decoded(decoder: msgspec.msgpack.Decoder[T], message: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(message)
    except UNREADABLE as error:
        raise BadMessage(str(error)) from error
