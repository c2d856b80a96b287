"""Stores new jobs: one script for all requests of a call, which checks keys and bounds by itself.

The script's arguments for a plain request go into Redis' commands unchanged, without a step of Lua for each job.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Any

from pinlater.domain.errors import OrderElsewhere, PinLaterError, QueueFull, QueueNotFound, RequestKeyConflict
from pinlater.domain.ids import slot_of
from pinlater.domain.job import UniqueScope
from pinlater.server.storage.leases import SlotLost
from pinlater.server.storage.options import NONE
from pinlater.server.storage.record import later
from pinlater.server.storage.redis.access import Access
from pinlater.server.storage.redis.arguments import encode, strings
from pinlater.server.storage.redis.keys import id_of, line_of, packed_id, ref_of
from pinlater.server.storage.redis.membership import Membership
from pinlater.server.storage.redis.packing import HEAD_BYTES, pack_job
from pinlater.server.storage.redis.queues import is_ordered
from pinlater.server.storage.request_keys import InsertAge
from pinlater.server.storage.values import (
    Inserted,
    InsertRequest,
    KeyHolder,
    NewJob,
    has_order,
    have_keys,
    have_unique_keys,
    out_of_order,
)

_SIZE = Struct(">I")
_ID_SIZE = _SIZE.pack(8)
_PLAIN = Struct(">IBIqq")  # the length of a record, and its fixed fields

# A longer call is packed in several turns of the event loop: a job with a unique key takes about 5 µs twice.
_JOBS_A_TURN = 1_000

# Answers of the script; see there.
_STORED, _REPEATED, _FULL, _CONFLICT, _ELSEWHERE = range(5)


async def insert(
    access: Access,
    front: bytes,
    requests: Sequence[InsertRequest],
    now_ms: int,
    age: InsertAge,
    membership: Membership,
) -> list[Inserted | PinLaterError]:
    """Ids of a lost slot may belong to another server's jobs by now."""
    batch = _Batch(access, front, now_ms, [request.queue for request in requests])
    results: list[Inserted | PinLaterError | int] = []
    slots_lost = membership.lost
    refusal: PinLaterError | None = None
    for request in requests:
        if request.queue not in access.queues:
            results.append(QueueNotFound.of(request.queue))
        elif slots_lost and any(slot_of(job.id) in slots_lost for job in request.jobs):
            results.append(SlotLost(access.readers.endpoint, slot_of(request.jobs[0].id)))
        elif is_ordered(access.queues[request.queue]) and (unknown := out_of_order(request)) is not None:
            results.append(unknown)
        else:
            keyed = have_keys(request.jobs)
            in_order = keyed and has_order(request.jobs)
            if in_order and not membership.keeps_order:
                refusal = refusal or await membership.admit_order(access.readers.run, access.readers.endpoint)
                if refusal is not None:
                    results.append(refusal)
                    continue
            results.append(batch.add(request, unique=keyed and have_unique_keys(request.jobs), in_order=in_order))
            if len(request.jobs) > _JOBS_A_TURN:
                await asyncio.sleep(0)
    age.check(requests)
    answers = await batch.store()
    return [
        _answer(access.shard, request, answers[result] if answers else 0) if isinstance(result, int) else result
        for request, result in zip(requests, results, strict=True)
    ]


class _Batch:
    """The requests of a call as the script gets them. Consecutive requests of one queue without conditions are sent as one."""

    def __init__(self, access: Access, front: bytes, now_ms: int, queues: Sequence[str]) -> None:
        self._access = access
        self._front = front
        self._now_ms = now_ms
        self._queues = access.ids_of(queues)
        self._place_of = {name: place + 1 for place, (name, _) in enumerate(self._queues)}
        self._requests: list[tuple[str, list[NewJob], bool] | tuple[Any, ...]] = []
        self._open: dict[tuple[str, bool], int] = {}  # requests that others may still join
        self._top = 0

    def add(self, request: InsertRequest, *, unique: bool, in_order: bool) -> int:
        """Adds a request. Returns the position of its answer. `unique`, `in_order`: the results of `have_unique_keys` and `has_order` for
        its jobs.
        """
        name, jobs, key, _, most = request[:5]
        if jobs:
            self._top = max(self._top, max([job.id for job in jobs]))
        if key is None and most is None and not unique:
            at = self._open.get((name, in_order))
            if at is not None:
                self._requests[at][1].extend(jobs)
                return at
            self._open[name, in_order] = len(self._requests)
            self._requests.append((name, list(jobs), in_order))
        else:
            self._open.clear()
            self._requests.append(self._with_conditions(request, unique=unique, in_order=in_order))
        return len(self._requests) - 1

    async def store(self) -> list[Any]:
        """Sends the requests. Returns the answers. A call that succeeds, even without anything to send, proves that no earlier call can
        still be executed.
        """
        if not self._requests:
            await self._access.writer.settle()
            return []
        packed = [one if len(one) > 3 else self._plain_request(*one) for one in self._requests]
        top = packed_id(self._top) if self._top else b""
        arguments = encode(([name for name, _ in self._queues], [queue for _, queue in self._queues], packed, top))
        answers: list[Any] = await self._access.writer.run("insert_jobs", self._now_ms, arguments, under_any_slot=False)
        return answers

    def _plain_request(self, name: str, jobs: Sequence[NewJob], in_order: bool) -> tuple[Any, ...]:
        parts = _plain(self._front, self._access.queues[name], jobs, self._now_ms)
        return self._place_of[name], True, *parts, False, b"", b"", -1, len(jobs), in_order

    def _with_conditions(self, request: InsertRequest, *, unique: bool, in_order: bool) -> tuple[Any, ...]:
        jobs, queue = request.jobs, self._access.queues[request.queue]
        about = (self._front, queue, jobs, self._now_ms)
        parts: tuple[Any, ...] = (_careful(*about), (), b"", b"") if unique else _plain(*about)
        own = b"" if request.request_key is None else b"".join([packed_id(job.id) for job in jobs])
        most = -1 if request.max_backlog is None else request.max_backlog
        key = False if request.request_key is None else request.request_key
        place, number = self._place_of[request.queue], len(jobs)
        return place, not unique, *parts, key, request.fingerprint, own, most, number, in_order


