"""The model's methods: each finds the queue, hands over to the module that knows the rule, and keeps the order of the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Concatenate, ParamSpec, TypeVar

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import HandedOutJob, JobState
from pinlater.domain.queue import Home, Queue, QueueConfig, QueueCounts
from pinlater.domain.transitions import StatusRule
from pinlater.server.storage.commands import (
    AdvanceDue,
    CancelJobs,
    CheckpointJobs,
    ClaimJobs,
    CollectGarbage,
    Command,
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
)
from pinlater.server.storage.table import CommandTable, Table, entry_of
from pinlater.server.storage.values import (
    DELETION_KEPT_MS,
    NOT_FOUND,
    Acked,
    Claimed,
    ClaimOrder,
    ClaimRef,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    JobKey,
    Page,
    PageRow,
    Purge,
    Requeue,
    Requeued,
    RunOrder,
    Swept,
    TimeToLive,
)
from pinlater.wire.generated.structs import JobInfo
from tests.storage_model.model import inserting, many, named
from tests.storage_model.model.job import ModelJob
from tests.storage_model.model.queue import SHARD, ModelQueue

P = ParamSpec("P")
Answer = TypeVar("Answer")


class ModelShard(CommandTable):
    """The commands of a shard that the machines give."""

    def __init__(self, status_rule: StatusRule) -> None:
        """`status_rule`: that of the store under test, as stores differ in it."""
        self.name = SHARD
        self._status_rule = status_rule
        self._queues: dict[str, ModelQueue] = {}
        self._deleted: dict[str, int] = {}

    async def submit(self, command: Command[Answer]) -> Answer:
        """Jobs with ordering keys get their places once the command has done all else."""
        answer = await super().submit(command)
        for queue in self._queues.values():
            queue.arrange()
        return answer

    # --- queues ---------------------------------------------------------------------------------------------------------

    async def _merge_queues(self, queues: Sequence[Queue], now_ms: int) -> Sequence[Queue]:
        return [self._merge(queue) for queue in queues]

    def _merge(self, given: Queue) -> Queue:
        known = self._queues.get(given.name)
        if known is not None:
            before, merged = known.settings.home, known.settings.newest(given)
            if merged.home != before and (before.lift_due or (before.former and before.shard == self.name)):
                merged = merged._replace(home=merged.home._replace(lift_due=True))
            known.settings = merged
            return known.settings
        queue = given.made_after(self._deleted.get(given.name, 0))
        if not queue.life.over:
            self._queues[given.name] = ModelQueue(queue, self._status_rule)
        return queue

    async def _delete_queues(self, names: Sequence[str], deleted_ms: int = 0, now_ms: int = 0) -> int:
        newest_ms = 0
        for name in names:
            queue, remembered_ms = self._queues.get(name), deleted_ms
            if queue is not None:
                newest_ms = max(newest_ms, queue.settings.newest_ms)
                if deleted_ms and queue.settings.life.made_ms > deleted_ms:
                    continue
                remembered_ms = max(deleted_ms, queue.settings.newest_ms + 1)
                del self._queues[name]
            if deleted_ms:
                self._deleted[name] = max(remembered_ms, self._deleted.get(name, 0))
        before_ms = now_ms - DELETION_KEPT_MS
        self._deleted = {name: at_ms for name, at_ms in self._deleted.items() if at_ms >= before_ms}
        return newest_ms

    async def _list_queues(self) -> Sequence[Queue]:
        return [self._queues[name].settings for name in sorted(self._queues)]

    async def _configure_queue(
        self, name: str, config: QueueConfig | None = None, paused: bool | None = None, version: str = "", by: str = ""
    ) -> None:
        queue = self._queues[name]
        queue.settings = queue.settings.changed(config, paused, version, by)

    async def _move_home(self, queue: str, known: Home, home: Home) -> Home | PinLaterError:
        found = self._queues.get(queue)
        if found is None:
            return QueueNotFound.of(queue)
        if found.settings.home == known:
            found.settings = found.settings._replace(home=home)
        return found.settings.home

    async def _lift_barrier(self, queue: str, after: str, limit: int, now_ms: int) -> str | PinLaterError | None:
        found = self._queues.get(queue)
        return found.lift_barrier(after, limit) if found else QueueNotFound.of(queue)

    async def _count_ordered(self, queue: str, limit: int) -> int:
        found = self._queues.get(queue)
        return min(limit, sum(map(len, found.lines.values()))) if found else 0

    # --- jobs that are named --------------------------------------------------------------------------------------------

    async def _finish_jobs(self, acks: Sequence[JobAck], now_ms: int) -> Sequence[Acked]:
        return [self._on(ack.key, named.finish, ack, now_ms) for ack in acks]

    async def _checkpoint_jobs(self, checkpoints: Sequence[JobCheckpoint], now_ms: int) -> Sequence[Acked]:
        return [self._on(progress.key, named.checkpoint, progress, now_ms) for progress in checkpoints]

    async def _extend_claims(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        return [self._on(ref.key, named.extend, ref, now_ms) for ref in claims]

    async def _release_jobs(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        return [self._on(ref.key, named.release, ref, now_ms) for ref in claims]

    async def _cancel_jobs(
        self, keys: Sequence[JobKey], now_ms: int, only_state: JobState | None = None
    ) -> Sequence[Acked]:
        """`only_state` is for commands that the machines do not give."""
        assert only_state is None
        return [self._on(key, named.cancel, now_ms) for key in keys]

    async def _run_jobs(self, orders: Sequence[RunOrder], now_ms: int) -> Sequence[Acked]:
        return [self._on(order.key, named.run, order, now_ms) for order in orders]

    async def _move_jobs(self, keys: Sequence[JobKey], priority: int, now_ms: int) -> Sequence[Acked]:
        """A job that has moved there already is found, too."""
        answers = []
        for key in keys:
            found = key if self._find(key) else key._replace(priority=priority)
            answers.append(self._on(found, named.move, priority, now_ms))
        return answers

    async def _delete_jobs(self, keys: Sequence[JobKey], state: JobState | None = None) -> int:
        deleted = 0
        for key in keys:
            found = self._find(key)
            if found is not None and state in (None, found[1].state):
                found[0].drop(found[1])
                deleted += 1
        return deleted

    async def _lookup_jobs(self, keys: Sequence[JobKey], bodies: bool) -> Sequence[JobInfo | None]:
        return [found[1].shown(self.name, body=bodies) if (found := self._find(key)) else None for key in keys]

    # --- jobs of a queue ------------------------------------------------------------------------------------------------

    async def _insert_jobs(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        return [
            inserting.insert(queue, request, now_ms)
            if (queue := self._queues.get(request.queue))
            else QueueNotFound.of(request.queue)
            for request in requests
        ]

    async def _claim_jobs(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        return [
            many.claim(queue, order, now_ms)
            if (queue := self._queues.get(order.queue))
            else QueueNotFound.of(order.queue)
            for order in orders
        ]

    async def _peek_jobs(
        self, queue: str, limit: int, now_ms: int, max_bytes: int
    ) -> Sequence[HandedOutJob] | PinLaterError:
        found = self._queues.get(queue)
        return many.peek(found, limit, now_ms) if found else QueueNotFound.of(queue)

    async def _requeue_failed_jobs(self, order: Requeue, now_ms: int) -> Requeued | PinLaterError:
        queue = self._queues.get(order.queue)
        return many.requeue_failed(queue, order, now_ms) if queue else QueueNotFound.of(order.queue)

    async def _purge_jobs(self, order: Purge) -> int | PinLaterError:
        queue = self._queues.get(order.queue)
        return many.purge(queue, order) if queue else QueueNotFound.of(order.queue)

    async def _scan_jobs(self, page: Page) -> Sequence[PageRow] | PinLaterError:
        queue = self._queues.get(page.queue)
        return many.scan(queue, page, self.name) if queue else QueueNotFound.of(page.queue)

    async def _count_jobs(self, queues: Sequence[str] | None = None) -> Sequence[QueueCounts]:
        return [
            QueueCounts(name, queue.counts(priority))
            for name, queue in sorted(self._queues.items())
            if queues is None or name in queues
            for priority in queue.priorities()
        ]

    # --- sweeps ---------------------------------------------------------------------------------------------------------

    async def _advance_due(self, now_ms: int, limit: int) -> int:
        """Has no limit."""
        for queue in self._queues.values():
            queue.advance(now_ms)
        return 0

    async def _time_out_claims(self, now_ms: int, limit: int, quarantine_after: int = 0) -> Sequence[Swept]:
        assert quarantine_after == 0
        return many.time_out_claims(self._queues, now_ms, limit)

    async def _expire_jobs(self, now_ms: int, limit: int) -> Sequence[Swept]:
        return many.expire_jobs(self._queues, now_ms, limit)

    async def _collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Swept]:
        """Has no limit."""
        return many.collect_garbage(self._queues, ttls, now_ms)

    def _on(
        self, key: JobKey, act: Callable[Concatenate[ModelQueue, ModelJob, P], Acked], *args: P.args, **kwargs: P.kwargs
    ) -> Acked:
        """Returns what `act` answers for the job."""
        found = self._find(key)
        return act(*found, *args, **kwargs) if found else NOT_FOUND

    def _find(self, key: JobKey) -> tuple[ModelQueue, ModelJob] | None:
        queue = self._queues.get(key.queue)
        job = queue.find(key) if queue else None
        return (queue, job) if queue and job else None

    table: ClassVar[Table] = dict(
        [
            entry_of(MergeQueues)(_merge_queues),
            entry_of(DeleteQueues)(_delete_queues),
            entry_of(MoveHome)(_move_home),
            entry_of(LiftBarrier)(_lift_barrier),
            entry_of(CountOrdered)(_count_ordered),
            entry_of(ListQueues)(_list_queues),
            entry_of(FinishJobs)(_finish_jobs),
            entry_of(CheckpointJobs)(_checkpoint_jobs),
            entry_of(ExtendClaims)(_extend_claims),
            entry_of(ReleaseJobs)(_release_jobs),
            entry_of(CancelJobs)(_cancel_jobs),
            entry_of(RunJobs)(_run_jobs),
            entry_of(MoveJobs)(_move_jobs),
            entry_of(DeleteJobs)(_delete_jobs),
            entry_of(LookupJobs)(_lookup_jobs),
            entry_of(InsertJobs)(_insert_jobs),
            entry_of(ClaimJobs)(_claim_jobs),
            entry_of(RequeueFailedJobs)(_requeue_failed_jobs),
            entry_of(PurgeJobs)(_purge_jobs),
            entry_of(ScanJobs)(_scan_jobs),
            entry_of(CountJobs)(_count_jobs),
            entry_of(ConfigureQueue)(_configure_queue),
            entry_of(PeekJobs)(_peek_jobs),
            entry_of(AdvanceDue)(_advance_due),
            entry_of(TimeOutClaims)(_time_out_claims),
            entry_of(ExpireJobs)(_expire_jobs),
            entry_of(CollectGarbage)(_collect_garbage),
        ]
    )
