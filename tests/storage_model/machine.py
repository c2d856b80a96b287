"""The state machines: each rule is one operation, asked of both shards. They know the keys of all jobs ever made and the newest tokens.

Not compared: what `AdvanceDue` returns, and sweeps cut by a limit where stores may count other rows towards it, or take other ones
of those that are equally late.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pinlater.domain.job import Holder, JobState, Outcome
from pinlater.domain.queue import NO_HOME, Home, Life, Queue, QueueConfig, QueueCounts, Versions
from pinlater.server.storage.commands import (
    AdvanceDue,
    CancelJobs,
    CheckpointJobs,
    ClaimJobs,
    CollectGarbage,
    ConfigureQueue,
    CountJobs,
    CountOrdered,
    DeleteJobs,
    DeleteQueues,
    ExpireJobs,
    ExtendClaims,
    FinishJobs,
    InsertJobs,
    LiftBarrier,
    ListQueues,
    LookupJobs,
    MergeQueues,
    MoveHome,
    MoveJobs,
    PeekJobs,
    PurgeJobs,
    ReleaseJobs,
    RequeueFailedJobs,
    RunJobs,
    ScanJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.options import NONE, Options
from pinlater.server.storage.values import (
    ClaimCall,
    ClaimOrder,
    ClaimRef,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    JobKey,
    NewJob,
    Page,
    Purge,
    Requeue,
    RunOrder,
    TimeToLive,
)
from tests.storage_model import drawn
from tests.storage_model.drawn import QUEUES, TIMEOUT_MS, JobAbout, Token
from tests.storage_model.model.queue import SHARD
from tests.storage_model.pair import ALL, Pair

# Of a claim. Redis counts more bytes of a job than it hands out, so bounds that matter have contract tests and none here.
MAX_BYTES = 10_000_000


class ShardMachine(RuleBasedStateMachine):
    """A store and the model, one operation after the other."""

    kind = "memory"  # a subclass for each store names it
    servers = 1

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.kind, self.servers)
        self.keys: list[JobKey] = []
        self.tokens: dict[int, str] = {}
        self.claimed: list[JobKey] = []
        self.claims = 0
        self.ordered_settings = False

    @initialize(jobs=drawn.jobs)
    def work_is_under_way(self, jobs: list[JobAbout]) -> None:
        self.hand_out(QUEUES[0], jobs)

    def teardown(self) -> None:
        try:
            self.look_at_everything()
            self.reopen()
            self.look_at_everything()
        finally:
            self.pair.close()

    @property
    def now(self) -> int:
        return self.pair.now

    def picked(self, picks: list[int]) -> Iterator[JobKey]:
        """Newest first, so that small numbers pick what is alive. One may be unknown."""
        for pick in picks:
            yield self.keys[-1 - pick] if pick < len(self.keys) else JobKey(QUEUES[0], 1, pick + 1)

    def in_hand(self, picks: list[int]) -> Iterator[JobKey]:
        """Newest claims first: most of them are still held."""
        for pick in picks:
            yield from [self.claimed[-1 - pick]] if pick < len(self.claimed) else self.picked([pick])

    # --- time and queues ------------------------------------------------------------------------------------------------

    @rule(ms=drawn.steps_ms)
    def time_passes(self, ms: int) -> None:
        self.pair.clock.advance(ms=ms)

    @rule()
    def reopen(self) -> None:
        self.pair.reopen()

    @precondition(lambda self: len(self.keys) > 12)
    @rule(queue=drawn.queues, again=st.booleans(), sure=drawn.seldom)
    def delete_queue(self, queue: str, again: bool, sure: bool) -> None:
        if not sure:
            return
        self.pair.both(lambda shard: shard.submit(DeleteQueues([queue])))
        if again:
            self.pair.both(lambda shard: shard.submit(create_queues([queue], self.now)))

    @rule()
    def create_queues(self) -> None:
        self.pair.both(lambda shard: shard.submit(create_queues(QUEUES, self.now)))

    @rule(paused=st.sampled_from([None, True, False]), timeout_ms=st.sampled_from([None, 5]))
    def configure(self, paused: bool | None, timeout_ms: int | None) -> None:
        queues = self.pair.both(lambda shard: shard.submit(ListQueues()))
        config = None if timeout_ms is None else QueueConfig(claim_timeout_ms=timeout_ms)
        if queues:
            self.pair.both(lambda shard: shard.submit(ConfigureQueue(queues[0].name, config=config, paused=paused)))

    @rule(queue=drawn.queues, config=drawn.settings)
    def configure_ordering(self, queue: str, config: QueueConfig) -> None:
        if queue in [known.name for known in self.pair.both(lambda shard: shard.submit(ListQueues()))]:
            self.pair.both(lambda shard: shard.submit(ConfigureQueue(queue, config=config)))
            self.ordered_settings = True

    @rule(
        queue=drawn.queues,
        config=drawn.settings,
        jobs=st.lists(drawn.ordered_jobs, min_size=2, max_size=4),
        final=st.booleans(),
        delay_ms=st.sampled_from([0, 400]),
    )
    def first_of_a_key_fails(
        self, queue: str, config: QueueConfig, jobs: list[JobAbout], final: bool, delay_ms: int
    ) -> None:
        """Without this most settings would find no job that they are about."""
        self.create_queues()
        self.configure_ordering(queue, config)
        self.insert(queue, [job._replace(delay_ms=0) for job in jobs], None, b"", None)
        self.claim(queue, [100], "w")
        self.finish([0], succeeded=False, token=Token("right"), status="", delay_ms=delay_ms, final=final, error="")

    def takes_order(self, queue: str) -> None:
        """Where no shard takes jobs with ordering keys yet, this one does from now on."""
        self.move_home(queue, NO_HOME, Home(SHARD, 1))

    def move_home(self, queue: str, known: Home, home: Home) -> None:
        self.pair.both(lambda shard: shard.submit(MoveHome(queue, known, home)))

    @rule(
        queue=drawn.queues,
        jobs=st.lists(drawn.ordered_jobs, min_size=1, max_size=4),
        limit=st.sampled_from([1, 100]),
        lost=st.booleans(),
    )
    def home_moves(self, queue: str, jobs: list[JobAbout], limit: int, lost: bool) -> None:
        """The shard was the home of the queue until now, or is it from now on, once those on the former one have ended. `lost`: it was away
        since then, and the others have gone on without it."""
        homes = {known.name: known.home for known in self.pair.both(lambda shard: shard.submit(ListQueues()))}
        home = homes.get(queue, NO_HOME)
        left = self.pair.both(lambda shard: shard.submit(CountOrdered(queue, ALL)))
        if home.waits:
            lifted = home._replace(version=home.version + 1, lifted=True)
            self.move_home(queue, home, lifted)
            after: str | None = ""
            while after is not None:
                lift = LiftBarrier(queue, after, limit, self.now)
                after = self.pair.both(lambda shard, lift=lift: shard.submit(lift))  # type: ignore[misc]
            self.move_home(queue, lifted, Home(SHARD, lifted.version + 1))
        elif home.is_at(SHARD):
            self.move_home(queue, home, Home("2", home.version + 1, SHARD))
        elif not left:
            self.move_home(queue, home, Home(SHARD, home.version + 1, "2"))
            self.insert(queue, jobs, None, b"", None)
            if lost:
                there = Queue(queue, home=Home("3", home.version + 2))
                self.pair.both(lambda shard: shard.submit(MergeQueues([there], self.pair.now)))

    # --- the three hot paths --------------------------------------------------------------------------------------------

    @rule(
        queue=drawn.queues,
        jobs=drawn.jobs,
        request_key=st.sampled_from([None, None, None, "r", "q"]),
        fingerprint=st.sampled_from([b"f", b"f", b"g"]),
        max_backlog=st.sampled_from([None, None, None, 3]),
    )
    def insert(
        self, queue: str, jobs: list[JobAbout], request_key: str | None, fingerprint: bytes, max_backlog: int | None
    ) -> None:
        self.takes_order(queue)
        request = InsertRequest(queue, self.new_jobs(queue, jobs), request_key, fingerprint, max_backlog)
        self.pair.both(lambda shard: shard.submit(InsertJobs([request], self.now)))

    @rule(queues=st.lists(drawn.queues, min_size=2, max_size=3), jobs=drawn.jobs)
    def insert_for_many(self, queues: list[str], jobs: list[JobAbout]) -> None:
        for queue in queues:
            self.takes_order(queue)
        requests = [InsertRequest(queue, self.new_jobs(queue, jobs)) for queue in queues]
        self.pair.both(lambda shard: shard.submit(InsertJobs(requests, self.now)))

    @rule(
        queue=drawn.queues,
        limits=st.lists(drawn.limits, min_size=1, max_size=3),
        source=st.sampled_from(["w", ""]),
        through=st.sampled_from([None, 1, 2, 3]),
    )
    def claim(self, queue: str, limits: list[int], source: str, through: int | None = None) -> None:
        calls = [ClaimCall(limit, self.holder(source), MAX_BYTES) for limit in limits]
        order = ClaimOrder(queue, calls, TIMEOUT_MS, from_memory=True, through_priority=through)
        [claimed] = self.pair.both(lambda shard: shard.submit(ClaimJobs([order], self.now)))
        if hasattr(claimed, "jobs"):
            for call, jobs in zip(calls, claimed.jobs, strict=True):
                self.tokens.update((job.id, call.holder.token) for job in jobs)
                self.claimed.extend(JobKey(queue, job.priority, job.id) for job in jobs)

    @rule(queue=drawn.queues, jobs=drawn.jobs)
    def hand_out(self, queue: str, jobs: list[JobAbout]) -> None:
        """Several jobs claimed at once: without this most operations would find nothing to do."""
        self.create_queues()
        self.insert(queue, [job._replace(delay_ms=0) for job in jobs], None, b"", None)
        self.claim(queue, [2, 100], "w")

    @rule(
        picks=drawn.picks,
        succeeded=st.booleans(),
        token=drawn.tokens,
        status=drawn.texts,
        delay_ms=st.sampled_from([0, 0, 400]),
        final=st.booleans(),
        error=drawn.texts,
    )
    def finish(
        self, picks: list[int], succeeded: bool, token: Token, status: str, delay_ms: int, final: bool, error: str
    ) -> None:
        acks = [
            JobAck(key, succeeded, token.of(self.token(key)), status, delay_ms, final, error, error)
            for key in self.in_hand(picks)
        ]
        if self.ordered_settings:  # of several jobs of an ordering key in a call, a store may end any first
            for ack in acks:
                self.pair.both(lambda shard, ack=ack: shard.submit(FinishJobs([ack], self.now)))  # type: ignore[misc]
            return
        self.pair.both(lambda shard: shard.submit(FinishJobs(acks, self.now)))

    @rule(picks=drawn.picks)
    def succeed_plainly(self, picks: list[int]) -> None:
        acks = [JobAck(key, True, self.token(key)) for key in self.in_hand(picks)]
        self.pair.both(lambda shard: shard.submit(FinishJobs(acks, self.now)))

    # --- jobs in hand ---------------------------------------------------------------------------------------------------

    @rule(
        picks=drawn.picks,
        source=st.sampled_from(["w", "w", ""]),
        token=drawn.tokens,
        body=st.one_of(st.none(), drawn.bodies),
        back=st.booleans(),
        run_after=st.sampled_from([None, -3, 400]),
        attempts=st.sampled_from([None, None, 1, 4]),
        status=drawn.texts,
    )
    def checkpoint(
        self,
        picks: list[int],
        source: str,
        token: Token,
        body: bytes | None,
        back: bool,
        run_after: int | None,
        attempts: int | None,
        status: str,
    ) -> None:
        run_after_ms = None if run_after is None else self.now + run_after
        checkpoints = [
            JobCheckpoint(key, source, token.of(self.token(key)), body, back, run_after_ms, attempts, status)
            for key in self.in_hand(picks)
        ]
        self.pair.both(lambda shard: shard.submit(CheckpointJobs(checkpoints, self.now)))

    @rule(picks=drawn.picks, right=st.booleans())
    def heartbeat(self, picks: list[int], right: bool) -> None:
        refs = [ClaimRef(key, self.token(key) if right else "wrong") for key in self.in_hand(picks)]
        self.pair.both(lambda shard: shard.submit(ExtendClaims(refs, self.now)))

    @rule(picks=drawn.picks, delay_ms=st.sampled_from([0, 400]))
    def release(self, picks: list[int], delay_ms: int) -> None:
        refs = [ClaimRef(key, self.token(key), delay_ms) for key in self.in_hand(picks)]
        self.pair.both(lambda shard: shard.submit(ReleaseJobs(refs, self.now)))

    @rule(picks=drawn.picks)
    def cancel(self, picks: list[int]) -> None:
        keys = list(self.picked(picks))
        self.pair.both(lambda shard: shard.submit(CancelJobs(keys, self.now)))

    @rule(picks=drawn.picks, attempts=st.integers(1, 4), delay_ms=st.sampled_from([-100, 0, 400]))
    def run_jobs(self, picks: list[int], attempts: int, delay_ms: int) -> None:
        # Each once: of two orders to run a failed job, the second meets it before it has its place among those of its ordering key.
        orders = [RunOrder(key, attempts, self.now + delay_ms) for key in dict.fromkeys(self.picked(picks))]
        self.pair.both(lambda shard: shard.submit(RunJobs(orders, self.now)))

    @rule(picks=drawn.picks, priority=drawn.priorities)
    def move_jobs(self, picks: list[int], priority: int) -> None:
        """Both names of a moved job are known from then on: the old one names nothing, or a job that moved back."""
        keys = list(self.picked(picks))
        answers = self.pair.both(lambda shard: shard.submit(MoveJobs(keys, priority, self.now)))
        for key, acked in zip(keys, answers, strict=True):
            moved = key._replace(priority=priority)
            if acked.outcome is Outcome.APPLIED and moved not in self.keys:
                self.keys.append(moved)

    # --- bulk -----------------------------------------------------------------------------------------------------------

    @rule(queue=drawn.queues, priority=drawn.priorities, attempts=st.integers(1, 4), limit=drawn.limits)
    def retry_failed(self, queue: str, priority: int, attempts: int, limit: int) -> None:
        order = Requeue(queue, priority, attempts, self.now, limit)
        self.pair.both(lambda shard: shard.submit(RequeueFailedJobs(order, self.now)))

    @rule(
        queue=drawn.queues,
        state=st.sampled_from(list(JobState)),
        priority=drawn.priorities,
        limit=drawn.limits,
        sure=drawn.seldom,
    )
    def purge(self, queue: str, state: JobState, priority: int, limit: int, sure: bool) -> None:
        if not sure:
            return
        self.pair.both(lambda shard: shard.submit(PurgeJobs(Purge(queue, state, priority, limit))))

    @rule(picks=drawn.picks, state=st.one_of(st.none(), st.sampled_from(list(JobState))))
    def delete(self, picks: list[int], state: JobState | None) -> None:
        keys = list(self.picked(picks))
        self.pair.both(lambda shard: shard.submit(DeleteJobs(keys, state)))

    # --- maintenance ----------------------------------------------------------------------------------------------------

    @rule(limit=st.sampled_from([0, 1, 2, ALL]))
    def time_out_claims(self, limit: int) -> None:
        if limit and self.some_are_equally_late():
            limit = ALL
        self.pair.both(lambda shard: shard.submit(TimeOutClaims(self.now, limit)))

    def some_are_equally_late(self) -> bool:
        """Which of them a limit cuts off is any store's choice."""
        found = self.pair.run(self.pair.model.submit(LookupJobs(self.keys, bodies=False))) if self.keys else []
        deadlines = [job.claim_deadline_ms for job in found if job is not None and job.claim_deadline_ms is not None]
        return len(set(deadlines)) < len(deadlines)

    @rule()
    def expire(self) -> None:
        self.pair.both(lambda shard: shard.submit(ExpireJobs(self.now, ALL)))

    @rule(ttl_ms=st.sampled_from([0, 1_000, 5_000]))
    def collect_garbage(self, ttl_ms: int) -> None:
        ttls = [TimeToLive(queue, ttl_ms, 2 * ttl_ms) for queue in QUEUES]
        self.pair.both(lambda shard: shard.submit(CollectGarbage(ttls, self.now, ALL)))

    # --- looking --------------------------------------------------------------------------------------------------------

    @rule(queue=drawn.queues, limit=drawn.limits)
    def peek(self, queue: str, limit: int) -> None:
        self.pair.both(lambda shard: shard.submit(PeekJobs(queue, limit, self.now, MAX_BYTES)))

    @rule(
        queue=drawn.queues,
        state=st.sampled_from(list(JobState)),
        priority=drawn.priorities,
        limit=st.integers(1, 3),
        future=st.booleans(),
    )
    def scan(self, queue: str, state: JobState, priority: int, limit: int, future: bool) -> None:
        page = Page(queue, state, [priority], limit, due_by_ms=self.now, future=future)
        rows = self.page(page)
        while rows and isinstance(rows, list):
            page = page._replace(after=(rows[-1].sort_ms, rows[-1].key.id))
            rows = self.page(page)

    @precondition(lambda self: self.keys)
    @rule(picks=drawn.picks, bodies=st.booleans())
    def lookup(self, picks: list[int], bodies: bool) -> None:
        keys = list(self.picked(picks))
        self.pair.both(lambda shard: shard.submit(LookupJobs(keys, bodies=bodies)))

    @rule()
    def count(self) -> None:
        for shard in (self.pair.model, *self.pair.servers):
            self.pair.run(shard.submit(AdvanceDue(self.now, ALL)))
        self.pair.both(lambda shard: shard.submit(CountJobs()))

    def look_at_everything(self) -> None:
        """All jobs ever made, all counters, all queues."""
        self.pair.both(lambda shard: shard.submit(LookupJobs(self.keys, bodies=True)))
        self.pair.both(lambda shard: shard.submit(ListQueues()))
        self.count()
        for queue in QUEUES:
            for state in JobState:
                for priority in (1, 2, 3):
                    for future in (False, True):
                        self.page(Page(queue, state, [priority], ALL, due_by_ms=self.now, future=future))

    def page(self, page: Page) -> Any:
        return self.pair.both(lambda shard: shard.submit(ScanJobs(page)))

    # --- making values --------------------------------------------------------------------------------------------------

    def holder(self, source: str) -> Holder:
        self.claims += 1
        return Holder(f"h:1:2:{source}:{self.claims}", source, f"token{self.claims}")

    def token(self, key: JobKey) -> str:
        return self.tokens.get(key.id, "never claimed")

    def new_jobs(self, queue: str, abouts: list[JobAbout]) -> list[NewJob]:
        """Jobs as they are stored, with new ids; remembers their keys."""
        jobs = []
        for about, job_id in zip(abouts, self.pair.ids.make(len(abouts)), strict=True):
            expires_ms = None if about.expires_in_ms is None else self.now + about.expires_in_ms
            options = Options(
                about.status, about.headers, about.unique, about.claim_timeout_ms, expires_ms, about.ordering_key
            )
            job = NewJob(
                id=job_id,
                body=about.body,
                priority=about.priority,
                run_after_ms=self.now + about.delay_ms,
                attempts_allowed=about.attempts,
                options=None if options == NONE else options,
            )
            jobs.append(job)
            self.keys.append(JobKey(queue, job.priority, job.id))
        return jobs


