"""Everything that happens to a job but the plain ways (inserted, claimed, succeeded at once): loaded, decided on, written back.

What is written says what it was decided on; where a job has changed since it was loaded, nothing is written, and the call decides anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from pinlater.domain.job import JobState, UniqueScope
from pinlater.domain.transitions import REDIS_STATUS, StatusRule
from pinlater.storage.events import IN_PROGRESS, PENDING, Events, Record, later
from pinlater.storage.interface import JobKey
from pinlater.storage.redis.arguments import encode
from pinlater.storage.redis.keys import INDEX_OF, line_of, packed_id, parts_of
from pinlater.storage.redis.loading import load_jobs
from pinlater.storage.redis.packing import (
    HAD_HOLDER,
    HAS_PAST,
    SIMPLE,
    Claim,
    Past,
    is_simple,
    pack_claim,
    pack_finished,
    pack_past,
    read_claim,
    read_job,
    read_past,
)
from pinlater.storage.redis.readers import Readers


class Totals:
    """What a call adds to the totals of a line. How many jobs are in each state is never counted: the indexes know."""

    def __init__(self) -> None:
        self.in_progress = 0
        self.succeeded_total = 0
        self.failed_total = 0
        self.retried_total = 0
        self.deleted_waiting = 0

    def add_finished(self, state: JobState, count: int = 1) -> None:
        """The indexes know."""


class RedisRecord(Record):
    """A job, with what was found of it: that is what must still be so when it is written."""

    def __init__(self, ref: bytes, found: Sequence[Any], totals: Totals) -> None:
        stored_bytes, self.size, self.claim_bytes, self.past_bytes = found
        self.ref = ref
        self.front: bytes = stored_bytes
        self.size_now: int = self.size
        queue, priority, job_id = parts_of(ref)
        stored, past, claim = read_job(stored_bytes), read_past(self.past_bytes), read_claim(self.claim_bytes)
        self.plain = is_simple(stored)
        self.renewed_at_ms = 0  # of a claim: from when on its deadline counts
        held: tuple[Any, ...] = (None,) * 10
        if claim is not None and claim.state is IN_PROGRESS:
            self.renewed_at_ms = claim.renewed_at_ms or 0
            deadline_ms = later(self.renewed_at_ms, claim.timeout_ms or 0)
            held = (1, claim.claimed_at_ms, deadline_ms, claim.timeout_ms, claim.flags, claim.token, claim.source)
            held = (*held, claim.holder, None, None)
        elif claim is not None:
            held = (None, None, None, None, None, None, None, claim.holder, int(claim.state), claim.finished_at_ms)
        progress: tuple[Any, ...] = (None,) * 10 if past is None else (1, *past)
        super().__init__(
            (
                *(job_id, queue, priority, stored.run_after_ms, stored.attempts_allowed, stored.created_at_ms),
                *(stored.options, *progress, *held),
            ),
            totals,
        )


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


class Changes(Events):
    """The events of one call. Load, decide, then `request` once."""

    status_rule: ClassVar[StatusRule] = REDIS_STATUS

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self._totals: dict[bytes, Totals] = {}
        self.loaded: dict[bytes, RedisRecord] = {}
        self.missing: dict[bytes, bytes] = {}  # claims of jobs that aren't there
        self.held_keys: dict[tuple[bytes, str], bytes] = {}  # what was found under unique keys
        self.taken_keys: set[tuple[bytes, str]] = set()
        self.writing = Writing()
        self._finished_bytes = 0

    async def load(
        self, readers: Readers, refs: Iterable[bytes], queues: Sequence[tuple[str, bytes]] = ()
    ) -> list[RedisRecord]:
        """Those of the jobs that are there. Raises `StaleBook` where one of the queues is another now."""
        wanted = list(dict.fromkeys(refs))
        if not wanted and not queues:
            return []
        found, _ = await load_jobs(readers, wanted, queues=queues)
        for at, ref in enumerate(wanted):
            if found[4 * at]:
                totals = self._totals.setdefault(ref[:5], Totals())
                self.loaded[ref] = RedisRecord(ref, found[4 * at : 4 * at + 4], totals)
            else:
                self.missing[ref] = found[4 * at + 2]
        return [self.loaded[ref] for ref in wanted if ref in self.loaded]

    def _leave_waiting(self, job: Record) -> None:
        """The index knows."""

    def _enter_waiting(self, job: Record) -> None:
        """The index knows."""

    # --- writing --------------------------------------------------------------------------------------------------------------

    def request(self, queues: Sequence[tuple[str, bytes]], plain: object = False) -> bytes:
        """What `change_jobs.lua` is to do."""
        for job_id in sorted(self._touched):
            job = self._touched[job_id]
            assert isinstance(job, RedisRecord)  # noqa: S101
            self._write(job)
        self._write_totals()
        refs = list(self.loaded)
        records = self.loaded.values()
        return encode(
            (
                [name for name, _ in queues],
                [queue for _, queue in queues],
                plain,
                refs,
                [record.claim_bytes for record in records],
                [record.past_bytes for record in records],
                [(queue, key, held) for (queue, key), held in self.held_keys.items()],
                self.writing.commands(),
            )
        )

    @property
    def nothing(self) -> bool:
        """Whether nothing was decided that would have to be written."""
        return not self._touched

    def _write(self, job: RedisRecord) -> None:
        line = line_of(job.queue_id, job.priority)
        self._save(job)
        if job.was is not IN_PROGRESS or job.state is not IN_PROGRESS:
            self._leave(job, line)
        self._enter(job, line)
        unique = job.options.unique
        if job.finished and unique is not None and unique.scope is not UniqueScope.TIME:
            self.writing.single("FREE", job.queue_id, unique.key.encode(), packed_id(job.id))

    def _save(self, job: RedisRecord) -> None:
        """The past; and the record itself where it has a new body, or is to say that there is a past."""
        if job.changed:
            past = Past(
                job.attempts_allowed,
                job.attempts_remaining,
                job.attempts_ended,
                job.run_after_ms,
                job.updated_at_ms,
                job.custom_status,
                job.error_type,
                job.error_text,
                job.history,
            )
            self.writing.enter("HSET", b"p", job.ref, pack_past(past))
        flags = bytes((job.front[0] | HAS_PAST,))
        if job.new_body is not None:
            front = flags + job.front[1:]
            job.size_now = len(front) + len(job.new_body)
            self.writing.single("SET", b"j" + job.ref, front + job.new_body)
        elif job.changed and not job.front[0] & HAS_PAST:
            self.writing.single("SETRANGE", b"j" + job.ref, 0, flags)

    def _leave(self, job: RedisRecord, line: bytes) -> None:
        leave = self.writing.leave
        leave("ZREM", INDEX_OF[job.was] + line, packed_id(job.id))
        if job.was is IN_PROGRESS:
            leave("ZREM", b"c", job.ref)
        elif job.was is not PENDING:
            self._finished_bytes -= job.size
        elif job.options.expires_ms is not None:
            leave("ZREM", b"e", job.ref)

    def _enter(self, job: RedisRecord, line: bytes) -> None:
        enter = self.writing.enter
        if job.state is PENDING:
            if job.was is not PENDING:
                self.writing.leave("HDEL", b"h", job.ref)
            enter("ZADD", b"r" + line, job.run_after_ms, packed_id(job.id))
            if job.options.expires_ms is not None:
                enter("ZADD", b"e", job.options.expires_ms, job.ref)
            enter("READY", job.queue_id)
        elif job.state is IN_PROGRESS:
            flags = HAD_HOLDER | (SIMPLE if job.plain and not job.changed else 0)
            timeout_ms = job.timeout_ms or 0
            claim = Claim(
                IN_PROGRESS,
                flags,
                job.size_now,
                job.claimed_at_ms,
                timeout_ms,
                max(job.renewed_at_ms, self._now_ms),
                job.token,
                job.holder,
                job.source,
            )
            enter("HSET", b"h", job.ref, pack_claim(claim))
            enter("ZADD", b"c", job.deadline_ms, job.ref)
        else:
            finished_ms = job.finished_at_ms or 0
            enter("HSET", b"h", job.ref, pack_finished(job.state, job.size_now, finished_ms, job.holder))
            enter("ZADD", INDEX_OF[job.state] + line, finished_ms, packed_id(job.id))
            self._finished_bytes += job.size_now

    def _write_totals(self) -> None:
        for line, totals in self._totals.items():
            sums = {b"s": totals.succeeded_total, b"f": totals.failed_total, b"r": totals.retried_total}
            sums[b"d"] = totals.deleted_waiting
            for field, count in sums.items():
                if count:
                    self.writing.single("HINCRBY", b"n" + line, field, count)
        if self._finished_bytes:
            self.writing.single("INCRBY", b"fb", self._finished_bytes)

    # --- deleting -------------------------------------------------------------------------------------------------------------

    def delete(self, job: RedisRecord) -> None:
        """With all that belongs to it."""
        line = line_of(job.queue_id, job.priority)
        leave = self.writing.leave
        self._leave(job, line)
        leave("DEL", b"", job.ref)
        leave("HDEL", b"h", job.ref)
        leave("HDEL", b"p", job.ref)
        self._totals[line].deleted_waiting += job.was is PENDING
        unique = job.options.unique
        if unique is not None and unique.scope is not UniqueScope.TIME:
            self.writing.single("FREE", job.queue_id, unique.key.encode(), packed_id(job.id))

    def delete_missing(self) -> None:
        """Index entries of jobs whose records are gone."""
        leave = self.writing.leave
        for ref, claim_bytes in self.missing.items():
            claim, line, job_id = read_claim(claim_bytes), ref[:5], ref[5:]
            if claim is not None and claim.state is not IN_PROGRESS:
                self._finished_bytes -= claim.size
            for index in INDEX_OF.values():
                leave("ZREM", index + line, job_id)
            leave("ZREM", b"c", ref)
            leave("ZREM", b"e", ref)
            leave("HDEL", b"h", ref)
            leave("HDEL", b"p", ref)
            self.writing.single("HINCRBY", b"n" + line, b"l", 1)


def keyed(records: Sequence[RedisRecord], queues: Sequence[tuple[str, bytes]]) -> dict[JobKey, Record]:
    """The records, all of these queues, by their names."""
    names = {queue: name for name, queue in queues}
    return {JobKey(names[job.queue_id], job.priority, job.id): job for job in records}
