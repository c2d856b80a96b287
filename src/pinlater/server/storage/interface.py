"""What one shard must do: the seam between the service and every database.

It speaks of jobs, takes and returns lists of frozen values, and one call is one transaction: all of it is stored when the call
returns, or none of it when it raises. `now_ms` is an argument, never asked for. A store is done when `tests/contract` passes for it.

What a store may rely on: values were checked by the service (names, priorities, sizes, ranges), ids are new and ascending.
What it must decide itself, inside its transaction: whether a queue exists, who holds a claim, whether a key is taken, whether a
queue is full. Results come back in the order of the arguments. An item that can't be done is answered with a `PinLaterError`
*value* in its place and harms no other; a call raises only `WorldError`s (the shard is out of reach, full, broken) and bugs.
Where a store can't know whether a raised call was stored (the connection went between COMMIT and its answer) it raises
`OutcomeUnknown`; of every other error callers believe that nothing was, and may put the jobs elsewhere.

Regular expressions, merging over priorities and shards, rate limits, waiting and waking are not the store's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeVar

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import Attempt as Attempt
from pinlater.domain.job import ClaimedJob, Holder, Job, JobState, NewJob, Outcome
from pinlater.domain.queue import LIFE_UNKNOWN, Life, Queue, QueueConfig, QueueCounts


class Capabilities(NamedTuple):
    """What differs between stores, declared."""

    kind: str
    shared: bool  # other servers may use the same shard at the same time
    durable: bool  # what was answered survives a kill -9
    custom_status_chars_max: int = 5_000
    ack_replaces_status: bool = False  # an ack's status takes the place of the old one, an empty one too
    body_bytes_max: int = 2**31 - 1
    body_bytes_bound: str = "its store"  # what bounds them, for who could change it
    in_order: bool = False  # a call sees what every call made before it did, also while that is not answered yet


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
    "conflicts": "Changes that were decided again because another server had changed one of the jobs",
    "jobs_lost": "Jobs whose data was gone, taken out of the indexes",
    "jobs_mended": "Jobs whose index entry or claim was missing and was rebuilt",
}
"""What a store may count of itself, and what that is."""


class JobKey(NamedTuple):
    """Names one job within a shard; queue and priority (at enqueue) must match, or it counts as not found."""

    queue: str
    priority: int
    id: int


class InsertRequest(NamedTuple):
    """The jobs of one enqueue request for this shard: stored together or not at all.

    `request_key` makes it idempotent: the same key and `fingerprint` again, within two minutes, stores nothing and gives the first
    answer; another fingerprint gives `RequestKeyConflict`. `max_pending` gives `QueueFull` when the queue would grow beyond it.
    `begin_by_ms`: the request is not to be begun later; who hands requests to a store sees to it.
    `awaited`: somebody waits for these jobs and claims them within the next few turns of the loop; where that may share a
    transaction with the insert, it is worth waiting for.
    """

    queue: str
    jobs: Sequence[NewJob]
    request_key: str | None = None
    fingerprint: bytes = b""
    max_pending: int | None = None
    awaited: bool = False
    begin_by_ms: int = 2**63


class Inserted(NamedTuple):
    """What an insert did. `existing` maps an index to (id, priority) of the job that was there already under its unique key.

    `ids` are in the order of the jobs, with the existing ones' ids in their places. `repeated`: the request key was known.
    """

    ids: Sequence[int]
    existing: dict[int, tuple[int, int]]
    repeated: bool = False


class RequestRef(NamedTuple):
    """A keyed enqueue request that is looked for; the words mean what they do in `InsertRequest`."""

    queue: str
    request_key: str
    fingerprint: bytes


class UniqueRef(NamedTuple):
    """A unique key that is looked for."""

    queue: str
    key: str


class UniqueHeld(NamedTuple):
    """A queue has unique keys on this shard; `oldest_id` is the lowest id of a job that one of them names."""

    queue: str
    oldest_id: int


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
        return f"{many} unique keys for a time, the last until {until}"


TIMED_KEYS_COUNTED = 100_000


class ClaimCall(NamedTuple):
    """One dequeue call's share of a joined claim: at most `limit` jobs and about `max_bytes` of bodies, but one job always fits."""

    limit: int
    holder: Holder
    max_bytes: int = 16 * 1024 * 1024


