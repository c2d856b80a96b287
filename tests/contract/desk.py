"""A desk with a shard on it: short words for what the contract tests do, with a clock that is turned by hand.

Every word is one call of one shard method for one item, so that a test reads as the sentence it proves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypedDict, Unpack, cast

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import OrderElsewhere, PinLaterError
from pinlater.domain.ids import IdMaker
from pinlater.domain.job import HandedOutJob, Holder, JobState, UniqueKey, UniqueScope
from pinlater.domain.queue import NO_HOME, Home, PriorityCounts
from pinlater.domain.transitions import StatusRule
from pinlater.server.storage.commands import (
    AdvanceDue,
    CancelJobs,
    CheckpointJobs,
    ClaimJobs,
    CollectGarbage,
    CountJobs,
    ExtendClaims,
    FinishJobs,
    InsertJobs,
    LookupJobs,
    MoveHome,
    MoveJobs,
    PurgeJobs,
    ReleaseJobs,
    RequeueFailedJobs,
    RunJobs,
    ScanJobs,
)
from pinlater.server.storage.interface import Shard, SharedShard
from pinlater.server.storage.options import NONE, Options
from pinlater.server.storage.values import (
    Acked,
    ClaimCall,
    Claimed,
    ClaimOrder,
    ClaimRef,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    JobKey,
    NewJob,
    Page,
    PageRow,
    Purge,
    Requeue,
    Requeued,
    RunOrder,
    TimeToLive,
    raise_error,
)
from pinlater.wire.generated.structs import JobInfo

QUEUE = "emails"
TIMEOUT_MS = 60_000
HOUR_MS = 3_600_000
ALL = 1_000_000


class About(TypedDict, total=False):
    """What can be said of a job besides its body; see `Desk.job`."""

    priority: int
    delay_ms: int
    run_after_ms: int | None
    attempts: int
    status: str
    headers: dict[str, str] | None
    unique: UniqueKey | None
    claim_timeout_ms: int | None
    expires_in_ms: int | None
    ordering_key: str | None


class DeskJob:
    """A claimed job: what the claim gave, and what its holder names it by."""

    def __init__(self, job: HandedOutJob, queue: str, holder: Holder) -> None:
        self.job = job
        self.holder = holder
        self.key = JobKey(queue, job.priority, job.id)
        self.ref = ClaimRef(self.key, holder.token)


class AboutHome(TypedDict, total=False):
    """What can be said of a home besides its shard and version."""

    former: str
    lifted: bool


class Desk:
    """A shard with one queue, `emails`, a clock and an id maker. `make` gives another shard on the same data."""

    def __init__(self, make: Callable[[], Shard]) -> None:
        self._make = make
        self.shard = make()
        self.clock = ManualClock()
        self._claims = count(1)
        self._ids: IdMaker

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    @property
    def status_rule(self) -> StatusRule:
        """How this store joins custom statuses."""
        capabilities = self.shard.capabilities
        return StatusRule(capabilities.custom_status_chars_max, capabilities.ack_replaces_status)

    @property
    def shared(self) -> SharedShard:
        """The shard, of a store that several servers use."""
        assert self.shard.capabilities.shared
        return cast("SharedShard", self.shard)

    async def open(self) -> None:
        await self.shard.open(self.now)
        self._ids = IdMaker(self.clock, self.shard.slot, self.shard.highest_id)

    async def reopen(self) -> None:
        """As after a restart of the server: what durable stores keep is there again."""
        await self.shard.close()
        self.shard = self._make()
        await self.open()

    # --- storing --------------------------------------------------------------------------------------------------------

    def job(
        self,
        body: bytes = b"hello",
        *,
        priority: int = 1,
        delay_ms: int = 0,
        run_after_ms: int | None = None,
        attempts: int = 2,
        status: str = "",
        headers: dict[str, str] | None = None,
        unique: UniqueKey | None = None,
        claim_timeout_ms: int | None = None,
        expires_in_ms: int | None = None,
        ordering_key: str | None = None,
    ) -> NewJob:
        expires_ms = None if expires_in_ms is None else self.now + expires_in_ms
        options = Options(status, headers, unique, claim_timeout_ms, expires_ms, ordering_key)
        return NewJob(
            id=self._ids.make(1)[0],
            body=body,
            priority=priority,
            run_after_ms=self.now + delay_ms if run_after_ms is None else run_after_ms,
            attempts_allowed=attempts,
            options=None if options == NONE else options,
        )

    async def request(self, request: InsertRequest) -> Inserted | PinLaterError:
        [result] = await self.shard.submit(InsertJobs([request], self.now))
        return result

    async def insert(self, *jobs: NewJob, queue: str = QUEUE) -> Inserted:
        """As servers do, first makes the shard the home of the queue where jobs with ordering keys need it."""
        result = await self.request(InsertRequest(queue, jobs))
        if isinstance(result, OrderElsewhere):
            await self.become_home(queue)
            result = await self.request(InsertRequest(queue, jobs))
        assert isinstance(result, Inserted), result
        return result

    async def become_home(self, queue: str = QUEUE, known: Home = NO_HOME, **about: Unpack[AboutHome]) -> Home:
        """The shard takes jobs with ordering keys from now on."""
        home = Home(self.shard.name, known.version + 1, **about)
        assert await self.shard.submit(MoveHome(queue, known, home)) == home
        return home

    async def put(self, body: bytes = b"hello", *, queue: str = QUEUE, **about: Unpack[About]) -> JobKey:
        """Stores one job; `about` as in `job`."""
        new = self.job(body, **about)
        await self.insert(new, queue=queue)
        return JobKey(queue, new.priority, new.id)

    # --- claiming -------------------------------------------------------------------------------------------------------

    def holder(self, source: str = "worker") -> Holder:
        number = next(self._claims)
        return Holder(f"host:9010:0:{source}:{number}", source, f"token{number}")

    async def order(self, order: ClaimOrder) -> Claimed:
        [result] = await self.shard.submit(ClaimJobs([order], self.now))
        assert isinstance(result, Claimed), result
        return result

    async def claim(
        self,
        limit: int = 1,
        *,
        source: str = "worker",
        queue: str = QUEUE,
        timeout_ms: int = TIMEOUT_MS,
        owned: bool = True,
        through: int | None = None,
    ) -> list[DeskJob]:
        """One dequeue. `owned`: by a server that owns the queue."""
        holder = self.holder(source)
        call = ClaimCall(limit, holder)
        claimed = await self.order(ClaimOrder(queue, [call], timeout_ms, from_memory=owned, through_priority=through))
        [jobs] = claimed.jobs
        return [DeskJob(job, queue, holder) for job in jobs]

    async def take(self, *, source: str = "worker", queue: str = QUEUE, timeout_ms: int = TIMEOUT_MS) -> DeskJob:
        """One dequeue that finds a job."""
        [held] = await self.claim(source=source, queue=queue, timeout_ms=timeout_ms)
        return held

    async def put_and_take(self, body: bytes = b"hello", *, source: str = "worker", **about: Unpack[About]) -> DeskJob:
        """A job, freshly stored and claimed."""
        key = await self.put(body, **about)
        held = await self.take(source=source)
        assert held.key == key
        return held

    # --- ending and keeping ---------------------------------------------------------------------------------------------

    async def ack(self, ack: JobAck) -> Acked:
        [result] = await self.shard.submit(FinishJobs([ack], self.now))
        return result

    async def succeed(self, key: JobKey, *, token: str | None = None, status: str = "") -> Acked:
        return await self.ack(JobAck(key, succeeded=True, token=token, append_status=status))

    async def fail(
        self,
        key: JobKey,
        *,
        token: str | None = None,
        status: str = "",
        delay_ms: int = 0,
        final: bool = False,
        error: tuple[str, str] = ("", ""),
    ) -> Acked:
        return await self.ack(JobAck(key, False, token, status, delay_ms, final, *error))

    async def checkpoint(self, checkpoint: JobCheckpoint) -> Acked:
        [result] = await self.shard.submit(CheckpointJobs([checkpoint], self.now))
        return raise_error(result)

    async def heartbeat(self, ref: ClaimRef) -> Acked:
        [result] = await self.shard.submit(ExtendClaims([ref], self.now))
        return result

    async def release(self, ref: ClaimRef, delay_ms: int = 0) -> Acked:
        [result] = await self.shard.submit(ReleaseJobs([ref._replace(delay_ms=delay_ms)], self.now))
        return result

    async def cancel(self, key: JobKey) -> Acked:
        [result] = await self.shard.submit(CancelJobs([key], self.now))
        return result

    async def run(self, key: JobKey, *, attempts: int = 1, delay_ms: int = 0) -> Acked:
        [result] = await self.shard.submit(RunJobs([RunOrder(key, attempts, self.now + delay_ms)], self.now))
        return result

    async def move(self, key: JobKey, priority: int) -> Acked:
        [result] = await self.shard.submit(MoveJobs([key], priority, self.now))
        return result

    async def retry_failed(
        self,
        *,
        queue: str = QUEUE,
        priority: int = 1,
        attempts: int = 1,
        delay_ms: int = 0,
        limit: int = ALL,
        skip_cancelled: bool = False,
    ) -> int:
        """As the service does it: each call goes on where the one before stopped."""
        order = Requeue(queue, priority, attempts, self.now + delay_ms, limit, skip_cancelled)
        done = 0
        while done < limit:
            result = await self.shard.submit(RequeueFailedJobs(order._replace(limit=limit - done), self.now))
            assert isinstance(result, Requeued), result
            done += result.done
            if result.stopped_at is None:
                break
            order = order._replace(after=result.stopped_at)
        return done

    async def purge(self, state: JobState, *, queue: str = QUEUE, priority: int = 1, limit: int = ALL) -> int:
        result = await self.shard.submit(PurgeJobs(Purge(queue, state, priority, limit)))
        assert isinstance(result, int), result
        return result

    # --- jobs in a state ------------------------------------------------------------------------------------------------

    async def put_in(self, state: JobState, body: bytes = b"hello", **about: Unpack[About]) -> JobKey:
        """A job brought into `state` by the usual way."""
        if state is JobState.PENDING:
            return await self.put(body, **about)
        held = await self.put_and_take(body, **about)
        if state is JobState.SUCCEEDED:
            await self.succeed(held.key)
        elif state is JobState.FAILED:
            await self.fail(held.key, final=True)
        return held.key

    # --- looking --------------------------------------------------------------------------------------------------------

    async def find(self, key: JobKey, *, bodies: bool = True) -> JobInfo | None:
        [job] = await self.shard.submit(LookupJobs([key], bodies=bodies))
        return job

    async def look(self, key: JobKey, *, bodies: bool = True) -> JobInfo:
        job = await self.find(key, bodies=bodies)
        assert job is not None, f"{key} is gone"
        return job

    async def page(self, page: Page) -> Sequence[PageRow]:
        rows = await self.shard.submit(ScanJobs(page))
        assert not isinstance(rows, PinLaterError), rows
        return rows

    async def scan(
        self, state: JobState, *, queue: str = QUEUE, priority: int = 1, future: bool = False
    ) -> list[PageRow]:
        """All jobs of one state and priority, newest first."""
        return list(await self.page(Page(queue, state, [priority], ALL, due_by_ms=self.now, future=future)))

    async def counts(self, queue: str = QUEUE, priority: int = 1) -> PriorityCounts:
        """The counters of one queue and priority, the due part brought up to now first."""
        await self.shard.submit(AdvanceDue(self.now, ALL))
        found = (row.counts for row in await self.shard.submit(CountJobs([queue])))
        return next((counts for counts in found if counts.priority == priority), PriorityCounts(priority))

    async def assert_counters_exact(self, queue: str = QUEUE, priorities: Sequence[int] = (1, 2, 3)) -> None:
        """What the counters say is what scanning says."""
        for priority in priorities:
            counts = await self.counts(queue, priority)
            seen = Counter[str]()
            for state in JobState:
                seen[state.name] = len(await self.scan(state, queue=queue, priority=priority))
            future = await self.scan(JobState.PENDING, queue=queue, priority=priority, future=True)
            assert counts.future == len(future)
            assert counts.pending == seen["PENDING"] + len(future)
            assert counts.in_progress == seen["IN_PROGRESS"]
            assert counts.succeeded == seen["SUCCEEDED"]
            assert counts.failed == seen["FAILED"]

    # --- maintenance ----------------------------------------------------------------------------------------------------

    async def collect(
        self, *, succeeded_ms: int = HOUR_MS, failed_ms: int = HOUR_MS, limit: int = ALL
    ) -> tuple[int, int]:
        """Garbage of the queue `emails`; returns how many succeeded and failed jobs went."""
        swept = await self.shard.submit(CollectGarbage([TimeToLive(QUEUE, succeeded_ms, failed_ms)], self.now, limit))
        return sum(s.deleted_succeeded for s in swept), sum(s.deleted_failed for s in swept)


def unique(key: str, scope: UniqueScope = UniqueScope.UNFINISHED, for_ms: int = 0) -> UniqueKey:
    return UniqueKey(key, scope, for_ms)