class ServersMachine(ShardMachine):
    """Three servers on one store, each with a memory of its own, against the model: every call goes through a random one."""

    servers = 3

    @initialize(dice=st.randoms(use_true_random=False))
    def servers_take_calls(self, dice: Random) -> None:
        self.pair.pick = dice.randrange

    @rule(queue=drawn.queues)
    def delete_any_queue(self, queue: str) -> None:
        self.pair.both(lambda shard: shard.submit(DeleteQueues([queue])))

    @rule(queue=drawn.queues, jobs=drawn.jobs, limit=st.sampled_from([1, 100]), ms=drawn.steps_ms)
    def begin_anew(self, queue: str, jobs: list[JobAbout], limit: int, ms: int) -> None:
        """A queue is deleted through one server, made again through another, and has jobs in hand at once, which may be overdue already.

        Far more often than in life: that is what a memory may miss.
        """
        self.delete_any_queue(queue)
        self.pair.both(lambda shard: shard.submit(create_queues([queue], self.now)))
        self.insert(queue, jobs, None, b"", None)
        self.claim(queue, [limit], "w")
        self.time_passes(ms)

    @rule()
    def advance_due(self) -> None:
        """Through one server, and looked at through others."""
        for shard in (self.pair.model, self.pair.one()):
            self.pair.run(shard.submit(AdvanceDue(self.now, ALL)))

    @invariant()
    def no_job_is_lost_and_all_are_counted(self) -> None:
        """Each job is where the model has it, held by the worker that the model names. When future jobs count as due is left to `count`."""
        if self.keys:
            self.pair.both(lambda shard: shard.submit(LookupJobs(self.keys, bodies=False)))
        self.pair.both(lambda shard: _undated(shard.submit(CountJobs())))


