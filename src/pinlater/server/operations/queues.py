"""Queues: make, delete, configure, pause, and report their counts."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import (
    InvalidArgument,
    OutcomeUnknown,
    PasswordInvalid,
    PinLaterError,
    QueueNotFound,
    RequestTooOld,
    TooManyQueues,
    adding,
)
from pinlater.domain.queue import (
    Life,
    PriorityCounts,
    Queue,
    QueueConfig,
    QueueCounts,
    check_queue_name,
    merge_counts,
)
from pinlater.domain.queue_settings import check_config
from pinlater.domain.rate_limit import lower_limit
from pinlater.server.operations.addressing import on_reachable, reachable
from pinlater.server.operations.job_settings import DUE_ROWS_MAX
from pinlater.server.sharding.guarded import shard_unreachable
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.commands import (
    AdvanceDue,
    ConfigureQueue,
    CountJobs,
    DeleteQueues,
    MergeQueues,
    UnblockKey,
    create_queues,
)
from pinlater.server.storage.values import DELETION_KEPT_MS
from pinlater.wire.generated import structs

if TYPE_CHECKING:
    from pinlater.server.operations.service import Service

Value = TypeVar("Value")

_QUEUES_A_CALL, _QUEUES_A_TURN = 1_000, 250
# A call that has taken longer may have been given up by its caller, which may have done the opposite since.
_YOUNG_S = 5.0
_BY_MAX = 200  # characters of the name of the caller that pauses a queue


class Queues:
    """The operations on queues as such."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._queue_cache = service.queue_cache
        self._dispatcher = service.dispatcher
        self._passwords = service.passwords
        self._metrics = service.metrics
        self._clock = service.clock
        self._rates = service.rates
        self._auto_create = service.settings.auto_create
        self.waiting_elsewhere: Callable[[str], int] = lambda _: 0  # dequeues that wait at other servers of the shards

    async def create_queue(self, name: str, *, for_task: bool = False, ordered: bool = False) -> None:
        """Makes it on every shard; if it exists nothing happens. Unreachable shards get it when they are back.

        A shard on which the queue was deleted since makes it only with a later life. A young call gives the queue such a life; a call
        that stood still does not, so that it restores nothing that was deleted meanwhile. Then it raises `OutcomeUnknown`, or
        `RequestTooOld` if it stood still before it began to make any.

        `for_task`: a task or its worker needs the queue, and no person or program has asked to create it. Then it raises `QueueNotFound`
        if the settings forbid that, or if the queue was deleted within the last day.

        `ordered`: as a queue that is ordered as a whole. Its first shard decides, so that of two concurrent creations one order holds.
        Raises `InvalidArgument` if the queue exists and is not ordered.
        """
        check_queue_name(name)
        began_s = self._clock.monotonic()
        if not self._queue_cache.can_hold(name):
            await self._queue_cache.look()  # before it refuses: other servers may have deleted queues
            self._refuse_old(began_s)
            if not self._queue_cache.can_hold(name):
                raise TooManyQueues.of(name, self._queue_cache.queues_max)
        away = [shard for shard in self._shards if not shard.healthy]
        known = self._queue_cache.queues.get(name)
        # With an unchanged life, a queue that exists costs a shard no write. A shard that is away may have deleted it; then a task must
        # not restore it, even if this server has not heard of the deletion.
        life = Life(self._later_than(known)) if known is None or (away and not for_task) else known.life
        if for_task and known is None:
            await self._check_for_task(name)
        with contextlib.nullcontext() if known is not None else self._telling():
            queue = await self._create(name, life, ordered=ordered)
        while queue.life.over:
            if for_task:
                raise _deleted_lately(name)
            if self._is_old(began_s):
                raise OutcomeUnknown(f"This request took so long that queue {name} was deleted meanwhile")
            with self._telling():
                later = Life(max(self._clock.now_ms(), queue.life.deleted_ms + 1))
                queue = await self._create(name, later, ordered=ordered)
        for shard in away:
            if shard.healthy:  # back meanwhile, and maybe updated before the others had the queue
                await shard.store.submit(MergeQueues([queue], self._clock.now_ms()))
        self._queue_cache.add(queue)

    async def _check_for_task(self, name: str) -> None:
        """Raises `QueueNotFound` unless a task may create this queue.

        Shards remember deletions for a day. A creation of a day ago is refused by those that remember one, and the queue counts as deleted
        if all refuse it. Weakness: a shard that was added after the deletion does not know of it, so that the queue is created.
        """
        if not self._auto_create:
            raise adding(QueueNotFound.of(name), "; tasks create no queues on this server (setting jobs.auto_create)")
        with self._telling():
            found = await self._create_on_each(name, Life(self._clock.now_ms() - DELETION_KEPT_MS))
        if all(queue.life.over for queue in found):
            raise _deleted_lately(name)

    async def _create(self, name: str, life: Life, *, ordered: bool = False) -> Queue:
        """The queue that the reachable shards have afterwards; its life is `over` if one of them has deleted it since."""
        if ordered:
            decided = await self._decide_order(name, life)
            if decided.life.over:
                return decided
            life = decided.life
        found = await self._create_on_each(name, life)
        refused = [queue for queue in found if queue.life.over]
        return reduce(Queue.newest, refused or found)

    async def _decide_order(self, name: str, life: Life) -> Queue:
        """Returns the queue that its first shard has afterwards, where it is made as an ordered one unless it exists."""
        first = self._shards.first_of(name)
        if not first.healthy:
            raise shard_unreachable(first.name)
        [queue] = await first.store.submit(create_queues([name], self._clock.now_ms(), life=life, asks_order=True))
        if not queue.life.over and not queue.life.ordered:
            raise InvalidArgument(
                f"Queue {name} exists, and its jobs are not in order as a whole. A queue's order can't be changed: delete the queue, or "
                "give its jobs ordering keys"
            )
        return queue

    async def _create_on_each(self, name: str, life: Life) -> list[Queue]:
        async def create(shard: ShardLanes) -> Queue:
            [queue] = await shard.store.submit(create_queues([name], self._clock.now_ms(), life=life))
            return queue

        return await self._on_each("createQueue", create)

    def _later_than(self, queue: Queue | None) -> int:
        """The current time, or later if the queue has times of a clock that is ahead."""
        return max(self._clock.now_ms(), 0 if queue is None else queue.newest_ms + 1)

    async def delete_queue(self, name: str, password: str | None) -> None:
        """Deletes it with all its jobs. Raises `PasswordInvalid`; a missing queue is not an error.

        `password`: None if the caller's token has the role for it, so that no password is needed.

        An unreachable shard keeps it, so then the call fails; the others have deleted it, and repeating is safe. The time of the
        deletion is later than all times of what it deletes, so that none of that comes back. Raises `OutcomeUnknown` if this call stood
        still and the queue was made again meanwhile; `RequestTooOld` if it stood still before it began to delete.
        """
        began_s = self._clock.monotonic()
        if password is not None and not await self._passwords.check(password):
            raise PasswordInvalid.of(configured=self._passwords.configured)
        self._refuse_old(began_s)
        kept_by = self._away()  # also if they are back before this is done
        deleted_ms = self._later_than(self._queue_cache.queues.get(name))
        newest_ms = await self._delete(name, deleted_ms)
        while newest_ms >= deleted_ms:  # by a clock that is ahead of this server's, or just now
            if self._is_old(began_s):
                raise OutcomeUnknown(f"This request took so long that queue {name} was made or changed meanwhile")
            deleted_ms = newest_ms + 1
            kept_by += self._away()
            newest_ms = await self._delete(name, deleted_ms)
        if kept_by:
            raise adding(shard_unreachable(kept_by[0]), "; the queue was deleted from the others")
        self._queue_cache.remove(name)
        self._metrics.forget_queue(name)

    def _away(self) -> list[str]:
        """The shards that a change does not reach."""
        return [shard.name for shard in self._shards if not shard.healthy]

    async def _delete(self, name: str, deleted_ms: int) -> int:
        """The newest time that the queue had on any reachable shard."""
        now_ms = self._clock.now_ms()
        with self._telling():
            newest_ms = await self._on_each(
                "deleteQueue", lambda shard: shard.store.submit(DeleteQueues([name], deleted_ms, now_ms))
            )
        return max(newest_ms, default=0)

    async def queue_names(self) -> Sequence[str]:
        """All names, sorted."""
        await self._queue_cache.refresh()
        return sorted(self._queue_cache.queues)

    async def configure_queue(self, name: str, config: QueueConfig) -> None:
        """Replaces the queue's settings. Other servers follow within 5 s; unreachable shards, when they are back.

        Of two concurrent changes all shards keep the same one.
        """
        check_config(config)
        takers = len(self._shards.partitions.order(name))
        if (number := config.partitions or 1) > max(1, takers) and number > await self._partitions_set(name):
            raise InvalidArgument(
                f"partitions must be at most {takers}, the number of shards that take enqueues, not {config.partitions}"
            )
        version = await self._next_version(name)
        with self._telling():
            await self._on_each(
                "configureQueue", lambda shard: shard.store.submit(ConfigureQueue(name, config=config, version=version))
            )
        await self._queue_cache.refresh()

    async def _partitions_set(self, name: str) -> int:
        """Returns the resulting number of partitions. It may stay as it is when shards are removed."""
        return (await self._queue_cache.require(name)).config.partitions or 1

    async def queue_config(self, name: str) -> Queue:
        """The queue's settings, None if the server's default applies."""
        return await self._queue_cache.require(name)

    async def set_paused(self, name: str, paused: bool, by: str = "") -> None:
        """Stops or resumes dequeues; enqueues and acks continue. Otherwise as `configure_queue`. `by`: the caller, stored with the
        pause."""
        version = await self._next_version(name)
        method = "pauseQueue" if paused else "resumeQueue"
        with self._telling():
            await self._on_each(
                method,
                lambda shard: shard.store.submit(ConfigureQueue(name, paused=paused, version=version, by=by[:_BY_MAX])),
            )
        await self._queue_cache.refresh()

    async def unblock_key(self, name: str, ordering_key: str) -> int:
        """Makes jobs that failed finally no longer stop their ordering key; they stay FAILED. Returns how many stopped it. Fails if none
        did on the reachable shards, and another may have the jobs of the key."""
        await self._queue_cache.require(name)
        away = self._away()
        command = UnblockKey(name, ordering_key, self._clock.now_ms())
        found = await self._on_each("unblockKey", lambda shard: shard.store.submit(command))
        refused = [answer for answer in found if isinstance(answer, PinLaterError)]
        unblocked = sum([answer for answer in found if isinstance(answer, int)])
        if len(refused) == len(found):
            raise refused[0]
        if away and not unblocked:
            raise shard_unreachable(away[0])
        return unblocked

    async def set_auto_partitions(self, name: str, number: int) -> None:
        """Sets how many partitions the queue is to have while its settings name no number. Like `configure_queue`, but only for servers."""
        version = await self._next_version(name)
        queue = (await self._queue_cache.require(name)).changed(None, None, version, auto_partitions=number)
        with self._telling():
            await self._on_each(
                "configureQueue", lambda shard: shard.store.submit(MergeQueues([queue], self._clock.now_ms()))
            )
        await self._queue_cache.refresh()

    async def _next_version(self, name: str) -> str:
        """Later than every version on a reachable shard, even if their servers' clocks are ahead of this one's.

        Raises `RequestTooOld` if the call has stood still: it must neither revert later changes nor apply to another queue of that name.
        """
        began_s = self._clock.monotonic()
        await self._queue_cache.refresh()
        queue = await self._queue_cache.require(name)
        self._refuse_old(began_s)
        return queue.versions.following(self._later_than(queue), self._shards.random.getrandbits(64))

    def _refuse_old(self, began_s: float) -> None:
        """Raises `RequestTooOld` if a call that has changed nothing yet stood still meanwhile."""
        if self._is_old(began_s):
            raise RequestTooOld

    def _is_old(self, began_s: float) -> bool:
        return self._clock.monotonic() - began_s > _YOUNG_S

    async def queue_stats(self, names: Sequence[str]) -> Sequence[structs.QueueStats]:
        """The counts of the named queues (none: all), from counters only; in pieces between which other calls run."""
        if len(names) > self._queue_cache.queues_max:
            raise InvalidArgument(
                f"{len(names)} names in one request; at most {self._queue_cache.queues_max} are taken (setting jobs.max_queues)",
                detail="TOO_MANY",
            )
        if not names:
            await self._queue_cache.refresh()
        wanted = [(await self._queue_cache.require(name)).name for name in names] or sorted(self._queue_cache.queues)
        different = list(dict.fromkeys(wanted))
        counts: dict[str, list[PriorityCounts]] = {name: [] for name in different}

        async def count(shard: ShardLanes) -> tuple[str, list[QueueCounts]]:
            await shard.store.submit(AdvanceDue(self._clock.now_ms(), DUE_ROWS_MAX))
            counted: list[QueueCounts] = []
            for start in range(0, len(different), _QUEUES_A_CALL):
                counted += await shard.store.submit(CountJobs(different[start : start + _QUEUES_A_CALL]))
                await asyncio.sleep(0)
            return shard.name, counted

        counted_by_shard = await on_reachable(self._shards, self._metrics, "getQueueStats", count)
        incomplete = len(counted_by_shard) < len(self._shards)
        unfinished: dict[str, Counter[str]] = {name: Counter() for name in different}  # by shard
        for shard, counted in counted_by_shard:
            for row in counted:
                counts[row.queue].append(row.counts)
                unfinished[row.queue][shard] += row.counts.pending + row.counts.in_progress
            await asyncio.sleep(0)
        stats: list[structs.QueueStats] = []
        for start in range(0, len(wanted), _QUEUES_A_TURN):
            stats += [
                self._stats(name, merge_counts(counts[name]), incomplete, unfinished[name])
                for name in wanted[start : start + _QUEUES_A_TURN]
            ]
            await asyncio.sleep(0)
        return stats

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Other servers learn that something has changed, or may have if it failed."""
        try:
            yield
        finally:
            self._queue_cache.changed_here()

    async def _on_each(self, method: str, act: Callable[[ShardLanes], Awaitable[Value]]) -> list[Value]:
        """The answers of `act` for every reachable shard, all at once. Raises the first failure when all have ended; repeating is safe.

        A shard that doesn't know the queue (yet) does not count as failed while another does.
        """
        results = await asyncio.gather(
            *(act(shard) for shard in reachable(self._shards, self._metrics, method)), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        grave = [failure for failure in failures if not isinstance(failure, QueueNotFound)]
        if grave or len(failures) == len(results):
            raise (grave or failures)[0]
        return [result for result in results if not isinstance(result, BaseException)]

    def _stats(
        self, name: str, counts: Sequence[PriorityCounts], incomplete: bool, unfinished: Mapping[str, int]
    ) -> structs.QueueStats:
        several = len(self._shards) > 1
        partitions = [shard.name for shard in self._shards.partitions.of(name)]
        queue = self._queue_cache.queues.get(name)
        due = [each.oldest_due_at_ms for each in counts if each.oldest_due_at_ms is not None]
        now_ms = self._clock.now_ms()
        # A job's run-after may be any number, and the age must fit the wire's field.
        oldest = min(I64_MAX, max(0, now_ms - min(due))) if due and min(due) <= now_ms else None
        return structs.QueueStats(
            name,
            queue is not None and queue.paused,
            [structs.QueueCounts(*each[:-1], each.behind_key or None) for each in counts],
            oldest,
            structs.QueueRates(*self._rates(name)),
            self._dispatcher.waiting(name) + self.waiting_elsewhere(name),
            incomplete or None,
            lower_limit(self._dispatcher.limits.of_file(name), queue.config.max_jobs_per_second if queue else None),
            partitions if several else None,
            {shard: jobs for shard, jobs in unfinished.items() if jobs and shard not in partitions}
            if several
            else None,
            structs.PartitionNumber(*queue.partitions) if several and queue else None,
        )


def _deleted_lately(name: str) -> QueueNotFound:
    return adding(
        QueueNotFound.of(name), "; it was deleted within the last day, and tasks do not create it again so soon"
    )
