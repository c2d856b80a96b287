"""Loads the jobs of a call and makes the commands that write their changes.

The script that writes the changes compares the jobs with those that the call has loaded. If one has changed since, it writes nothing, and
the call decides again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from pinlater.domain.job import UniqueScope
from pinlater.domain.transitions import IN_PROGRESS, PENDING, REDIS_STATUS, SUCCEEDED
from pinlater.server.storage import changes
from pinlater.server.storage.options import BEHIND_MS
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.failures import values_of
from pinlater.server.storage.redis.keys import INDEX_OF, LINE_BYTES, QUEUE_BYTES, line_of, packed_id, ref_of
from pinlater.server.storage.redis.loading import load_jobs, record_of
from pinlater.server.storage.redis.packing import (
    HAD_HOLDER,
    HAS_PAST,
    ORDERED,
    SIMPLE,
    UnpackedClaim,
    is_simple,
    pack_claim,
    pack_finished,
    pack_past,
    read_claim,
    read_job,
)
from pinlater.server.storage.redis.readers import Readers


class LoadedJob(NamedTuple):
    """A job as it was loaded: the record, and the bytes that must still be the same when the change is written."""

    ref: bytes
    front: bytes
    size: int
    claim_bytes: bytes
    past_bytes: bytes
    record: JobRecord
    plain: bool
    renewed_at_ms: int  # of a claim: its deadline is a claim timeout after this

    @property
    def line(self) -> bytes:
        """Queue and priority."""
        return self.ref[:LINE_BYTES]

    @property
    def queue(self) -> bytes:
        """The queue's number in the form that keys have."""
        return self.ref[:QUEUE_BYTES]


def loaded_job(ref: bytes, answer: Sequence[Any]) -> LoadedJob:
    """A job from the answer of `load_jobs`."""
    front, size, claim_bytes, past_bytes = answer
    stored, claim = read_job(front), read_claim(claim_bytes)
    renewed_at_ms = 0 if claim is None else claim.renewed_at_ms or 0
    record = record_of(ref, stored, claim, past_bytes)
    return LoadedJob(ref, front, size, claim_bytes, past_bytes, record, is_simple(stored), renewed_at_ms)


class Writing:
    """Commands for `change_jobs.lua`: what leaves an index first, then what enters one. Values of one command and key go together."""

    def __init__(self) -> None:
        self._leaving: dict[tuple[str, bytes], list[bytes | int | str]] = {}
        self._entering: dict[tuple[str, bytes], list[bytes | int | str]] = {}
        self._single: list[tuple[str, bytes, list[bytes | int | str]]] = []

    def leave(self, command: str, key: bytes, *values: bytes | int | str) -> None:
        self._leaving.setdefault((command, key), []).extend(values)

    def enter(self, command: str, key: bytes, *values: bytes | int | str) -> None:
        self._entering.setdefault((command, key), []).extend(values)

    def single(self, command: str, key: bytes, *values: bytes | int | str) -> None:
        self._single.append((command, key, list(values)))

    def commands(self) -> list[tuple[str, bytes, list[bytes | int | str]]]:
        grouped = [*self._leaving.items(), *self._entering.items()]
        return [*((command, key, values) for (command, key), values in grouped), *self._single]


