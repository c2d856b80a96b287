"""The arguments and results of a shard's commands (`commands.py`): frozen, in the terms of jobs.

Times are integer milliseconds since the epoch, sizes are bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from pinlater.domain.bulk import RESTORABLE_MS
from pinlater.domain.descriptor import descriptor_prefix
from pinlater.domain.errors import EnqueueRejected, PinLaterError
from pinlater.domain.job import HandedOutJob, Holder, JobState, Outcome
from pinlater.domain.queue import ALL_JOBS
from pinlater.domain.servers import PEER_VERSION, USUAL, AboutServer
from pinlater.domain.slices import SLICES
from pinlater.server.storage.options import Options
from pinlater.wire.generated.structs import JobInfo


class Capabilities(NamedTuple):
    """The capabilities in which stores differ."""

    kind: str
    shared: bool  # other servers may use the same shard at the same time
    durable: bool  # answered changes survive a kill -9
    custom_status_chars_max: int = 5_000
    ack_replaces_status: bool = False  # an ack's status replaces the old one, even an empty one
    body_bytes_max: int = 2**31 - 1
    body_bytes_bound: str = "its store"  # the name of the limit, for an operator who could raise it
    in_order: bool = False  # a call sees the changes of every earlier call, even those that are not answered yet


FIGURES: Mapping[str, str] = {
    "transactions": "Transactions carried out",
    "transaction_seconds": "How long these took together",
    "statements": "Statements sent",
    "round_trips": "Packets of statements sent",
    "deadlocks": "Transactions tried again after a deadlock",
    "lock_waits": "Transactions tried again after waiting too long for a lock",
    "lost_connections": "Connections lost in the middle of something",
    "outcomes_settled": "Commits without a clear answer that turned out to be committed",
    "slots_lost": "How often another server took over the slot of this server",
    "connections": "Connections open now",
    "remembered_jobs": "Due jobs that the server remembers, to hand them out without a search",
    "remembered_bytes": "Bytes that these jobs take in the server",
    "claims_from_memory": "Claims that were answered from these jobs without a search, or from the memory that none is due",
    "stale_claims": "Claims from memory that searched after all, as a job was gone or locked",
    "conflicts": "Changes that were decided again because another server had changed one of the jobs",
    "jobs_lost": "Jobs whose data was gone, taken out of the indexes",
    "jobs_repaired": "Jobs whose index entry or claim was missing and was rebuilt",
}
"""The figures that a store may count about itself, with their meaning."""


class JobKey(NamedTuple):
    """Names one job within a shard; queue and priority must match, or it counts as not found."""

    queue: str
    priority: int
    id: int

    def on(self, shard: str) -> str:
        """The descriptor of the job on the shard of that name."""
        return f"{descriptor_prefix(self.queue, shard)}{self.priority}:{self.id}"


NO_END_MS = 2**63


class NewJob(NamedTuple):
    """A job that is about to be stored. Its id was made by the server (`ids`), so that a repeated insert is recognised.

    `options`: None for a plain job.
    """

    id: int
    body: bytes
    priority: int
    run_after_ms: int
    attempts_allowed: int
    options: Options | None = None


def have_keys(jobs: Sequence[NewJob]) -> bool:
    """Returns whether any of these jobs has a unique key or an ordering key."""
    return any(
        [  # noqa: C419 a list is quicker
            job.options is not None and (job.options.unique is not None or job.options.ordering_key is not None)
            for job in jobs
        ]
    )


def have_unique_keys(jobs: Sequence[NewJob]) -> bool:
    """Returns whether any of these jobs has a unique key."""
    return any(job.options is not None and job.options.unique is not None for job in jobs)


def has_order(jobs: Sequence[NewJob]) -> bool:
    """Returns whether any of these jobs has an ordering key."""
    return any(job.options is not None and job.options.ordering_key is not None for job in jobs)


class InsertRequest(NamedTuple):
    """The jobs of one enqueue request for this shard: stored together or not at all.

    `request_key` makes it idempotent: the same key and `fingerprint` again, within two minutes, stores nothing and gives the first
    answer; another fingerprint gives `RequestKeyConflict`. `max_backlog` gives `QueueFull` when the queue would grow beyond it.
    `begin_by_ms`: the request must not begin later; the caller of the store checks that.
    """

    queue: str
    jobs: Sequence[NewJob]
    request_key: str | None = None
    fingerprint: bytes = b""
    max_backlog: int | None = None
    begin_by_ms: int = NO_END_MS


class KeyHolder(NamedTuple):
    """The job that has a unique key now."""

    job_id: int
    priority: int


def out_of_order(request: InsertRequest) -> EnqueueRejected | None:
    """Returns the refusal of a request for a queue that is ordered as a whole, from a server that takes it for a deleted one of the same
    name."""
    if all(job.options is not None and job.options.ordering_key == ALL_JOBS for job in request.jobs):
        return None
    return EnqueueRejected(
        f"Queue {request.queue} was made anew, and is ordered as a whole now; this server has yet to hear of it. Nothing was stored",
        retry_after_ms=1000,
    )


class Inserted(NamedTuple):
    """What an insert did. `existing` maps the index of a job to the one that already has its unique key.

    `ids` are in the order of the jobs, with the existing ones' ids in their places. `repeated`: the request key was known.
    """

    ids: Sequence[int]
    existing: dict[int, KeyHolder]
    repeated: bool = False


class RequestRef(NamedTuple):
    """A query for a keyed enqueue request; the fields mean the same as in `InsertRequest`."""

    queue: str
    request_key: str
    fingerprint: bytes


class UniqueRef(NamedTuple):
    """A query for a unique key."""

    queue: str
    key: str


class UniqueHeld(NamedTuple):
    """A queue has unique keys on this shard; `oldest_id` is the lowest id of a job that one of them names."""

    queue: str
    oldest_id: int


class StoredFailures(NamedTuple):
    """A group of failed attempts, as one shard counts it, in the form of `domain.failures`. `hours`: by hours since 1970."""

    queue: str
    name: str
    task: str
    error_type: str
    pattern: str
    failures: int
    first_ms: int
    last_ms: int
    priority: int
    job_id: int
    hours: Mapping[int, int]


class TrailEntry(NamedTuple):
    """An entry of a log that is distributed over the shards. Ids sort in the order of the entries, and have no `|`."""

    id: str
    content: bytes


TRAIL_END = "~"
"""Higher than every id of an entry."""


class TimedKeys(NamedTuple):
    """Unique keys that time alone will free (scope TIME) and that still count: how many, at most `TIMED_KEYS_COUNTED`, and when the
    last of them ends."""

    number: int = 0
    until_ms: int | None = None

    def __str__(self) -> str:
        if self.until_ms is None:
            return "no unique keys for a time"
        until = datetime.fromtimestamp(self.until_ms / 1000, UTC).isoformat(timespec="seconds")
        many = f"at least {self.number}" if self.number >= TIMED_KEYS_COUNTED else str(self.number)
        return f"{many} unique key{'' if many == '1' else 's'} for a time, the last until {until}"


TIMED_KEYS_COUNTED = 100_000


class ClaimCall(NamedTuple):
    """One dequeue call's share of a joined claim: at most `limit` jobs and `max_bytes` of bodies and headers, but one job always fits."""

    limit: int
    holder: Holder
    max_bytes: int = 16 * 1024 * 1024