class ClaimOrder(NamedTuple):
    """All calls that claim from one queue now. The first call gets the first jobs.

    A job's own claim timeout goes before `claim_timeout_ms`. Jobs past their expiry become FAILED `expired` on the way.
    Once the orders of one `claim_jobs` have handed out `bytes_together_max` of bodies (the lowest of theirs), they hand out no more.
    """

    queue: str
    calls: Sequence[ClaimCall]
    claim_timeout_ms: int
    bytes_together_max: int = 64 * 1024 * 1024


class Claimed(NamedTuple):
    """`jobs[i]` is what the order's call i got: priority first, then run-after, then id.

    `next_due_ms` is the earliest run-after of the jobs that still wait, where a call got fewer than it asked for (else None): when
    to look again. It may be in the past where a call was cut by its bytes. `expired` counts jobs that became FAILED instead.
    `cut_short`: a due job stayed because of `bytes_together_max`; calls that got none may come again at once.
    """

    jobs: Sequence[Sequence[ClaimedJob]]
    next_due_ms: int | None = None
    expired: int = 0
    cut_short: bool = False


class Ack(NamedTuple):
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
    """What became of an ack, checkpoint, heartbeat, release or cancel.

    `state` is the job's state afterwards (None: not found); `due_at_ms` its run-after where it is PENDING now.
    With STALE_CLAIM, `holder` and `held_since_ms` say whose claim it is; '' and None where nobody holds it.
    `deadline_ms` is the claim's new deadline where it was renewed.
    """

    outcome: Outcome
    state: JobState | None = None
    due_at_ms: int | None = None
    holder: str = ""
    held_since_ms: int | None = None
    deadline_ms: int | None = None


class Checkpoint(NamedTuple):
    """Progress of a job in hand. Fenced by `token`, or, without one, by `source` being equal to the holder's."""

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


class Requeue(NamedTuple):
    """retryFailedJobs: up to `limit` FAILED jobs of one priority, oldest finish first."""

    queue: str
    priority: int
    attempts: int
    run_after_ms: int
    limit: int


class RunOrder(NamedTuple):
    """runJobs: this job becomes due at `run_after_ms`. A PENDING one keeps its attempts, a FAILED one gets `attempts`."""

    key: JobKey
    attempts: int
    run_after_ms: int


class Purge(NamedTuple):
    """deleteJobs without a regex: up to `limit` jobs of one state and priority, oldest first."""

    queue: str
    state: JobState
    priority: int
    limit: int


class Page(NamedTuple):
    """A part of a scan of one queue, state and priority, newest first.

    Order: PENDING by run-after, IN_PROGRESS by claim time, finished by finish time; then by id; all descending. `after` is the
    (time, id) of the last row of the page before, or any other place in that order. `due_by_ms`: PENDING only: with `future` False
    rows with run-after ≤ it, with True rows after it. Bodies come along if `bodies`; a page also ends once they exceed `max_bytes`.
    """

    queue: str
    state: JobState
    priority: int
    limit: int
    after: tuple[int, int] | None = None
    due_by_ms: int = 0
    future: bool = False
    bodies: bool = False
    max_bytes: int = 8 * 1024 * 1024


class PageRow(NamedTuple):
    """A row of a scan with the time it is ordered by."""

    sort_ms: int
    job: Job


class Swept(NamedTuple):
    """What one sweep did in one queue and priority: claim timeouts, expiries or garbage. `due_at_ms`: the earliest job it put back.

    A row with the queue '' stands for what belongs to none: `freed` old keys and rows of deleted queues.
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


class TimeToLive(NamedTuple):
    """How long a queue's finished jobs are kept, counted from the finish."""

    queue: str
    succeeded_ms: int
    failed_ms: int


class Member(NamedTuple):
    """A server that uses a shard. Times in milliseconds, the store's."""

    slot: int
    name: str
    address: str
    started_at_ms: int
    seen_at_ms: int


