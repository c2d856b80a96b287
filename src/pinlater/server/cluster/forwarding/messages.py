"""What servers say to each other over their links (`server.link.messages`).

Each part is one call of one kind for one shard, with the items of many requests. Items and answers are the values of `storage.values` and
`sharding`, as arrays in the order of their fields; a field that is added later must have a default, and goes last. The options of a job are
a map by the names of their fields: an older server leaves out those that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import UniqueKey
from pinlater.domain.servers import PEER_VERSION, ServerFacts
from pinlater.domain.workers import ServerWorkers, WorkerStatus
from pinlater.server.link.messages import (
    BadMessage,
    Part,
    PartAnswer,
    decoded,
    encoded,
    error_of,
    failure_of,
    message_of_answering,
    message_of_asking,
)
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.storage.options import NONE, Options
from pinlater.server.storage.values import (
    Acked,
    Claimed,
    ClaimRef,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    NewJob,
)

VERSION = PEER_VERSION
OLDEST_VERSION = 6  # without `Told.waiting` and `WAKES`
_TOLD_FIELDS = {6: 8, 7: 9, 8: 9, 9: 9}  # of older versions
WAKES_SINCE_VERSION = 7
_TIMES_SINCE_VERSION = 8  # `WorkerQueue.timed_out_times`
_QUEUE_FIELDS_BEFORE = 7
PARTITIONS_SINCE_VERSION = 10  # before, a queue was on all shards, and each unique key on a shard of its own
HEADS_SINCE_VERSION = 10  # `ClaimRequest.through_priority`, `Claimed.head`
_CLAIM_FIELDS_BEFORE, _CLAIMED_FIELDS_BEFORE = 6, 4
_OPTIONS_SINCE_VERSION = 9  # before, the fields of `NewJob.options` were the last ones of a job
_FLAT_OPTIONS = 5
WAITS_BYTES = 32
LEFT_PLACES_MAX = 10_000
"""Places in one message about callers that left."""
_LEFT_BYTES_MAX = 20 * LEFT_PLACES_MAX + 5  # if each position belongs to another call
WAKES_MAX = 500  # in one message
_WAKES_BYTES_MAX = 64 * 1024


class CallKind(IntEnum):
    """The kinds of calls that are forwarded: those of the lanes."""

    INSERT = 0
    CLAIM = 1
    FINISH = 2
    EXTEND = 3
    CHECKPOINT = 4
    RELEASE = 5


SINGLE = frozenset({CallKind.INSERT, CallKind.CLAIM})
"""Kinds that have one item for each caller. Callers of the other kinds have a list of items each."""


# Numbers of messages that are not calls. A server that is asked whether it runs answers at once with what it has changed so far (`Told`);
# it also sends this unasked when it has changed queues. The question contains the number of answers received so far. A server that stops
# sends goodbye (-1): from then on it accepts no calls, and answers those that it has. A server that has changed owners tells the others
# to read them again. The side that is asked says which queues its dequeues wait for. A server that is asked for the workers that it knows
# answers page by page. The asking side says which callers no longer wait for long calls, and which queues have jobs that can be claimed.
RUNNING = 0
LOOK = -2
WAITS = -3
WORKERS = -4
LEFT = -5
WAKES = -6


class Told(NamedTuple):
    """What a server reports about itself. `unreachable`: shards that it can't work on. `changes`: by shard, `OfSeveralServers.changes`.
    `queue_changes`: how often it has made, changed or deleted queues. `server_id`, `clients_at`: how clients know it, and where they
    reach it; '' if they can't reach it. `busy`: its event loop has little time left. `facts`: for operators. `work`: the work on each
    slice in the last minute (`ownership.work.Work`). `waiting`: how many dequeues wait there, by queue. `loop`: the share of a core that
    its event loop uses. `lanes`: how busy its lanes to each shard are (`lane_load.LaneLoads`)."""

    unreachable: Sequence[str]
    changes: Mapping[str, int]
    queue_changes: int
    server_id: str = ""
    clients_at: str = ""
    busy: bool = False
    facts: ServerFacts = ServerFacts()
    work: Mapping[str, Mapping[int, int]] = {}
    waiting: Mapping[str, int] = {}
    loop: float = 0.0
    lanes: Mapping[str, float] = {}


class CallersLeft(NamedTuple):
    """Says which callers of call `number` no longer wait, by the positions of their items."""

    number: int
    places: Sequence[int]


class Wake(NamedTuple):
    """Says how many jobs of a queue can be claimed. `past_owner`: the server that owns the queue may not know of them."""

    queue: str
    jobs: Annotated[int, msgspec.Meta(ge=1)]
    past_owner: bool


class WorkersQuestion(NamedTuple):
    """Asks which workers the other side knows. `number`: of this question on this connection. `workers_max`: the most workers that the
    answer may contain."""

    number: int
    workers_max: int


class WorkersPage(NamedTuple):
    """A part of the answer to the question with that number. `rest`: comes with the last page, and has everything but the workers."""

    number: int
    workers: Sequence[WorkerStatus]
    rest: ServerWorkers | None = None


TOO_LATE = "TOO_LATE"
"""The detail of the failure of a part that was not begun because it came later than `Part.begin_by_ms`. No server passes it on to
clients."""

TAKEN = msgspec.msgpack.Decoder(int)
"""Decodes the question whether a server runs: the number of answers that the asking side has received."""
TOLD = msgspec.msgpack.Decoder(Told)
WORKERS_QUESTION = msgspec.msgpack.Decoder(WorkersQuestion)
WORKERS_PAGE = msgspec.msgpack.Decoder(WorkersPage)
_bytes = msgspec.msgpack.Decoder(bytes)
_callers_left = msgspec.msgpack.Decoder(list[CallersLeft])
_wakes = msgspec.msgpack.Decoder(list[Wake])
_FlatJob: TypeAlias = tuple[
    int, bytes, int, int, int, str, Mapping[str, str] | None, UniqueKey | None, int | None, int | None
]
_flat_inserts: msgspec.msgpack.Decoder[list[tuple[Any, ...]]] = msgspec.msgpack.Decoder(
    list[tuple[str, list[_FlatJob], str | None, bytes, int | None, int]]
)
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


def items_of(part: Part, version: int = VERSION) -> list[Any]:
    """Decodes the items of a part, as its kind's values. Raises `BadMessage`."""
    decoder = _items.get(part.kind)
    if decoder is None:
        raise BadMessage(f"a call of unknown kind {part.kind}")
    if part.kind == CallKind.INSERT and version < _OPTIONS_SINCE_VERSION:
        requests = decoded(_flat_inserts, part.items)
        return [InsertRequest(queue, [_job_of(*job) for job in jobs], *rest) for queue, jobs, *rest in requests]
    return decoded(decoder, part.items)


