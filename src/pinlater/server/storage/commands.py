"""The requests to a shard: a class for each command, whose fields are the arguments of the function that executes it.

One command is one transaction: all of it is stored when it is answered, or none of it when it raises. `now_ms` is an argument, since a
store never reads the time. A store is complete when `tests/contract` passes for it.

A store may rely on the following: the service has checked values (names, priorities, sizes, ranges), ids are new and ascending.
It must decide itself, inside its transaction: whether a queue exists, which worker holds a claim, whether a key is taken, whether a queue
is full. Results are in the order of the arguments. An item that can't be done is answered with a `PinLaterError` *value* in its place and
harms no other; a command raises only `Unavailable`s (the shard is unreachable, full, broken) and bugs. If a store can't know whether a
command that raises was stored (the connection was lost between COMMIT and its answer), it raises `OutcomeUnknown`; for every other error
callers assume that nothing was stored, and may store the jobs elsewhere.

A store does not deal with regular expressions, merging over shards, rate limits, waiting and waking.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum, auto
from typing import ClassVar, Generic, TypeVar

from msgspec import Struct

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import HandedOutJob, JobState
from pinlater.domain.queue import LIFE_UNKNOWN, Home, Life, Queue, QueueConfig, QueueCounts
from pinlater.server.storage.values import (
    Acked,
    AheadInKey,
    Claimed,
    ClaimOrder,
    ClaimRef,
    CopiesOf,
    DeletedWithCopies,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    JobKey,
    KeyHolder,
    Member,
    Owners,
    Page,
    PageRow,
    Place,
    Purge,
    RequestRef,
    Requeue,
    Requeued,
    Restored,
    RestoreOrder,
    RunOrder,
    SampleRange,
    ShardTime,
    StoredFailures,
    StoredSample,
    Swept,
    TimedKeys,
    TimeToLive,
    TrailEntry,
    UniqueHeld,
    UniqueRef,
)
from pinlater.wire.generated.structs import JobInfo

Answer = TypeVar("Answer", covariant=True)


class CommandLimit(Enum):
    """How long a command may take, and its error after that."""

    LOOK = auto()
    """`call_timeout_ms`; a read, so nothing was changed."""
    CHANGE = auto()
    """`call_timeout_ms`; a change, which may have been executed."""
    WORK = auto()
    """`work_timeout_ms`; a long command, which may have been executed."""


class Command(Struct, Generic[Answer]):
    """A request to a shard. `Answer`: the type of its answer. `time_limit`: how long it may take on a database server."""

    time_limit: ClassVar[CommandLimit]


class WriteCommand(Command[Answer], Generic[Answer]):
    """A command that changes something."""

    time_limit = CommandLimit.CHANGE


class ReadCommand(Command[Answer], Generic[Answer]):
    """A command that changes nothing."""

    time_limit = CommandLimit.LOOK


# --- the lifecycle of a job ---------------------------------------------------------------------------------------------------
class InsertJobs(WriteCommand[Sequence[Inserted | PinLaterError]]):
    """Stores jobs. Errors as values: QueueNotFound, QueueFull, RequestKeyConflict."""

    requests: Sequence[InsertRequest]
    now_ms: int


class ClaimJobs(WriteCommand[Sequence[Claimed | PinLaterError]]):
    """Hands out due jobs. Errors as values: QueueNotFound."""

    orders: Sequence[ClaimOrder]
    now_ms: int


class FinishJobs(WriteCommand[Sequence[Acked]]):
    """Ends attempts. Only a job IN_PROGRESS changes. Of two acks of one job in a call, the first counts."""

    acks: Sequence[JobAck]
    now_ms: int


# --- claimed jobs -------------------------------------------------------------------------------------------------------------
class CheckpointJobs(WriteCommand[Sequence[Acked | PinLaterError]]):
    """Saves progress and renews claims (deadline = now + the job's claim timeout).

    If a body is too long for a statement of the database, the error is a value.
    """

    checkpoints: Sequence[JobCheckpoint]
    now_ms: int


class ExtendClaims(WriteCommand[Sequence[Acked]]):
    """Heartbeats: deadline = now + the job's claim timeout. Never revives a claim."""

    claims: Sequence[ClaimRef]
    now_ms: int


class ReleaseJobs(WriteCommand[Sequence[Acked]]):
    """Gives claims back: PENDING, due at now + delay, attempts as they were."""

    claims: Sequence[ClaimRef]
    now_ms: int


class CancelJobs(WriteCommand[Sequence[Acked]]):
    """PENDING or IN_PROGRESS → FAILED, attempts remaining 0, status `cancelled` appended. Outcome for finished jobs, and for those in
    another state than `only_state`: ALREADY_FINAL.
    """

    keys: Sequence[JobKey]
    now_ms: int
    only_state: JobState | None = None


class RunJobs(WriteCommand[Sequence[Acked]]):
    """PENDING or FAILED → PENDING, as ordered; a FAILED job in the same way as `RequeueFailedJobs` does it.

    STALE_CLAIM with the holder for a claimed job; ALREADY_FINAL for one that succeeded, and for a FAILED one that is past its expiry or
    whose UNFINISHED key is taken.
    """

    orders: Sequence[RunOrder]
    now_ms: int


class MoveJobs(WriteCommand[Sequence[Acked]]):
    """Gives waiting and FAILED jobs another priority, which changes their key. The rest of the job stays, except for the update time of a
    waiting job.

    APPLIED also for a job that already has that priority, in any state: `keys` may be those before a move whose answer was lost.
    STALE_CLAIM with the holder for a claimed job; ALREADY_FINAL for one that succeeded.
    """

    keys: Sequence[JobKey]
    priority: int
    now_ms: int


# --- bulk ---------------------------------------------------------------------------------------------------------------------
class RequeueFailedJobs(WriteCommand[Requeued | PinLaterError]):
    """FAILED → PENDING, without the old claim. Skips a job whose UNFINISHED key is taken, and otherwise takes the key again.

    It stops at the limit, or after it has passed over a thousand jobs; a call with `after` continues there.
    """

    time_limit = CommandLimit.WORK
    order: Requeue
    now_ms: int


class UnblockKey(WriteCommand[int | PinLaterError]):
    """Makes failed jobs no longer stop their ordering key, so that its next jobs run. Returns how many stopped it."""

    queue: str
    ordering_key: str
    now_ms: int


class LiftBarrier(WriteCommand[str | None | PinLaterError]):
    """Makes the first jobs of the next ordering keys of a queue ready, at most `limit` keys: those after `after`, '' for the first. Returns
    the last of them, or None if there are no more. A key whose first job already is ready stays as it is."""

    queue: str
    after: str
    limit: int
    now_ms: int


class PurgeJobs(WriteCommand[int | PinLaterError]):
    """Deletes jobs of one state and priority. Returns how many."""

    time_limit = CommandLimit.WORK
    order: Purge


class DeleteJobs(WriteCommand[int]):
    """Deletes these jobs, or only those in `state` if one is given. Returns how many."""

    time_limit = CommandLimit.WORK
    keys: Sequence[JobKey]
    state: JobState | None = None


class DeleteWithCopies(WriteCommand[DeletedWithCopies]):
    """Deletes the first of these jobs that are in that state, and keeps copies of them: at most a thousand jobs, or about a MiB of
    bodies, but at least one job.

    Deletes nothing once `RestoreJobs` was called for that run: the caller stood still meanwhile. Copies are kept for at least
    `COPIES_KEPT_MS`: `TrimSamples` deletes them, with the step `COPIES_STEP_S`.
    """

    time_limit = CommandLimit.WORK
    keys: Sequence[JobKey]
    state: JobState
    of: CopiesOf
    now_ms: int


class RestoreJobs(WriteCommand[Restored]):
    """Stores the jobs that one call deleted as they were, under their ids, and deletes their copies.

    A job that was claimed waits, and is due when the claim would have ended.
    """

    time_limit = CommandLimit.WORK
    order: RestoreOrder
    now_ms: int


# --- reads of jobs ------------------------------------------------------------------------------------------------------------
class PeekJobs(ReadCommand[Sequence[HandedOutJob] | PinLaterError]):
    """The jobs that a claim of that size would return, without claiming them (claim_deadline_ms 0)."""

    queue: str
    limit: int
    now_ms: int
    max_bytes: int


class LookupJobs(ReadCommand[Sequence[JobInfo | None]]):
    """Looks up all that is known of each job; None for one that does not exist."""

    keys: Sequence[JobKey]
    bodies: bool


class ScanJobs(ReadCommand[Sequence[PageRow] | PinLaterError]):
    """One page. If bodies were requested, fewer rows than the limit do not mean the end; no rows do."""

    time_limit = CommandLimit.WORK
    page: Page


class CountAhead(ReadCommand[int | PinLaterError]):
    """Counts the waiting jobs that a claim hands out before it reaches that position, at most `place.limit`.

    Reads at most `place.limit` entries of an index, whatever else waits. Errors as values: QueueNotFound.
    """

    time_limit = CommandLimit.WORK
    place: Place


class FindAheadInKey(ReadCommand[AheadInKey | None]):
    """Finds what precedes a job under its ordering key: None if nothing does, or the job is missing or has no key.

    Reads at most `limit` entries of an index, whatever else waits.
    """

    key: JobKey
    limit: int


class CountOrdered(ReadCommand[int]):
    """How many jobs with ordering keys of a queue have a place, including those that have stopped their keys. Counts no further than
    `limit`; 0 if there is no such queue."""

    queue: str
    limit: int


class CountJobs(ReadCommand[Sequence[QueueCounts]]):
    """Counters by queue and priority, for all queues if None; queues without jobs yet may be left out. Never a scan of jobs."""

    time_limit = CommandLimit.WORK
    queues: Sequence[str] | None = None


# --- queues -------------------------------------------------------------------------------------------------------------------
class MergeQueues(WriteCommand[Sequence[Queue]]):
    """Makes missing queues as they are given, and updates existing ones with what is newer (`Queue.newest`). Returns all of them
    as they are now, in this order.

    A queue that was deleted here, not before it was made, is not made; its answer shows that (`Queue.life.over`).
    Its cost must not grow with the number of existing queues.
    """

    time_limit = CommandLimit.WORK
    queues: Sequence[Queue]
    now_ms: int


class DeleteQueues(WriteCommand[int]):
    """Removes them with all their jobs, at once for every caller (the space may be freed later), and remembers `deleted_ms`, also for
    missing ones. 0: nothing is remembered. The remembered time is later than all times of a deleted queue, so that a repeat after a lost
    answer need not know it.

    Forgets some deletions from `DELETION_KEPT_MS` before `now_ms`, the caller's time. `deleted_ms` may be far ahead of it.

    A queue that was made after `deleted_ms` stays. Returns the newest time of any of them (`Queue.newest_ms`), 0 for none.
    """

    time_limit = CommandLimit.WORK
    names: Sequence[str]
    deleted_ms: int = 0
    now_ms: int = 0


class ListQueues(ReadCommand[Sequence[Queue]]):
    """All queues with their settings, by name."""


class ConfigureQueue(WriteCommand[None]):
    """Replaces the settings and/or the pause switch; None leaves it unchanged. `by`: who pauses. Raises `QueueNotFound`.

    Stored with `version`, and only if that is later than the version that it replaces (`Queue.changed`).
    """

    time_limit = CommandLimit.WORK
    name: str
    config: QueueConfig | None = None
    paused: bool | None = None
    version: str = ""
    by: str = ""


class MoveHome(WriteCommand[Home | PinLaterError]):
    """Sets where the jobs with ordering keys of a queue are from now on, if the stored home is `known`. Returns the home that is stored
    afterwards. No insert that used the former one is committed afterwards. The value `EnqueueRejected`: a server of the previous version
    uses the shard. Only reads if nothing needs to change.
    """

    time_limit = CommandLimit.WORK
    queue: str
    known: Home
    home: Home


# --- keys: sent only if there are several shards, so that a key counts on all of them -----------------------------------------
class FindRequests(ReadCommand[Sequence[Inserted | PinLaterError | None]]):
    """The answer to an insert with that request key, if it was answered before (`repeated`).

    None: the key is not known here, or its two minutes are over, or the queue does not exist; `RequestKeyConflict` as a value: known with
    another fingerprint. Changes nothing.
    """

    requests: Sequence[RequestRef]
    now_ms: int


class FindUnique(ReadCommand[Sequence[KeyHolder | None]]):
    """The job that an insert with that unique key would find there, or None for a free key."""

    keys: Sequence[UniqueRef]
    now_ms: int


class ListUniqueQueues(ReadCommand[Sequence[UniqueHeld]]):
    """The queues that have unique keys here, by name; keys that time has freed may still count.

    Sent at the start and, while rows from before the last change of the shard map are left, about once a minute: it may cost a scan of
    the keys (or of an index), but must not block other calls.
    """

    time_limit = CommandLimit.WORK


class CountTimedKeys(ReadCommand[TimedKeys]):
    """Asks for unique keys that would be lost with this shard although all its jobs have ended. Sent before the shard is removed."""

    time_limit = CommandLimit.WORK
    now_ms: int


class NoteMap(WriteCommand[int]):
    """Stores which shards accept enqueues (a string of at most 64 KiB, compared by equality), and returns since when that has been so:
    `now_ms` if another string or none was stored before, otherwise the time that was stored with it."""

    time_limit = CommandLimit.WORK
    shard_map: str
    now_ms: int


# --- the trail: a log of entries on any shard, independent of queues and jobs --------------------------------------------------
class AddToTrail(WriteCommand[None]):
    """Stores the entries whose id is not there yet, and deletes the oldest of the shard so that at most `records_max` remain."""

    records: Sequence[TrailEntry]
    records_max: int


class ListTrail(ReadCommand[Sequence[TrailEntry]]):
    """The newest with `since` <= id < `before`, highest id first. '' is not a bound."""

    time_limit = CommandLimit.WORK
    since: str
    before: str
    limit: int


class PruneTrail(WriteCommand[int]):
    """Deletes the oldest with an id below `before`, at most `limit` of them. Returns how many."""

    time_limit = CommandLimit.WORK
    before: str
    limit: int


# --- failed attempts in groups: a call that ends attempts, or times claims out, counts them in its own transaction ------------
class ListFailures(ReadCommand[Sequence[StoredFailures]]):
    """Lists the groups of these queues in any order, each with its failures by hour from that hour on."""

    queues: Sequence[str]
    from_hour: int


class PruneFailures(WriteCommand[int]):
    """Deletes groups that failed last before that time, and counts of hours before that one: at most `limit` rows of each. Returns how
    many.
    """

    time_limit = CommandLimit.WORK
    before_ms: int
    before_hour: int
    limit: int


# --- sweeps: each is bounded by `limit` rows, and costs no I/O if the store can know that there is nothing to do. Several servers may
# sweep at once, and one is enough. With a limit of 0 a sweep does only the work that no other server can do for this one.
class AdvanceDue(WriteCommand[int]):
    """Moves jobs that became due from the counters' future part to the due part; returns how many (none if a store counts by time, and
    has nothing to move)."""

    time_limit = CommandLimit.WORK
    now_ms: int
    limit: int


class TimeOutClaims(WriteCommand[Sequence[Swept]]):
    """Claims past their deadline: PENDING with one attempt fewer, run-after kept; or FAILED when that was the last, or when it was the
    last of `quarantine_after` in a row of a task's job (0: any number). Also gives back claims of this server with an unknown outcome,
    whatever the limit."""

    time_limit = CommandLimit.WORK
    now_ms: int
    limit: int
    quarantine_after: int = 0


class ExpireJobs(WriteCommand[Sequence[Swept]]):
    """Fails PENDING jobs past their expiry, with status `expired`."""

    time_limit = CommandLimit.WORK
    now_ms: int
    limit: int


class CollectGarbage(WriteCommand[Sequence[Swept]]):
    """Deletes finished jobs past their time to live, the rest of deleted queues, and old request keys and unique keys: at most `limit`
    rows.
    """

    time_limit = CommandLimit.WORK
    ttls: Sequence[TimeToLive]
    now_ms: int
    limit: int


# --- samples for charts: they are not jobs, so no command reads jobs, waits for their locks, or counts as a change of the shard ---
class SaveSamples(WriteCommand[None]):
    """Stores each sample, replacing the one with the same step, time, queue and origin, so that a repeat changes nothing."""

    samples: Sequence[StoredSample]


class ListSamples(ReadCommand[Sequence[StoredSample]]):
    """Lists the samples of these ranges, one range after the other. Each range has another step."""

    ranges: Sequence[SampleRange]


class TrimSamples(WriteCommand[int]):
    """Deletes samples of a step before that time, the oldest first, at most about `limit`. How many."""

    time_limit = CommandLimit.WORK
    step_s: int
    before_ms: int
    limit: int


# --- the servers of a shard: which use it, and which of them owns each slice of its queues. Servers agree on owners only by these
# commands. An answer may be old: ownership only affects speed, and the transactions of the shard decide who has a job. Only
# `ChangeOwners` compares and stores in one step.
class Announce(WriteCommand[str]):
    """Stores the address on which this server listens for the others (`host:port`; '' once it stops and no longer owns anything).
    Returns the secret that the shard keeps for all servers; the first call creates it."""

    time_limit = CommandLimit.WORK
    address: str


class ListMembers(ReadCommand[Sequence[Member]]):
    """The servers that use the shard now, including this one, each once."""


class ListOwners(ReadCommand[Owners]):
    """Which servers own the slices of the shard's queues."""


class ChangeOwners(WriteCommand[bool]):
    """Stores `owners` if the stored ones are `known`. Returns whether it stored them."""

    known: Owners
    owners: Owners


# --- commands for stores that several servers use (`OfSeveralServers`) -----------------------------------------------------------
class AskShardTime(ReadCommand[ShardTime]):
    """The time of the database, or of the servers that use it now if theirs differs, so that all servers use the same time."""


class AskState(ReadCommand[Hashable | None]):
    """Returns a value that stays the same as long as no server changes anything, at most half a minute old; None if it is not known."""


class ListChangedQueues(ReadCommand[Sequence[str]]):
    """Queues in which other servers may have made jobs ready since the last call."""


def create_queues(
    names: Sequence[str], now_ms: int, life: Life = LIFE_UNKNOWN, *, asks_order: bool = False
) -> MergeQueues:
    """Returns the command that makes queues of that life without any settings."""
    return MergeQueues([Queue(name, life=life, asks_order=asks_order) for name in names], now_ms)
