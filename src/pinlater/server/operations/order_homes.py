"""Decides where the jobs with ordering keys of a queue are stored, and moves that home when its shard drains or is lost.

Each shard stores with a queue where these jobs are, as far as it knows (`Home`), and accepts such jobs only if it is the home by its own
row. So order does not depend on what servers know: a server that is wrong is refused, asks all shards, and retries.

- The first home is one on which all shards of the map agree. Each of them, in the order of their names, stores the same shard, and only
  then one is told that it is the home. If two servers want different ones, the choice stored on the shard with the last name counts. As
  long as one shard is in the maps of all servers, they come to the same choice.
- When a home drains, it first closes itself, and names the next one. On the next home the jobs wait until the former one has none left
  (`Home.waits`). Then the first jobs of all keys are made ready.
- The version of the first home is the current time. So it is newer than all homes of a deleted queue of the same name, which may still be
  stored on a shard that was away until the others had forgotten the deletion.
- A lost home can't close itself: the others agree on the next one as on the first. No job waits for those on a lost shard.

A home whose jobs wait for those on a former one does not move, even if it drains: so there is no chain of former homes.

Weakness: jobs that were enqueued before a shard was lost, and jobs that a server which does not know of the loss yet stores on it, are no
longer ordered.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from functools import partial, reduce

from pinlater.domain.clock import Clock
from pinlater.domain.errors import EnqueueRejected, PinLaterError, QueueNotFound, ShardRefused, adding
from pinlater.domain.queue import Home, Queue
from pinlater.server.operations.queue_cache import QueueCache
from pinlater.server.sharding.guarded import shard_unreachable
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import CountOrdered, LiftBarrier, MergeQueues, MoveHome
from pinlater.server.storage.values import raise_error

logger = logging.getLogger(__name__)

_TRIES = 20  # while other servers decide at the same time
_KEYS_A_CALL = 500
_QUEUES_AT_ONCE = 16


class OrderHomes:
    """The homes of all queues with ordering keys, for one server."""

    def __init__(self, shards: Shards, queue_cache: QueueCache, clock: Clock) -> None:
        self._shards = shards
        self._queue_cache = queue_cache
        self._clock = clock
        self._settling: dict[str, asyncio.Task[Home]] = {}
        self._missing = set[str]()  # shards that the shard file does not name, of which the log has warned

    async def shard_of(self, queue: Queue) -> str:
        """The shard for the queue's jobs with ordering keys, which is its home or becomes it now. Raises as `settle`."""
        home = queue.home if self._shards.is_usable(queue.home) else await self.settle(queue.name)
        return home.shard

    async def settle(self, name: str) -> Home:
        """Asks all shards for the home of a queue; chooses one if there is none, or if it has to move. Its shard knows of it
        afterwards.

        Raises `EnqueueRejected` if no shard accepts enqueues or a server of the previous version uses one, and `ShardConnectionFailed` if
        a shard is unreachable without which that can't be decided.
        """
        task = self._settling.get(name)
        if task is None:
            task = self._settling[name] = asyncio.create_task(self._settle(name), name=f"settle {name}")
            task.add_done_callback(lambda done: self._settled(name, done))
        return await asyncio.shield(task)

    def _settled(self, name: str, task: asyncio.Task[Home]) -> None:
        del self._settling[name]
        if not task.cancelled():
            task.exception()  # the callers have it, and all of them may be gone by now

    async def _settle(self, name: str) -> Home:
        for _ in range(_TRIES):
            queue, said = await self._ask(await self._queue_cache.require(name))
            home = queue.home
            if self._shards.is_usable(home):
                return home
            if home.version and self._shards.get(home.shard) is None and not await self._is_gone(name, home.shard):
                continue  # this server knows it by now
            if home.version == 0 or self._shards.get(home.shard) is None:
                moved = await self._decide(queue, said)
            else:
                first = self._shards.first_of(name).name
                moved = await self._move(queue, first, said.get(home.shard))
            if moved is not None:
                self._note(queue._replace(home=moved))
        raise ShardRefused(
            f"Servers keep deciding upon the home of queue {name}; nothing was stored", retry_after_ms=1000
        )

    async def _ask(self, queue: Queue) -> tuple[Queue, Mapping[str, Home]]:
        """The home according to all reachable shards together, and the answer of each of them, once it has been told. A queue that was
        deleted stays deleted."""
        told: Queue | None = None
        said: dict[str, Home] = {}
        while told is None or any(queue.home.newer_than(home) for home in said.values()):
            told = queue
            shards = self._shards.in_reach()
            answers = await asyncio.gather(
                *(shard.store.submit(MergeQueues([told], self._clock.now_ms())) for shard in shards),
                return_exceptions=True,
            )
            rows: dict[str, Queue] = {}
            for shard, answer in zip(shards, answers, strict=True):
                if isinstance(answer, PinLaterError):
                    continue
                if isinstance(answer, BaseException):
                    raise answer
                [rows[shard.name]] = answer
            if not rows or any(row.life.over for row in rows.values()):
                raise QueueNotFound.of(queue.name)
            queue = reduce(Queue.newest, rows.values(), told)
            said = {shard: row.home for shard, row in rows.items()}
        self._note(queue)
        return queue, said

    def _note(self, queue: Queue) -> None:
        known = self._queue_cache.queues.get(queue.name)
        if known is None or known.life.deleted_ms > queue.life.deleted_ms:
            return  # the home of a queue that was deleted since the shards were asked
        if queue.home.newer_than(known.home):
            self._queue_cache.add(known._replace(home=queue.home))
            self._queue_cache.changed_here()

    async def _is_gone(self, queue: str, shard: str) -> bool:
        """Whether a shard is marked as lost. Raises `EnqueueRejected` for one that this server does not know: a shard that was removed
        properly is neither a home nor a former one, so other servers may use this one."""
        shards = self._shards
        if shards.get(shard) is None and shards.reader is not None:
            await shards.reader.look()  # its file may name the shard by now
        if shards.get(shard) is not None:
            return False
        if shards.gone.get(shard) != math.inf and not all(each.trusted for each in shards):
            if shard not in self._missing:
                self._missing.add(shard)
                logger.warning(
                    "jobs with ordering keys wait: they, or those before them, are on a shard that the shard file does not name; "
                    "if it is lost, mark it there as lost",
                    extra={"queue": queue, "shard": shard},
                )
            raise EnqueueRejected(
                f"Jobs with ordering keys of this queue are on shard {shard}, which the shard file of this server does not name; "
                "if the shard is lost, mark it there as lost",
                retry_after_ms=1000,
            )
        return True

    async def _move(self, queue: Queue, first: str, known: Home | None) -> Home | None:
        """Lets the home close itself, and name the next one, `first`; None if it had changed by then."""
        former = self._shards.get(queue.home.shard)
        if known is None or former is None:
            raise shard_unreachable(queue.home.shard)
        home = Home(first, queue.home.version + 1, former.name, lift_due=known.lift_due)
        moved = await self._change(former, queue.name, known, home)
        if moved is not None:
            logger.info("jobs with ordering keys go to another shard", extra=_about(queue.name, home))
        return moved

    async def _change(self, shard: ShardLanes, queue: str, known: Home, home: Home) -> Home | None:
        """Changes the home that a shard stores, if that is the known one; None if it is not."""
        said = raise_error(await shard.store.submit(MoveHome(queue, known, home)))
        return home if said == home else None

    async def _decide(self, queue: Queue, said: Mapping[str, Home]) -> Home | None:
        """Lets all shards agree on the next home without the last one. None: the stored homes had changed by then."""
        shards = sorted(self._shards, key=lambda shard: shard.name)
        for shard in shards:
            if shard.name not in said:
                raise adding(
                    shard_unreachable(shard.name),
                    f", and all shards have to agree where the jobs with ordering keys of queue {queue.name} go",
                )
        claims = [claim for shard in shards if (claim := said[shard.name].claim) and claim not in self._shards.gone]
        claim = claims[-1] if claims else self._shards.first_of(queue.name).name
        chosen = self._shards.get(claim)
        if chosen is None:
            await self._is_gone(queue.name, claim)  # raises, unless the map names it by now
            return None
        for shard in shards:
            known = said[shard.name]
            if await self._change(shard, queue.name, known, known._replace(claim=claim)) is None:
                return None
        before = queue.home
        if (
            not before.version
        ):  # at the shard alone, so that a server that stood still meanwhile overrides no later home
            first = Home(claim, max(1, self._clock.now_ms()))
            return await self._change(chosen, queue.name, said[claim]._replace(claim=claim), first)
        _say_lost(queue.name, before.shard)
        return Home(claim, before.version + 1, before.former if before.waits and before.former != claim else "")

    # --- former homes -----------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Moves homes that have to move, and ends waits for former ones, of the queues that this server owns there."""
        self._missing -= {shard.name for shard in self._shards}
        lifts = [partial(self._lift_if_due, *place, home) for place, home in self._queue_cache.lifts_due.items()]
        looks = [
            partial(self._look, name, home)
            for name, home in self._queue_cache.homes.items()
            if home.former or not self._shards.is_usable(home)
        ]
        todo = [*lifts, *looks]
        for start in range(0, len(todo), _QUEUES_AT_ONCE):
            results = await asyncio.gather(
                *(do() for do in todo[start : start + _QUEUES_AT_ONCE]), return_exceptions=True
            )
            for result in results:
                if isinstance(result, PinLaterError):
                    logger.debug("the home of a queue stays as it is: %s", result.message)
                elif isinstance(result, BaseException):
                    raise result

    async def _look(self, name: str, home: Home) -> None:
        queue, shard = self._queue_cache.queues.get(name), self._shards.get(home.shard)
        if queue is None:
            return
        if not self._shards.is_usable(home):
            if self._shards.first_of(name).owns(name):
                await self.settle(name)
        elif home.former and shard is not None and shard.owns(name):
            await self._end_wait(queue, shard)

    async def _lift_if_due(self, shard_name: str, queue: str, said: Home) -> None:
        """Makes the first jobs that wait on a shard for nothing ready, because it is back from an earlier time (`Home.lift_due`)."""
        shard = self._shards.get(shard_name)
        if shard is not None and shard.owns(queue):
            await self._lift(shard, queue)
            await self._change(shard, queue, said, said._replace(lift_due=False))
            self._queue_cache.lifts_due.pop((shard_name, queue), None)

    async def _lift(self, shard: ShardLanes, queue: str) -> None:
        after: str | None = ""
        while after is not None:
            after = raise_error(await shard.store.submit(LiftBarrier(queue, after, _KEYS_A_CALL, self._clock.now_ms())))

    async def _end_wait(self, queue: Queue, shard: ShardLanes) -> None:
        """Makes the first jobs on the home ready, if the former one has none left."""
        counted = queue.home
        if counted.waits and await self.before(queue, limit=1):
            return
        queue, said = await self._ask(queue)
        home: Home | None = said.get(shard.name)
        if home is None or home.told != counted.told:
            return  # it waits for another shard by now, or no longer
        if home.waits:
            if self._shards.get(home.former) is None:
                _say_lost(queue.name, home.former)
            lifted = Home(home.shard, home.version + 1, home.former, lifted=True)
            home = await self._change(shard, queue.name, home, lifted)
        if home is not None:
            await self._lift(shard, queue.name)
            home = await self._change(shard, queue.name, home, Home(home.shard, home.version + 1))
        if home is not None:
            self._note(queue._replace(home=home))
            logger.info(
                "jobs with ordering keys no longer wait for those on their former shard", extra=_about(queue.name, home)
            )

    async def before(self, queue: Queue, limit: int) -> int:
        """How many jobs on the former home those on the home wait for; counted no further than `limit`. Raises if that can't be
        determined."""
        former = queue.home.former
        if not queue.home.waits:
            return 0
        if await self._is_gone(queue.name, former):
            return 0
        shard = self._shards.get(former)
        if shard is None or not shard.healthy:
            raise shard_unreachable(former)
        return await shard.store.submit(CountOrdered(queue.name, limit))


def _say_lost(queue: str, shard: str) -> None:
    logger.warning(
        "jobs with ordering keys may be out of order: those on a lost shard no longer come first",
        extra={"queue": queue, "shard": shard},
    )


def _about(queue: str, home: Home) -> dict[str, str]:
    return {"queue": queue, "home": home.shard, "former": home.former}