class ClaimOrder(NamedTuple):
    """All calls that claim from one queue now. The first call gets the first jobs.

    A job's own claim timeout overrides `claim_timeout_ms`. Jobs past their expiry become FAILED `expired` meanwhile.
    Once the orders of one `ClaimJobs` have handed out `bytes_together_max` of bodies and headers (the lowest of theirs), they hand out no
    more.
    `from_memory`: a store may answer from what it remembers, without a search: this server owns the queue, and no job has bypassed it, as
    far as it knows.
    `through_priority`: hands out no job of a later priority than this one, which is a higher number; None: jobs of all priorities.
    """

    queue: str
    calls: Sequence[ClaimCall]
    claim_timeout_ms: int
    bytes_together_max: int = 64 * 1024 * 1024
    from_memory: bool = False
    through_priority: int | None = None


class Claimed(NamedTuple):
    """`jobs[i]` are the jobs of the order's call i: priority first, then run-after, then id.

    `next_due_ms` is the earliest run-after of the jobs that still wait, if a call got fewer than it requested (else None): when to ask
    again. It may be in the past if the byte limit cut a call short. `expired` counts jobs that became FAILED instead.
    `cut_short`: a due job stayed because of `bytes_together_max`, or because the claim found jobs whose data is gone; calls that got none
    may ask again at once. `head`: priority and run-after of the best job that is due and stays, if a call got fewer than it requested; it
    may be better than that job. None: as far as the store knows, none is due.
    """

    jobs: Sequence[Sequence[HandedOutJob]]
    next_due_ms: int | None = None
    expired: int = 0
    cut_short: bool = False
    head: tuple[int, int] | None = None


class JobAck(NamedTuple):
    """The end of an attempt. Without a token any holder's claim counts; with one, only its own."""

    key: JobKey
    succeeded: bool
    token: str | None = None
    append_status: str = ""
    retry_delay_ms: int = 0
    final: bool = False
    error_type: str = ""
    error_text: str = ""