async def _undated(counting: Awaitable[Sequence[QueueCounts]]) -> list[QueueCounts]:
    """Counts without what depends on when due jobs were last counted as such."""
    return [QueueCounts(queue, counts._replace(future=0, oldest_due_at_ms=None)) for queue, counts in await counting]


class QueuesMachine(RuleBasedStateMachine):
    """Queues alone: made, deleted, set and paused by several servers' clocks, late and again, as calls that stood still are."""

    kind = "memory"
    servers = 1

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.kind, self.servers)

    def teardown(self) -> None:
        try:
            self.pair.reopen()
            self.pair.both(lambda shard: shard.submit(ListQueues()))
        finally:
            self.pair.close()

    def at(self, ms: int) -> int:
        return self.pair.now + ms

    @initialize(dice=st.randoms(use_true_random=False))
    def servers_take_calls(self, dice: Random) -> None:
        self.pair.pick = dice.randrange

    @rule(ms=drawn.steps_ms)
    def time_passes(self, ms: int) -> None:
        self.pair.clock.advance(ms=ms)

    @rule()
    def reopen(self) -> None:
        self.pair.reopen()

    @rule(queue=drawn.queues, made=drawn.other_clocks_ms, before_ms=st.sampled_from([None, None, 1, 400, 60_001]))
    def create(self, queue: str, made: int, before_ms: int | None) -> None:
        """`before_ms`: how long before that it was deleted."""
        life = Life(self.at(made), 0 if before_ms is None else self.at(made) - before_ms)
        self.pair.both(lambda shard: shard.submit(create_queues([queue], self.pair.now, life=life)))

    @rule(queue=drawn.queues, ms=drawn.other_clocks_ms, remembered=st.booleans())
    def delete(self, queue: str, ms: int, remembered: bool) -> None:
        deleted_ms = self.at(ms) if remembered else 0
        self.pair.both(lambda shard: shard.submit(DeleteQueues([queue], deleted_ms, self.pair.now)))

    @rule(
        queue=drawn.queues,
        ms=drawn.other_clocks_ms,
        bits=st.integers(0, 1),
        versioned=st.booleans(),
        paused=st.sampled_from([None, True, False]),
        timeout_ms=st.sampled_from([None, 5, 6]),
    )
    def configure(
        self, queue: str, ms: int, bits: int, versioned: bool, paused: bool | None, timeout_ms: int | None
    ) -> None:
        version = Versions().following(self.at(ms), bits) if versioned else ""
        config = None if timeout_ms is None else QueueConfig(claim_timeout_ms=timeout_ms)
        if queue in [known.name for known in self.pair.both(lambda shard: shard.submit(ListQueues()))]:
            self.pair.both(
                lambda shard: shard.submit(ConfigureQueue(queue, config=config, paused=paused, version=version))
            )

    @rule(queue=drawn.queues, made=drawn.other_clocks_ms, set_ms=drawn.other_clocks_ms, paused=st.booleans())
    def merge(self, queue: str, made: int, set_ms: int, paused: bool) -> None:
        """What another shard has of a queue."""
        version = Versions().following(self.at(set_ms), 2)
        there = Queue(queue, QueueConfig(), paused, Versions("", version), Life(self.at(made)))
        self.pair.both(lambda shard: shard.submit(MergeQueues([there], self.pair.now)))

    @invariant()
    def queues_are_the_same(self) -> None:
        self.pair.both(lambda shard: shard.submit(ListQueues()))