def _plain(
    front: bytes, queue: bytes, jobs: Sequence[NewJob], now_ms: int
) -> tuple[bytes, list[tuple[bytes, bytes]], bytes, bytes]:
    """The hot loop: one iteration per job. Lists of strings, packed like those of `arguments.strings`."""
    records: list[bytes] = []
    lines: dict[int, list[bytes]] = {}
    fronts: dict[int, bytes] = {}
    expiries: list[bytes] = []
    ordered: list[bytes] = []
    last_ms, score = None, b""
    for job in jobs:
        job_id, body, priority, run_after_ms, attempts, options = job
        packed = packed_id(job_id)
        waiting = lines.get(priority)
        if waiting is None:
            waiting = lines[priority] = []
            key = front + b"j" + line_of(queue, priority)
            fronts[priority] = _SIZE.pack(len(key) + 8) + key
        records.append(fronts[priority] + packed)
        if options is None:
            records += (_PLAIN.pack(len(body) + HEAD_BYTES, 0, attempts, run_after_ms, now_ms), body)
        else:
            record = pack_job(job, now_ms)
            records += (_SIZE.pack(len(record)), record)
            if options.expires_ms is not None:
                expiries += (b"%d" % options.expires_ms, ref_of(queue, priority, job_id))
            if options.ordering_key is not None:
                ordered += (bytes((priority,)) + packed, options.ordering_key.encode(), b"%d" % run_after_ms)
                continue
        if run_after_ms != last_ms:
            last_ms, digits = run_after_ms, b"%d" % run_after_ms
            score = _SIZE.pack(len(digits)) + digits + _ID_SIZE
        waiting.append(score + packed)
    return (
        _SIZE.pack(2 * len(jobs)) + b"".join(records),
        [(bytes((priority,)), _SIZE.pack(2 * len(line)) + b"".join(line)) for priority, line in lines.items() if line],
        strings(expiries),
        strings(ordered),
    )


def _careful(front: bytes, queue: bytes, jobs: Sequence[NewJob], now_ms: int) -> list[tuple[Any, ...]]:
    """Adds jobs one by one, since some have unique keys."""
    packed = []
    for job in jobs:
        options = job.options or NONE
        line, job_id = line_of(queue, job.priority), packed_id(job.id)
        key: bytes | bool = False
        held, ends_ms = b"", None
        if (unique := options.unique) is not None:
            key = unique.key.encode()
            held = bytes((unique.scope, job.priority)) + job_id
            if unique.scope is UniqueScope.TIME:
                ends_ms = later(now_ms, unique.for_ms)
                held += b"%d" % ends_ms
        packed.append(
            (
                front + b"j" + line + job_id,
                pack_job(job, now_ms),
                line[4:],
                b"%d" % job.run_after_ms,
                job_id,
                False if options.expires_ms is None else b"%d" % options.expires_ms,
                key,
                held,
                False if ends_ms is None else b"%d" % ends_ms,
                False if options.ordering_key is None else options.ordering_key.encode(),
            )
        )
    return packed


def _answer(shard: str, request: InsertRequest, answer: Any) -> Inserted | PinLaterError:
    jobs = request.jobs
    if answer == 0:
        return tuple.__new__(Inserted, ([job.id for job in jobs], {}, False))  # faster than calling the class
    if answer[0] == _FULL:
        return QueueFull.of(request.queue, answer[1], request.max_backlog or 0, answer[2])
    if answer[0] == _CONFLICT:
        return RequestKeyConflict.of(request.request_key or "")
    if answer[0] == _ELSEWHERE:
        return OrderElsewhere.of(request.queue, shard)
    if answer[0] == _REPEATED:
        return repeated(answer[1], answer[2])
    existing = existing_of(answer[1])
    return Inserted([existing[at].job_id if at in existing else job.id for at, job in enumerate(jobs)], existing)


def repeated(ids: bytes, existing: Sequence[Any]) -> Inserted:
    """Returns the earlier answer to a keyed request."""
    found = array("q", ids)
    found.byteswap()
    existing_jobs = existing_of(existing)
    answered = found.tolist()
    for at, holder in existing_jobs.items():
        answered[at] = holder.job_id
    return Inserted(answered, existing_jobs, repeated=True)


def existing_of(flat: Sequence[Any]) -> dict[int, KeyHolder]:
    return {int(flat[at]): KeyHolder(id_of(flat[at + 1]), int(flat[at + 2])) for at in range(0, len(flat), 3)}
