"""What one shard must do: the contract between the service and every store, split by which part of the service needs it.

One call is one transaction: all of it is stored when the call returns, or none of it when it raises. The values are in `values.py`.
`now_ms` is an argument; a store never asks for the time. A store is done when `tests/contract` passes for it.

What a store may rely on: values were checked by the service (names, priorities, sizes, ranges), ids are new and ascending.
What it must decide itself, inside its transaction: whether a queue exists, which worker holds a claim, whether a key is taken, whether
a queue is full. Results come back in the order of the arguments. An item that can't be done is answered with a `PinLaterError`
*value* in its place and harms no other; a call raises only `Unavailable`s (the shard is unreachable, full, broken) and bugs.
If a store can't know whether a raised call was stored (the connection went between COMMIT and its answer) it raises
`OutcomeUnknown`; of every other error callers believe that nothing was, and may put the jobs elsewhere.

Regular expressions, merging over shards, rate limits, waiting and waking are not the store's business.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import HandedOutJob, JobState
from pinlater.domain.queue import LIFE_UNKNOWN, Life, Queue, QueueConfig, QueueCounts
from pinlater.server.storage.values import (
    Acked,
    AuditRecord,
    Capabilities,
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
    UniqueHeld,
    UniqueKeyPage,
    UniqueRef,
)
from pinlater.wire.generated.structs import JobInfo, ShardSize


class JobStore(Protocol):
    """Jobs: stored, handed out, ended, changed while a worker has them, moved in bulk, looked at."""

    # --- the three hot paths ----------------------------------------------------------------------------------------------
    async def insert_jobs(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        """Stores jobs. Errors as values: QueueNotFound, QueueFull, RequestKeyConflict."""
        ...

    async def claim_jobs(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        """Hands out due jobs. Errors as values: QueueNotFound."""
        ...

    async def finish_jobs(self, acks: Sequence[JobAck], now_ms: int) -> Sequence[Acked]:
        """Ends attempts. Only a job IN_PROGRESS changes. Two acks of one job in a call: the first counts."""
        ...

    # --- jobs in hand -----------------------------------------------------------------------------------------------------
    async def checkpoint_jobs(
        self, checkpoints: Sequence[JobCheckpoint], now_ms: int
    ) -> Sequence[Acked | PinLaterError]:
        """Saves progress and renews claims (deadline = now + the job's claim timeout).

        Errors as values: a body that the database behind the store takes in no statement.
        """
        ...

    async def extend_claims(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        """Heartbeats: deadline = now + the job's claim timeout. Never revives a claim."""
        ...

    async def release_jobs(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        """Gives claims back: PENDING, due at now + delay, attempts as they were."""
        ...

    async def cancel_jobs(
        self, keys: Sequence[JobKey], now_ms: int, only_state: JobState | None = None
    ) -> Sequence[Acked]:
        """PENDING or IN_PROGRESS → FAILED, attempts remaining 0, status `cancelled` appended. Finished ones, and those in another state
        than `only_state`: ALREADY_FINAL.
        """
        ...

    async def run_jobs(self, orders: Sequence[RunOrder], now_ms: int) -> Sequence[Acked]:
        """PENDING or FAILED → PENDING, as ordered; a FAILED one as `requeue_failed_jobs` does it.

        STALE_CLAIM with the holder for a job in hand; ALREADY_FINAL for one that succeeded, and for a FAILED one that is past its
        expiry or whose UNFINISHED key is taken.
        """
        ...

    async def move_jobs(self, keys: Sequence[JobKey], priority: int, now_ms: int) -> Sequence[Acked]:
        """Gives waiting and FAILED jobs another priority, and with it another key. All else of them stays, but for the time when a waiting
        one was updated.

        APPLIED also for a job that has that priority already, in any state: `keys` may be those before a move whose answer was lost.
        STALE_CLAIM with the holder for a job in hand; ALREADY_FINAL for one that succeeded.
        """
        ...

    # --- bulk -------------------------------------------------------------------------------------------------------------
    async def requeue_failed_jobs(self, order: Requeue, now_ms: int) -> Requeued | PinLaterError:
        """FAILED → PENDING, without the old claim. Passes over a job whose UNFINISHED key is taken, else retakes it.

        It stops at the limit, or after a thousand jobs passed over; a call with `after` goes on there.
        """
        ...

    async def purge_jobs(self, order: Purge) -> int | PinLaterError:
        """How many were deleted, by state."""
        ...

    async def delete_jobs(self, keys: Sequence[JobKey], state: JobState | None = None) -> int:
        """Deletes these; only those in `state`, if one is given. Returns how many."""
        ...

    # --- reading ----------------------------------------------------------------------------------------------------------
    async def peek_jobs(
        self, queue: str, limit: int, now_ms: int, max_bytes: int
    ) -> Sequence[HandedOutJob] | PinLaterError:
        """What a claim of that size would give, without claiming (claim_deadline_ms 0)."""
        ...

    async def lookup_jobs(self, keys: Sequence[JobKey], *, bodies: bool) -> Sequence[JobInfo | None]:
        """All that is known of each; None for one that does not exist."""
        ...

    async def scan_jobs(self, page: Page) -> Sequence[PageRow] | PinLaterError:
        """One page. Fewer rows than the limit does not mean the end if bodies were asked for; no rows does."""
        ...

    async def count_ahead(self, place: Place) -> int | PinLaterError:
        """How many waiting jobs a claim hands out before it comes to that place, but at most `place.limit`.

        Reads at most `place.limit` entries of an index, whatever else waits. Errors as values: QueueNotFound.
        """
        ...

    async def count_jobs(self, queues: Sequence[str] | None = None) -> Sequence[QueueCounts]:
        """Counters by queue and priority, of all queues for None; queues without jobs yet may be left out. Never a scan of jobs."""
        ...


class CopyStore(Protocol):
    """Jobs that are deleted with copies, and brought back. No job is deleted without its copy, and none is brought back twice."""

    async def delete_with_copies(
        self, keys: Sequence[JobKey], state: JobState, of: CopiesOf, now_ms: int
    ) -> DeletedWithCopies:
        """Deletes the first of these jobs that are in that state, and keeps copies of them: of a thousand, or about a MiB of bodies, but of
        one at least.

        Deletes nothing once `restore_jobs` was called for that run: the caller stood still meanwhile. Copies are kept for `COPIES_KEPT_MS`
        at least: `HistoryStore.trim_samples` forgets them, with the step `COPIES_STEP_S`.
        """
        ...

    async def restore_jobs(self, order: RestoreOrder, now_ms: int) -> Restored:
        """Stores the jobs that one call deleted as they were, under their ids, and forgets their copies.

        A job that a worker had waits, and is due when the claim would have ended.
        """
        ...


class QueueStore(Protocol):
    """Queues with their settings."""

    async def create_queues(self, names: Sequence[str], now_ms: int, *, life: Life = LIFE_UNKNOWN) -> Sequence[Queue]:
        """Makes them, as `merge_queues` does with queues of that life on which nothing is set."""
        ...

    async def merge_queues(self, queues: Sequence[Queue], now_ms: int) -> Sequence[Queue]:
        """Makes those that are missing as they are given, and gives those that are there what is newer (`Queue.newest`). All of them as
        they are now, in this order.

        One that was deleted here not before it was made is not made; its answer says so (`Queue.life.over`).
        Its cost must not grow with the number of queues that there are.
        """
        ...

    async def delete_queues(self, names: Sequence[str], deleted_ms: int = 0, now_ms: int = 0) -> int:
        """Removes them with all their jobs, at once for every caller (the space may be freed later), and remembers `deleted_ms`, also of
        those that are missing. 0: nothing is remembered. What is remembered is later than all that a deleted queue carried, so that a
        repeat after a lost answer need not know it.

        Forgets some deletions that were `DELETION_KEPT_MS` before `now_ms`, the caller's time. `deleted_ms` may be far ahead of it.

        One that was made after `deleted_ms` stays. Answers the newest time that any of them carried (`Queue.newest_ms`), 0 for none.
        """
        ...

    async def list_queues(self) -> Sequence[Queue]:
        """All queues with their settings, by name."""
        ...

    async def configure_queue(
        self,
        name: str,
        *,
        config: QueueConfig | None = None,
        paused: bool | None = None,
        version: str = "",
        by: str = "",
    ) -> None:
        """Replaces the settings and/or the pause switch; None leaves as is. `by`: who pauses. Raises `QueueNotFound`.

        Kept with `version`, and only if that is later than the version of what is replaced (`Queue.changed`).
        """
        ...


class KeyLookup(Protocol):
    """Request keys and unique keys: asked only if there are several shards, so that a key counts on all of them."""

    async def find_requests(
        self, requests: Sequence[RequestRef], now_ms: int
    ) -> Sequence[Inserted | PinLaterError | None]:
        """What an insert with that request key would be answered because it was answered so before (`repeated`).

        None: the key is not known here, or its two minutes are over, or there is no such queue; `RequestKeyConflict` as a value:
        known with another fingerprint. Changes nothing.
        """
        ...

    async def find_unique(self, keys: Sequence[UniqueRef], now_ms: int) -> Sequence[KeyHolder | None]:
        """The job that an insert with that unique key would find there already; None for a free key."""
        ...

    async def list_unique_queues(self) -> Sequence[UniqueHeld]:
        """The queues that have unique keys here, by name; keys that time has freed may still count.

        Asked at the start and, if rows from before the last change of the shard map are left, about once a minute: it may cost
        a scan of the keys (or of an index), but must not block other calls.
        """
        ...

    async def list_unique_keys(self, queue: str, made_by_ms: int, limit: int, after: str = "") -> UniqueKeyPage:
        """A page of the unique keys of a queue that jobs hold here which were made by that time; keys that time has freed may still count.

        Reads about `limit` keys, so that a page may have none although more follow. `after` is that of the page before. A key that is
        held during all calls comes at least once. Asked as often as `list_unique_queues`.
        """
        ...

    async def timed_keys(self, now_ms: int) -> TimedKeys:
        """Unique keys that would be forgotten with this shard though all its jobs have ended. Asked while it is to be taken out."""
        ...

    async def note_map(self, shard_map: str, now_ms: int) -> int:
        """Keeps which shards take enqueues (a text of at most 64 KiB, compared by equality), and answers since when it is so:
        `now_ms` if another text was kept before or none, else the time that was kept with it."""
        ...


class AuditStore(Protocol):
    """Entries of the audit, on any shard: no queue and no job has to do with them."""

    async def add_audit(self, records: Sequence[AuditRecord], records_max: int) -> None:
        """Stores those whose id is not there yet, and deletes the oldest of the shard so that at most `records_max` stay."""
        ...

    async def list_audit(self, since: str, before: str, limit: int) -> Sequence[AuditRecord]:
        """The newest with `since` <= id < `before`, highest id first. '' is no bound."""
        ...


class FailureStore(Protocol):
    """Failed attempts in groups. A call that ends attempts, or times claims out, counts them in its own transaction."""

    async def list_failures(self, queues: Sequence[str], from_hour: int) -> Sequence[StoredFailures]:
        """The groups of these queues, each with its failures by hour from that hour on, in no order."""
        ...


class Maintenance(Protocol):
    """Periodic work. Each call is bounded by `limit` rows; one that can know there is nothing to do costs no I/O.

    Several servers may do it at once, and one is enough. With a limit of 0 a call does only what no other server can do for this one.
    """

    async def advance_due(self, now_ms: int, limit: int) -> int:
        """Moves jobs whose run-after has come from the counters' future part to the due part; returns how many (none if a store
        counts by time, and has nothing to move)."""
        ...

    async def time_out_claims(self, now_ms: int, limit: int, quarantine_after: int = 0) -> Sequence[Swept]:
        """Claims past their deadline: PENDING with one attempt fewer, run-after kept; or FAILED when that was the last, or when it was the
        last of `quarantine_after` in a row of a task's job (0: any number). Also gives back claims of this server whose outcome it did not
        learn, whatever the limit."""
        ...

    async def expire_jobs(self, now_ms: int, limit: int) -> Sequence[Swept]:
        """PENDING jobs past their expiry: FAILED, status `expired`."""
        ...

    async def collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Swept]:
        """Finished jobs past their time to live, what deleted queues left, old request keys and unique keys: at most `limit` rows."""
        ...

    async def prune_audit(self, before: str, limit: int) -> int:
        """Deletes the oldest with an id below `before`, at most `limit` of them; how many."""
        ...

    async def prune_failures(self, before_ms: int, before_hour: int, limit: int) -> int:
        """Deletes groups that failed last before that time, and counts of hours before that one: at most `limit` rows of each; how many."""
        ...


class HistoryStore(Protocol):
    """Samples for charts. They are no jobs: no call here looks at jobs, waits for their locks, or counts as a change of the shard."""

    async def save_samples(self, samples: Sequence[StoredSample]) -> None:
        """Stores each in the place of one with the same step, time, queue and origin, so that a repeat changes nothing."""
        ...

    async def list_samples(self, ranges: Sequence[SampleRange]) -> Sequence[StoredSample]:
        """Returns those of these ranges, one range after the other. Each is of another step."""
        ...

    async def trim_samples(self, step_s: int, before_ms: int, limit: int) -> int:
        """Deletes samples of a step before that time, the oldest first, at most about `limit`. How many."""
        ...


class InOrderStore(Protocol):
    """What only a store has whose calls see what every earlier call made, also before it is committed (`Capabilities.in_order`)."""

    async def insert_jobs(
        self, requests: Sequence[InsertRequest], now_ms: int, *, claim_follows: bool = False
    ) -> Sequence[Inserted | PinLaterError]:
        """Does what `JobStore.insert_jobs` does. `claim_follows`: a dequeue waits for these jobs and claims them within the next few turns
        of the loop; a transaction that holds both is worth waiting for."""
        ...


class Coordinator(Protocol):
    """Which servers use a shard, and which of them owns each slice of its queues. Servers agree on owners by this and nothing else.

    A shard that several servers use is its own coordinator (`SharedStore`). An answer may be old: ownership is for speed, and the
    transactions of the shard decide who has a job. Only `change_owners` compares and stores in one step.
    """

    def register_as(self, address: str) -> None:
        """From now on the shard registers this server with this address, at `open` and whenever it leases another slot. Makes no call: a
        shard that is open is told by `announce`."""
        ...

    async def announce(self, address: str) -> str:
        """Stores the address at which this server listens for the others (`host:port`; '' once it stops and owns nothing any more).
        Returns the secret that the shard keeps for all servers; the first call creates it."""
        ...

    async def members(self) -> Sequence[Member]:
        """The servers that use the shard now, this one among them, each once."""
        ...

    async def owners(self) -> Owners:
        """Which servers own the slices of the shard's queues."""
        ...

    async def change_owners(self, known: Owners, owners: Owners) -> bool:
        """Stores `owners` if `known` is what is stored; whether it was."""
        ...


class SharedStore(Coordinator, Protocol):
    """What only a store has that several servers use at the same time (`Capabilities.shared`).

    Slots: each server leases a slot, and renews the lease with heartbeats (`Shard.ping`). If the lease lapses, another server may take
    the slot. The slot is part of every job id and of the writers' numbers, so no two servers write the same id or number. Leases are
    measured by the store's clock. If that clock jumps, all heartbeats look old until the next ones, and servers may lose their slots to
    others. A server that was suspended may not know that it lost its slot, so the store must refuse its writes.

    Time: due times and the ends of claims use the servers' time, which they took from the store when they started. Heartbeats store how
    far a server's time is ahead of the store's, so that a server that starts after a jump of the store's clock uses the time of the
    running servers. Weakness: in the first seconds after a jump no server has stored it yet. A shard whose clock has jumped by
    more than a lease says so (`ShardTime.of_servers`): a server that starts meanwhile asks other shards, or takes the wrong time if there
    are none.
    """

    async def shard_time(self) -> ShardTime:
        """The time of the database, or of the servers that use it now if theirs differs, so that all servers agree on one."""
        ...

    @property
    def changes(self) -> int:
        """Grows with each change that this server makes or tries to make, once it is over: for the other servers. No I/O."""
        ...

    def follow(self, others: Callable[[], Hashable | None]) -> None:
        """`others()`: another value after another server has changed something here; None while that is not known. While it stays the
        same, the store need not ask the database about others' changes more often than twice a minute."""
        ...

    async def state(self) -> Hashable | None:
        """As long as it is the same, no server has changed anything, as of half a minute ago at most. None where that is not known."""
        ...

    async def changed_queues(self) -> Sequence[str]:
        """Queues in which other servers may have made jobs ready since the last call."""
        ...


class Shard(JobStore, CopyStore, QueueStore, KeyLookup, AuditStore, FailureStore, Maintenance, HistoryStore, Protocol):
    """One shard. Every method may be called concurrently; every method is one transaction."""

    name: str
    capabilities: Capabilities

    async def open(self, now_ms: int) -> None:
        """Connects, migrates if needed, takes what must be exclusive. Raises `Unavailable` with a clear text.

        `now_ms`: the time of this machine, by which nothing may be deleted: a server that starts has not agreed with the others upon one.
        """
        ...

    async def close(self) -> None:
        """Finishes what is under way, then lets go. May be called twice."""
        ...

    async def ping(self, now_ms: int | None = None) -> None:
        """Returns if the shard could serve a write now; raises `Unavailable` if not.

        `now_ms`: this server's time; a shared store remembers it for servers that start later (`shard_time`).
        """
        ...

    async def size(self) -> ShardSize:
        """How much space the store takes, with no `at_ms`. At most two statements; none reads a table of jobs."""
        ...

    @property
    def slot(self) -> int:
        """This server's slot for ids (0..1023), leased in the store by `open`; 0 if only one server can use the shard.

        It changes if the lease lapsed and another server took the slot. The shard refuses an insert with ids of a lost slot with a
        `ShardConnectionFailed` value. `highest_id` is as of the newest lease.
        """
        ...

    @property
    def highest_id(self) -> int:
        """The highest job id that was in the shard when it was opened; 0 for none."""
        ...

    def figures(self) -> Mapping[str, float]:
        """What the store counts of itself for operators, by the names in `FIGURES`; totals since the start. No I/O."""
        ...


class SharedShard(Shard, SharedStore, Protocol):
    """One shard that several servers use at the same time."""