class Acked(NamedTuple):
    """The outcome of an ack, checkpoint, heartbeat, release, cancel, order to run or move.

    `state` is the job's state afterwards (None: not found); `due_at_ms` its run-after if it is PENDING now.
    With STALE_CLAIM, `holder` and `held_since_ms` describe the present claim; '' and None if no client holds it.
    `deadline_ms` is the claim's new deadline if it was renewed.
    """

    outcome: Outcome
    state: JobState | None = None
    due_at_ms: int | None = None
    holder: str = ""
    held_since_ms: int | None = None
    deadline_ms: int | None = None


NOT_FOUND = Acked(Outcome.NOT_FOUND)


class JobCheckpoint(NamedTuple):
    """Progress of a claimed job. Fenced by `token`, or, without one, by `source` being equal to the holder's."""

    key: JobKey
    source: str
    token: str | None = None
    new_body: bytes | None = None
    move_to_pending: bool = False
    run_after_ms: int | None = None  # None: now
    attempts_allowed: int | None = None  # also resets what remains
    prepend_status: str = ""


class ClaimRef(NamedTuple):
    """A claim as its holder names it: for heartbeats and releases. `delay_ms` is used by releases only."""

    key: JobKey
    token: str
    delay_ms: int = 0


Position = tuple[int, ...]
"""How far a requeue has read, as its store counts it."""


class Requeue(NamedTuple):
    """retryFailedJobs: up to `limit` FAILED jobs of one priority, oldest finish first.

    None past its expiry, and with `skip_cancelled` none that was cancelled. `after`: behind those that an earlier call has read.
    """

    queue: str
    priority: int
    attempts: int
    run_after_ms: int
    limit: int
    skip_cancelled: bool = False
    after: Position | None = None


class Requeued(NamedTuple):
    """How many jobs one call put back, and how far it read: `stopped_at` is None at the end of the FAILED jobs."""

    done: int
    stopped_at: Position | None = None


# Jobs that one requeue reads and leaves as they are: on SQLite they block the event loop for 6 ms.
PASSED_OVER_MAX = 1_000


class RunOrder(NamedTuple):
    """runJobs: this job becomes due at `run_after_ms`. A PENDING one keeps its attempts, or stays with `only_failed`; a FAILED one gets
    `attempts`."""

    key: JobKey
    attempts: int
    run_after_ms: int
    only_failed: bool = False


class Purge(NamedTuple):
    """deleteJobs without a regex: up to `limit` jobs of one state and priority, oldest first."""

    queue: str
    state: JobState
    priority: int
    limit: int


COPIES_STEP_S, RESTORED_STEP_S = 3, 4
"""The steps of samples that are copies of deleted jobs, and of those that mark a shard on which jobs of a run were restored."""
COPIES_KEPT_MS = RESTORABLE_MS + 3_600_000
"""How long copies are kept: an hour longer than they are needed, so that a run which restores jobs at the last moment finds them."""


class CopiesOf(NamedTuple):
    """The run that deletes jobs, by its id (at most 16 characters) and its start: these identify the jobs to restore."""

    run: str
    started_ms: int


class DeletedWithCopies(NamedTuple):
    """The jobs that one call deleted. `handled`: how many of the keys it processed, the first ones; the others are for further calls.
    `copy_bytes`: the size of the copies."""

    handled: int
    deleted: int = 0
    copy_bytes: int = 0


class RestoreOrder(NamedTuple):
    """Restores the jobs that a call deleted for a run. `after`: the place where an earlier call ended; '' for the first call."""

    queue: str
    copies: CopiesOf
    after: str = ""


class Restored(NamedTuple):
    """The jobs that one call restored. `after`: where the next call begins, or None if there is nothing more.

    `key_taken`: jobs whose unique key another job has by now, or whose ordering key another shard takes. `queue_gone`: jobs of a queue
    that was deleted. Both keep their copies. `freed_bytes`: the size of the deleted copies. `due`: those of the restored jobs that are
    due; `next_due_ms`: when the first of the others is due.
    """

    after: str | None
    restored: int = 0
    key_taken: int = 0
    queue_gone: int = 0
    freed_bytes: int = 0
    due: int = 0
    next_due_ms: int | None = None