def encoder_of_items(version: int) -> Callable[[Sequence[object]], bytes]:
    """Returns the function that encodes the items of a part for a server of this version."""
    return encoded if version >= HEADS_SINCE_VERSION else partial(_encoded_for, version)


def _encoded_for(version: int, items: Sequence[object]) -> bytes:
    return encoded([_as_before(item, version) for item in items])


def _as_before(item: object, version: int) -> object:
    """The item in the form that servers before `HEADS_SINCE_VERSION` know."""
    if isinstance(item, ClaimRequest):
        return item[:_CLAIM_FIELDS_BEFORE]
    return _flat(item) if isinstance(item, InsertRequest) and version < _OPTIONS_SINCE_VERSION else item


def _flat(request: InsertRequest) -> tuple[object, ...]:
    jobs = [(*job[:-1], *astuple(job.options or NONE)[:_FLAT_OPTIONS]) for job in request.jobs]
    return (request.queue, jobs, *request[2:])


def _job_of(job_id: int, body: bytes, priority: int, run_after_ms: int, attempts_allowed: int, *flat: Any) -> NewJob:
    options = Options(*flat)
    return NewJob(job_id, body, priority, run_after_ms, attempts_allowed, None if options == NONE else options)


def answer(number: int, answers: Sequence[object], version: int = VERSION) -> PartAnswer:
    """Returns the answer to a part from the answers to its items, some of which may be errors."""
    if version < HEADS_SINCE_VERSION:
        answers = [each[:_CLAIMED_FIELDS_BEFORE] if isinstance(each, Claimed) else each for each in answers]
    failures = {index: failure_of(each) for index, each in enumerate(answers) if isinstance(each, PinLaterError)}
    values = [None if index in failures else each for index, each in enumerate(answers)] if failures else answers
    return PartAnswer(number, Raw(encoded(values)), failures)