DELETION_KEPT_MS = 24 * 3_600_000
"""How long a shard remembers that it deleted a queue: a server that stood still for less does not make it again."""


class Shard(Protocol):
    """One shard of the store. Every method may be called concurrently; every method is one transaction."""

    name: str
    capabilities: Capabilities

    # --- life -------------------------------------------------------------------------------------------------------------
    async def open(self, now_ms: int) -> None:
        """Connects, migrates where needed, takes what must be exclusive. Raises `WorldError` with a clear text."""
        ...

    async def close(self) -> None:
        """Finishes what is under way, then lets go. May be called twice."""
        ...

    async def ping(self, now_ms: int | None = None) -> None:
        """Returns if the shard could serve a write now; raises `WorldError` if not.

        `now_ms`: the time that this server goes by; a shared store remembers it for those who come later (`time_ms`).
        """
        ...

    @property
    def slot(self) -> int:
        """This server's slot for ids (0..1023), leased in the store by `open`.

        It changes where the lease lapsed and another server took it. An insert with ids of a slot that was lost so is refused with a
        `ShardConnectionFailed` value; `highest_id` is as of the newest lease.
        """
        ...

    @property
    def highest_id(self) -> int:
        """The highest job id that was in the shard when it was opened; 0 for none."""
        ...

    async def time_ms(self) -> int | None:
        """What time it is where the shard is, or by those servers that use it now where theirs is another, so that all can agree on one;
        None where nobody shares the shard."""
        ...

    async def announce(self, address: str) -> str:
        """Tells the other servers where this one listens for wakes (`host:port`); the secret that the shard keeps for all of them.

        '' where nobody shares the shard.
        """
        ...

    async def members(self) -> Sequence[Member]:
        """The servers that use the shard now, this one among them; none where only one can (`capabilities.shared` is False)."""
        ...

    def figures(self) -> Mapping[str, float]:
        """What the store counts of itself for operators, by the names in `FIGURES`; totals since the start. No I/O."""
        ...

    # --- queues -----------------------------------------------------------------------------------------------------------
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
        self, name: str, *, config: QueueConfig | None = None, paused: bool | None = None, version: str = ""
    ) -> None:
        """Replaces the settings and/or the pause switch; None leaves as is. Raises `QueueNotFound`.

        Kept with `version`, and only where that is later than the version of what is replaced (`Queue.changed`).
        """
        ...

    # --- the three hot paths ----------------------------------------------------------------------------------------------
    async def insert_jobs(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        """Stores jobs. Errors as values: QueueNotFound, QueueFull, RequestKeyConflict."""
        ...

    async def claim_jobs(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        """Hands out due jobs. Errors as values: QueueNotFound."""
        ...

    async def finish_jobs(self, acks: Sequence[Ack], now_ms: int) -> Sequence[Acked]:
        """Ends attempts. Only a job IN_PROGRESS changes. Two acks of one job in a call: the first counts."""
        ...

    # --- keys across shards: asked only where there are several, so that a key counts on all of them -------------------------
    async def find_requests(
        self, requests: Sequence[RequestRef], now_ms: int
    ) -> Sequence[Inserted | PinLaterError | None]:
        """What an insert with that request key would be answered because it was answered so before (`repeated`).

        None: the key is not known here, or its two minutes are over, or there is no such queue; `RequestKeyConflict` as a value:
        known with another fingerprint. Changes nothing.
        """
        ...

    async def find_unique(self, keys: Sequence[UniqueRef], now_ms: int) -> Sequence[tuple[int, int] | None]:
        """(id, priority) of the job that an insert with that unique key would find there already; None for a free key."""
        ...

    async def list_unique_queues(self) -> Sequence[UniqueHeld]:
        """The queues that have unique keys here, by name; keys that time has freed may still count.

        Asked at the start and, where rows from before the last change of the shard map are left, about once a minute: it may cost
        a walk over the keys (or an index), but must hold nothing up.
        """
        ...

    async def timed_keys(self, now_ms: int) -> TimedKeys:
        """Unique keys that would be forgotten with this shard though all its jobs have ended. Asked while it is to be taken out."""
        ...

    async def note_map(self, shard_map: str, now_ms: int) -> int:
        """Keeps which shards take enqueues (a text of at most 64 KiB, compared by equality), and answers since when it is so:
        `now_ms` where another text was kept before or none, else the time that was kept with it."""
        ...

    async def changed_queues(self) -> Sequence[str]:
        """Queues in which other servers may have made jobs ready since the last call. Where nobody shares the shard: none, at no cost."""
        ...

    # --- jobs in hand -----------------------------------------------------------------------------------------------------
    async def checkpoint_jobs(self, checkpoints: Sequence[Checkpoint], now_ms: int) -> Sequence[Acked | PinLaterError]:
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

    async def cancel_jobs(self, keys: Sequence[JobKey], now_ms: int) -> Sequence[Acked]:
        """PENDING or IN_PROGRESS → FAILED, attempts remaining 0, status `cancelled` appended. Finished ones: ALREADY_FINAL."""
        ...

    async def run_jobs(self, orders: Sequence[RunOrder], now_ms: int) -> Sequence[Acked]:
        """PENDING or FAILED → PENDING, as ordered; a FAILED one as `requeue_failed_jobs` does it.

        STALE_CLAIM with the holder for a job in hand; ALREADY_FINAL for one that succeeded, or whose UNFINISHED key is taken.
        """
        ...

    # --- bulk -------------------------------------------------------------------------------------------------------------
    async def requeue_failed_jobs(self, order: Requeue, now_ms: int) -> int | PinLaterError:
        """How many went back to PENDING. Clears the old claim; skips a job whose UNFINISHED key is taken, else retakes it."""
        ...

    async def purge_jobs(self, order: Purge) -> int | PinLaterError:
        """How many were deleted, by state."""
        ...

    async def delete_jobs(self, keys: Sequence[JobKey], state: JobState | None = None) -> int:
        """Deletes these; only those in `state`, where one is given. Returns how many."""
        ...

    # --- looking ----------------------------------------------------------------------------------------------------------
    async def peek_jobs(
        self, queue: str, limit: int, now_ms: int, max_bytes: int
    ) -> Sequence[ClaimedJob] | PinLaterError:
        """What a claim of that size would give, without claiming (claim_deadline_ms 0)."""
        ...

    async def lookup_jobs(self, keys: Sequence[JobKey], *, bodies: bool) -> Sequence[Job | None]:
        """All that is known of each; None for one that does not exist."""
        ...

    async def scan_jobs(self, page: Page) -> Sequence[PageRow] | PinLaterError:
        """One page. Fewer rows than the limit does not mean the end where bodies were asked for; no rows does."""
        ...

    async def count_jobs(self, queues: Sequence[str] | None = None) -> Sequence[QueueCounts]:
        """Counters by queue and priority, of all queues for None; queues without jobs yet may be left out. Never a scan of jobs."""
        ...

    # --- maintenance: each call bounded by `limit` rows; one that can know there is nothing to do costs no I/O ---
    async def advance_due(self, now_ms: int, limit: int) -> int:
        """Moves jobs whose run-after has come from the counters' future part to the due part; returns how many (none where a store
        counts by time, and has nothing to move)."""
        ...

    async def time_out_claims(self, now_ms: int, limit: int) -> Sequence[Swept]:
        """Claims past their deadline: PENDING with one attempt fewer, run-after kept; or FAILED when that was the last."""
        ...

    async def expire_jobs(self, now_ms: int, limit: int) -> Sequence[Swept]:
        """PENDING jobs past their expiry: FAILED, status `expired`."""
        ...

    async def collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Swept]:
        """Finished jobs past their time to live, what deleted queues left, old request keys and unique keys: at most `limit` rows."""
        ...


Value = TypeVar("Value")


def raise_error(answer: Value | PinLaterError) -> Value:
    """The answer of a call about one thing, with an error value raised."""
    if isinstance(answer, PinLaterError):
        raise answer
    return answer