class Page(NamedTuple):
    """A part of a scan of one queue and state, of these priorities together, newest first.

    Order: PENDING by run-after, IN_PROGRESS by claim time, finished by finish time; then by id; all descending. `after` is the (time, id)
    of the last row of the previous page, or any other place in that order. `due_by_ms`: PENDING only: with `future` False rows with
    run-after ≤ it, with True rows after it. Bodies are included if `bodies`; a page also ends once they exceed `max_bytes`.
    """

    queue: str
    state: JobState
    priorities: Sequence[int]
    limit: int
    after: tuple[int, int] | None = None
    due_by_ms: int = 0
    future: bool = False
    bodies: bool = False
    max_bytes: int = 8 * 1024 * 1024


class PageRow(NamedTuple):
    """A row of a scan: the time it is ordered by, the key of the job within the shard, and the job."""

    sort_ms: int
    key: JobKey
    job: JobInfo


class AheadInKey(NamedTuple):
    """The jobs before one under its ordering key: the first, which may be in progress, and their number, counted no further than a
    limit."""

    first: JobKey
    jobs: int


class Place(NamedTuple):
    """A position in the order in which a shard hands out the jobs of a queue. Before it are the waiting jobs of higher priorities with
    run-after ≤ `due_by_ms`, and those of `priority` with a lower run-after, or the same and a lower id.

    No job need be there. `limit`: the highest count.
    """

    queue: str
    priority: int
    run_after_ms: int
    id: int
    due_by_ms: int
    limit: int


class Swept(NamedTuple):
    """The changes of one sweep in one queue and priority: claim timeouts, expiries or garbage. `due_at_ms`: the earliest job it put back.

    A row with the queue '' stands for what belongs to no queue: `freed` old keys and rows of deleted queues. `ended`: the sources of the
    claims that timed out, by the id of the job.
    """

    queue: str
    priority: int
    retried: int = 0
    failed: int = 0
    deleted_succeeded: int = 0
    deleted_failed: int = 0
    due_at_ms: int | None = None
    freed: int = 0
    lost: int = 0  # jobs whose data was gone
    ended: Mapping[int, str] = {}


class TimeToLive(NamedTuple):
    """How long a queue's finished jobs are kept, counted from the finish."""

    queue: str
    succeeded_ms: int
    failed_ms: int


class Member(NamedTuple):
    """A server that uses a shard. Times are in milliseconds of the store's clock."""

    slot: int
    name: str
    address: str
    started_at_ms: int
    seen_at_ms: int
    silent_ms: int = 0
    """How long ago its last heartbeat was, by the store's clock."""
    peer_version: int = PEER_VERSION
    """The newest version of the messages between servers that it speaks; `PEER_VERSION_UNTOLD` for all that are older."""
    about: AboutServer = USUAL


class ShardTime(NamedTuple):
    """The time that a starting server gets from a shard. `of_servers`: whether servers that use the shard have told it their time;
    otherwise it is that of the shard's clock."""

    ms: int
    of_servers: bool


class StoredSample(NamedTuple):
    """A row of the history: the data of one origin about one queue at one time. `data` is at most 64 KiB; stores do not interpret it.

    `step_s`: the length of its span, which begins at `at_ms`. Queue and origin: at most 64 bytes in UTF-8, and may be ''.
    """

    step_s: int
    at_ms: int
    queue: str
    origin: str
    data: bytes


class SampleRange(NamedTuple):
    """Samples of one step from `from_ms` on and before `until_ms`, in the order of time, queue and origin; of all queues for None.

    `after`: after this position in that order. `limit`: at most that many.
    """

    step_s: int
    from_ms: int
    until_ms: int
    queues: Sequence[str] | None = None
    after: tuple[int, str, str] | None = None
    limit: int = 50_000


SAMPLE_BYTES_MAX = 65_535


NO_OWNER = ""


class Owners(NamedTuple):
    """Which servers own the slices of one shard's queues, by slice: the addresses that they announced, or `NO_OWNER`.

    `version` increases by one with each change.
    """

    version: int
    by_slice: tuple[str, ...]

    def as_text(self) -> str:
        """Returns the stored form of the owners. Equal owners give equal strings."""
        return json.dumps(self, separators=(",", ":"))

    @staticmethod
    def of_text(text: str | None) -> Owners:
        """Returns the owners from the result of `as_text`; without a string, slices that no server owns."""
        if not text:
            return NO_OWNERS
        version, by_slice = json.loads(text)
        return Owners(version, tuple(by_slice))


NO_OWNERS = Owners(0, (NO_OWNER,) * SLICES)


DELETION_KEPT_MS = 24 * 3_600_000
"""How long a shard remembers that it deleted a queue: a server that stood still for less does not make it again."""


Value = TypeVar("Value")


def raise_error(answer: Value | PinLaterError) -> Value:
    """Returns the answer, or raises it if it is an error."""
    if isinstance(answer, PinLaterError):
        raise answer
    return answer