class Changes(changes.Changes):
    """The jobs of one call. Load, decide, then `request` once."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms, REDIS_STATUS)
        self.loaded: dict[bytes, LoadedJob] = {}
        self._refs: dict[int, bytes] = {}
        self.missing: dict[bytes, bytes] = {}  # index entries without a job, and their claims
        self.held_keys: dict[tuple[bytes, str], bytes] = {}  # what was found under unique keys
        self.taken_keys: set[tuple[bytes, str]] = set()
        self.marks: list[tuple[bytes, str, int]] = []  # fields of hashes that must be there (1), or not (0)
        self.restores: tuple[str, str] | None = None  # the run whose jobs are restored, and the field for that
        self.writing = Writing()
        self._finished_bytes = 0
        self._deleted_waiting: dict[bytes, int] = {}
        self._ended: dict[bytes, list[bytes]] = {}  # by queue, the places among those of their ordering keys
        self._tried: list[tuple[str, bytes, list[bytes | int]]] = []  # `STOP` or `BACK` for places of failed jobs

    async def load(
        self, readers: Readers, refs: Iterable[bytes], queues: Sequence[tuple[str, bytes]] = ()
    ) -> list[JobRecord]:
        """The jobs that exist. Raises `StaleQueues` if one of the queues has been replaced."""
        wanted = list(dict.fromkeys(refs))
        if not wanted and not queues:
            return []
        answer, _ = await load_jobs(readers, wanted, queues=queues)
        names = {queue: name for name, queue in queues}
        for at, ref in enumerate(wanted):
            if answer[4 * at]:
                self.loaded[ref] = found = loaded_job(ref, answer[4 * at : 4 * at + 4])
                self._refs[found.record.id] = ref
                self.add(found.record, names.get(found.queue, ""))
            else:
                self.missing[ref] = answer[4 * at + 2]
        return [self.loaded[ref].record for ref in wanted if ref in self.loaded]

    def found(self, job: JobRecord) -> LoadedJob:
        """Returns the loaded data of a job."""
        return self.loaded[self._refs[job.id]]

    async def find_behind(self, readers: Readers) -> None:
        """Finds out which of the waiting jobs wait behind others of their ordering keys (`JobRecord.behind`)."""
        waiting = [
            found
            for found in self.loaded.values()
            if found.record.options.ordering_key is not None and found.record.state is PENDING
        ]
        if waiting:
            answer = await readers.run("find_behind", encode([found.ref for found in waiting]))
            for found, behind in zip(waiting, answer, strict=True):
                if behind == 1:
                    job = found.record
                    self.add(replace(job, run_after_ms=BEHIND_MS + 1), self.queue_of(job))

    # --- writing --------------------------------------------------------------------------------------------------------------

    def request(self, queues: Sequence[tuple[str, bytes]], plain: object = False) -> bytes:
        """Returns the arguments of `change_jobs.lua`."""
        for before, after in self.moves():
            self._write(self.found(before), after)
        self._write_places()
        self._write_totals()
        for (queue_id, failure), counted in self.failures.items():
            queue = queue_id.to_bytes(QUEUE_BYTES, "big")
            self.writing.single("FAILED", queue, *values_of(failure, counted, self.now_ms))
        refs = list(self.loaded)
        found = self.loaded.values()
        return encode(
            (
                [name for name, _ in queues],
                [queue for _, queue in queues],
                plain,
                refs,
                [one.claim_bytes for one in found],
                [one.past_bytes for one in found],
                [(queue, key, held) for (queue, key), held in self.held_keys.items()],
                self.writing.commands(),
                self.marks,
                self.restores or False,
            )
        )

    def _write(self, found: LoadedJob, job: JobRecord) -> None:
        if job.priority != found.record.priority:
            self._move(found, job)
            return
        self._save(found, job)
        if found.record.state is not IN_PROGRESS or job.state is not IN_PROGRESS:
            self._leave(found)
        if job.state is PENDING:
            self._enter_waiting(found, job)
        elif job.state is IN_PROGRESS:
            self._renew(found, job)
        else:
            self._enter_finished(found, job)

    def _save(self, found: LoadedJob, job: JobRecord) -> None:
        """Saves the past of the job, and the job itself if it has a new body or must be marked as one with a past."""
        if job.changed:
            self.writing.enter("HSET", b"p", found.ref, pack_past(job))
        flags = bytes((found.front[0] | HAS_PAST,))
        if job.body is not None:
            self.writing.single("SET", b"j" + found.ref, flags + found.front[1:] + job.body)
        elif job.changed and not found.front[0] & HAS_PAST:
            self.writing.single("SETRANGE", b"j" + found.ref, 0, flags)

    def _leave(self, found: LoadedJob) -> None:
        """Removes the job from the indexes of its state as loaded."""
        leave = self.writing.leave
        state = found.record.state
        leave("ZREM", INDEX_OF[state] + found.line, packed_id(found.record.id))
        if state is IN_PROGRESS:
            leave("ZREM", b"c", found.ref)
        elif state is not PENDING:
            self._finished_bytes -= found.size
        elif found.record.options.expires_ms is not None:
            leave("ZREM", b"e", found.ref)

    def _enter_waiting(self, found: LoadedJob, job: JobRecord) -> None:
        enter = self.writing.enter
        if found.record.state is not PENDING:
            self.writing.leave("HDEL", b"h", found.ref)
        if job.options.ordering_key is None or not found.record.finished:
            enter("ZADD", b"r" + found.line, job.run_after_ms, packed_id(job.id))
        if job.options.ordering_key is not None and self.will_retry(job):
            self._tried.append(("BACK", found.queue, [found.ref[QUEUE_BYTES:], job.run_after_ms]))
        if job.options.expires_ms is not None:
            enter("ZADD", b"e", job.options.expires_ms, found.ref)
        enter("READY", found.queue)

    def _move(self, found: LoadedJob, job: JobRecord) -> None:
        """Stores the job under the name of its new priority. Its record stays, except for the flag that there is a past."""
        enter, single, ref = self.writing.enter, self.writing.single, ref_of(found.queue, job.priority, job.id)
        unique = job.options.unique
        self._leave(found)
        self.writing.leave("HDEL", b"h", found.ref)
        self.writing.leave("HDEL", b"p", found.ref)
        single(
            "MOVE",
            found.queue,
            found.ref,
            ref,
            "" if unique is None else unique.key,
            int(job.options.ordering_key is not None),
        )
        single("SETRANGE", b"j" + ref, 0, bytes((found.front[0] | HAS_PAST,)))
        enter("HSET", b"p", ref, pack_past(job))
        line, score = ref[:LINE_BYTES], job.run_after_ms if job.state is PENDING else job.finished_at_ms or 0
        enter("ZADD", INDEX_OF[job.state] + line, score, packed_id(job.id))
        if job.state is not PENDING:
            enter("HSET", b"h", ref, found.claim_bytes)
            self.note_finished(found.size)
            return
        self._count_deleted(found)
        if job.options.expires_ms is not None:
            enter("ZADD", b"e", job.options.expires_ms, ref)

    def _renew(self, found: LoadedJob, job: JobRecord) -> None:
        claim = UnpackedClaim(
            IN_PROGRESS,
            HAD_HOLDER
            | (SIMPLE if found.plain and not job.changed else 0)
            | (ORDERED if job.options.ordering_key is not None else 0),
            _size(found, job),
            job.claimed_at_ms,
            job.timeout_ms or 0,
            max(found.renewed_at_ms, self.now_ms),
            job.token,
            job.holder,
            job.source,
        )
        self.writing.enter("HSET", b"h", found.ref, pack_claim(claim))
        self.writing.enter("ZADD", b"c", job.deadline_ms or 0, found.ref)

    def _enter_finished(self, found: LoadedJob, job: JobRecord) -> None:
        """Its unique key ends with it, unless that ends by time."""
        finished_ms, size = job.finished_at_ms or 0, _size(found, job)
        self.writing.enter("HSET", b"h", found.ref, pack_finished(job.state, size, finished_ms, job.holder))
        self.writing.enter("ZADD", INDEX_OF[job.state] + found.line, finished_ms, packed_id(job.id))
        self._finished_bytes += size
        self._free_key(found)
        if job.options.ordering_key is not None and self.finally_failed(job):
            self._tried.append(("STOP", found.queue, [found.ref[QUEUE_BYTES:]]))
        else:
            self._leave_key(found)

    def _free_key(self, found: LoadedJob) -> None:
        unique = found.record.options.unique
        if unique is not None and unique.scope is not UniqueScope.TIME:
            self.writing.single("FREE", found.queue, unique.key.encode(), packed_id(found.record.id))

    def _leave_key(self, found: LoadedJob) -> None:
        if found.record.options.ordering_key is not None and found.record.state is not SUCCEEDED:
            self._ended.setdefault(found.queue, []).append(found.ref[QUEUE_BYTES:])

    def enter_key(self, queue: bytes, job: JobRecord) -> None:
        """A job with an ordering key waits in the last place of its key."""
        place = ref_of(queue, job.priority, job.id)[QUEUE_BYTES:]
        self.writing.single("ENTER", queue, place, job.options.ordering_key or "", job.run_after_ms)

    def _write_places(self) -> None:
        """Writes the places among those of ordering keys: behind all others, as a job that became due is put among the waiting ones."""
        for before, job in self.decided():
            if before.finished and not job.finished and job.options.ordering_key is not None:
                self.enter_key(self.found(job).queue, job)
        for command, queue, values in sorted(self._tried, reverse=True):  # `STOP` first, so that no other job goes
            self.writing.single(command, queue, *values)
        for queue, places in self._ended.items():
            self.writing.single("END", queue, *places)

    def _write_totals(self) -> None:
        """Does not count the jobs in each state: the indexes have these numbers."""
        for (queue_id, priority), totals in self.totals.items():
            line = line_of(queue_id.to_bytes(QUEUE_BYTES, "big"), priority)
            for field, count in ((b"s", totals.succeeded), (b"f", totals.failed), (b"r", totals.retried)):
                self._add_to_total(line, field, count)
        for line, count in self._deleted_waiting.items():
            self._add_to_total(line, b"d", count)
        if self._finished_bytes:
            self.writing.single("INCRBY", b"fb", self._finished_bytes)

    def _add_to_total(self, line: bytes, field: bytes, count: int) -> None:
        if count:
            self.writing.single("HINCRBY", b"n" + line, field, count)

    def note_finished(self, size: int) -> None:
        """Adds a finished job of that size."""
        self._finished_bytes += size

    # --- deleting -------------------------------------------------------------------------------------------------------------

    def delete(self, job: JobRecord) -> None:
        """Deletes the job with everything that belongs to it."""
        found = self.found(job)
        leave = self.writing.leave
        self._leave(found)
        leave("DEL", b"", found.ref)
        leave("HDEL", b"h", found.ref)
        leave("HDEL", b"p", found.ref)
        if found.record.state is PENDING:
            self._count_deleted(found)
        self._free_key(found)
        self._leave_key(found)

    def _count_deleted(self, found: LoadedJob) -> None:
        """A waiting job leaves its line, but not by a claim: `index_loss.py` must not miss it."""
        self._deleted_waiting[found.line] = self._deleted_waiting.get(found.line, 0) + 1

    def delete_missing(self) -> None:
        """Deletes index entries of jobs whose records are gone."""
        leave = self.writing.leave
        for ref, claim_bytes in self.missing.items():
            claim, line, job_id = read_claim(claim_bytes), ref[:LINE_BYTES], ref[LINE_BYTES:]
            if claim is not None and claim.state is not IN_PROGRESS:
                self._finished_bytes -= claim.size
            for index in INDEX_OF.values():
                leave("ZREM", index + line, job_id)
            leave("ZREM", b"c", ref)
            leave("ZREM", b"e", ref)
            leave("HDEL", b"h", ref)
            leave("HDEL", b"p", ref)
            self._ended.setdefault(ref[:QUEUE_BYTES], []).append(ref[QUEUE_BYTES:])
            self.writing.single("HINCRBY", b"n" + line, b"l", 1)


def _size(found: LoadedJob, job: JobRecord) -> int:
    """Bytes of the job's record, as indexes and claims keep it."""
    return found.size if job.body is None else len(found.front) + len(job.body)