def answers_of(kind: int, part: PartAnswer) -> list[Any]:
    """Decodes the answers to the items of a part, with errors as values. Raises `BadMessage`."""
    answers = decoded(_answers[kind], part.answers)
    for index, failure in part.failures.items():
        if not 0 <= index < len(answers):
            raise BadMessage(f"a failure of item {index} of {len(answers)}")
        answers[index] = error_of(failure)
    if None in answers:
        raise BadMessage("an item without an answer")
    return answers


def running(told: Told, version: int = VERSION) -> PartAnswer:
    """Says that a server runs. Servers of older versions get no fields that they do not know."""
    return message_of_answering(RUNNING, told[: _TOLD_FIELDS.get(version)])


def callers_left(left: Sequence[CallersLeft]) -> Iterator[Part]:
    """Says which callers no longer wait, in messages of at most `LEFT_PLACES_MAX` positions."""
    told: list[CallersLeft] = []
    free = LEFT_PLACES_MAX
    for number, places in left:
        rest = places
        while rest:
            told.append(CallersLeft(number, rest[:free]))
            free, rest = free - len(told[-1].places), rest[free:]
            if not free:
                yield message_of_asking(LEFT, told)
                told, free = [], LEFT_PLACES_MAX
    if told:
        yield message_of_asking(LEFT, told)


def callers_left_of(part: Part) -> list[CallersLeft]:
    """Decodes a message of `callers_left`. Raises `BadMessage`; a message that is too long is not decoded."""
    _check_length(part, _LEFT_BYTES_MAX, "about callers that left")
    left = decoded(_callers_left, part.items)
    places = sum([len(each.places) for each in left])
    if places > LEFT_PLACES_MAX:
        raise BadMessage(f"{places} callers that left; at most {LEFT_PLACES_MAX} are told at once")
    return left


def wakes_of(part: Part) -> list[Wake]:
    """Decodes a message of wakes. Raises `BadMessage`; a message that is too long is not decoded."""
    _check_length(part, _WAKES_BYTES_MAX, "of wakes")
    told = decoded(_wakes, part.items)
    if len(told) > WAKES_MAX:
        raise BadMessage(f"{len(told)} wakes; at most {WAKES_MAX} are told at once")
    return told


def _check_length(part: Part, bytes_max: int, what: str) -> None:
    size_bytes = memoryview(part.items).nbytes
    if size_bytes > bytes_max:
        raise BadMessage(f"{size_bytes} bytes {what}; at most {bytes_max} are taken")


def workers_page(page: WorkersPage, version: int = VERSION) -> PartAnswer:
    """Returns a page of the answer. Servers of older versions get no fields that they do not know."""
    if version < _TIMES_SINCE_VERSION:
        statuses = [
            (*each[:3], [queue[:_QUEUE_FIELDS_BEFORE] for queue in each.queues], *each[4:]) for each in page.workers
        ]
        return message_of_answering(WORKERS, (page.number, statuses, page.rest))
    return message_of_answering(WORKERS, page)


def waits(bits: int) -> PartAnswer:
    """Encodes the queues for which the dequeues of a server wait, in the form of `interest.Interest`."""
    return message_of_answering(WAITS, bits.to_bytes(WAITS_BYTES, "big"))


def waits_of(part: PartAnswer) -> int:
    """Decodes a message of `waits`. Raises `BadMessage`."""
    told = decoded(_bytes, part.answers)
    if len(told) != WAITS_BYTES:
        raise BadMessage(f"{len(told)} bytes about waiting dequeues")
    return int.from_bytes(told, "big")
