"""Where a unique key may be besides its home, the first partition of its queue.

The home of a queue follows from the shards that accept enqueues, so a change of the map moves the homes of some queues, while the rows
that were made before stay where they are. Until those have gone, an enqueue with a unique key first asks each other shard that has unique
keys of its queue. The time of the last change of the map is stored on the shards themselves: a server that starts must not forget it. A
minute later no server uses an older map: then the queues with old keys on a shard are listed, and the shard is asked only for these.

Servers of the previous version place each key by itself (`by_queue`). While one of them is in the cluster, all others do the same, and ask
the first partition, too.

Weakness: while servers still use different maps (they read the shard file every ten seconds), two of them may take the same key on two
shards. The same is possible until all have learned of the first server of the previous version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence, Set
from typing import Any, NamedTuple, TypeVar

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError
from pinlater.domain.ids import made_at_ms
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import ListUniqueQueues, NoteMap
from pinlater.server.storage.values import UniqueHeld

T = TypeVar("T")
logger = logging.getLogger(__name__)

# How long after a change of the map other servers may still use the old one, including the difference of clocks.
_MARGIN_MS = 60_000
_LEARN_AGAIN_MS = 60_000
_QUEUES_A_TURN = 500


class Held(NamedTuple):
    """The latest answer of a shard.

    `queues`: those with unique keys there that may have another home. `until_ms`: it covers keys of jobs that were made until then.
    `again_ms`: when to ask next.
    """

    queues: Set[str]
    until_ms: int
    again_ms: int


class Epoch:
    """The unique enqueues that use one map."""

    def __init__(self) -> None:
        self.under_way = 0
        self.over = asyncio.Event()
        self.over.set()


class UniquePlaces:
    """What is known about old unique keys. Until enough is known, every other shard may have some.

    `refused_because_of`: the unreachable shards for which all unique keys are refused; empty while keys are accepted.
    """

    def __init__(self, clock: Clock, first_of: Callable[[str], str]) -> None:
        """`first_of(queue)`: the name of its first partition; '' if there is none."""
        self._clock = clock
        self._first_of = first_of
        self._since_ms: dict[str, int] = {}
        self._changed_ms = 0  # when this server last changed its map, after it had begun with one
        self._has_begun = False
        self._held: dict[str, Held] = {}
        self._epoch = Epoch()
        self._former: list[Epoch] = []
        self.by_queue = True
        self.refused_because_of: frozenset[str] = frozenset()
        self.settled = False

    # --- asking -----------------------------------------------------------------------------------------------------------

    def to_ask(self, queue: str, home: str, shards: Iterable[ShardLanes]) -> Sequence[ShardLanes]:
        """Returns the shards to ask for keys of this queue before they are taken at their home."""
        if self.settled:
            return ()
        return [shard for shard in shards if shard.name != home and self._may_hold(shard.name, queue)]

    def _may_hold(self, shard: str, queue: str) -> bool:
        if not self._knows(shard) or queue in self._held[shard].queues:
            return True
        # Another server may have learned sooner that it is the home again.
        return not self.by_queue and shard == self._first_of(queue)

    def _knows(self, shard: str) -> bool:
        """Returns whether the shard's keys are known: not if it was asked too early, since servers with an older map might have stored
        keys there since.
        """
        held = self._held.get(shard)
        return held is not None and held.until_ms >= self._until_ms

    @property
    def _until_ms(self) -> int:
        """The time from which no server uses an older map, according to the shards, which know since when the map has been the same. They
        may not know a map that this server used only briefly.
        """
        return max([self._changed_ms, *self._since_ms.values()]) + _MARGIN_MS

    # --- learning ---------------------------------------------------------------------------------------------------------

    def map_changed(self) -> None:
        """Forgets everything, and waits for enqueues that still use the old map."""
        self.settled = False
        if self._has_begun:
            self._changed_ms = self._clock.now_ms()
        self._since_ms = {}
        self._held = {}
        if self._epoch.under_way:
            self._former.append(self._epoch)
        self._epoch = Epoch()

    def go_by(self, *, queue: bool) -> None:
        """Whether the home of a key follows from its queue or, as in servers of the previous version, from the key alone."""
        if queue != self.by_queue:
            self.by_queue = queue
            self.map_changed()

    async def learn(self, shards: Sequence[ShardLanes]) -> None:
        """Asks the reachable shards which keys they have. Those that fail stay unknown. Call it every few seconds; it asks when it is
        time. A single shard gets the map, too, in case others come.
        """
        if not self.settled:
            await self._learn(shards)
        self._log_refusals(shards)

    def _log_refusals(self, shards: Sequence[ShardLanes]) -> None:
        """Warns once that all unique keys are refused because a shard is unreachable whose keys are unknown, and says when that ends."""
        unknown = [shard.name for shard in shards if not shard.healthy and not self._knows(shard.name)]
        because_of = frozenset(unknown) if len(shards) > 1 and not self.settled else frozenset()
        if because_of and not self.refused_because_of:
            logger.warning(
                "all jobs with a unique key are refused: a shard is unreachable whose keys this server does not know, and may hold "
                "any of them; a server learns them at its start, or a minute after the first start on new shards or a change of the map",
                extra={"shards": sorted(because_of)},
            )
        elif self.refused_because_of and not because_of:
            logger.info("jobs with a unique key are accepted again")
        self.refused_because_of = because_of

    async def _learn(self, shards: Sequence[ShardLanes]) -> None:
        epoch = self._epoch
        homes = sorted(shard.name for shard in shards if shard.takes_enqueues)
        shard_map = "\n".join([*homes, "", "by queue"] if self.by_queue else homes)
        now_ms = self._clock.now_ms()
        wanted = [shard for shard in shards if shard.healthy and self._is_time(shard.name, now_ms)]
        if len(shards) == 1 and shards[0].trusted:
            wanted = []
        since_ms = await _of_each(wanted, lambda shard: shard.store.submit(NoteMap(shard_map, now_ms)))
        if self._epoch is not epoch:
            return  # the map changed meanwhile
        self._since_ms.update(since_ms)
        self._has_begun = True
        until_ms = self._until_ms
        if now_ms >= until_ms:  # else more may come
            answered = [shard for shard in wanted if shard.name in since_ms]
            found = await _of_each(answered, lambda shard: shard.store.submit(ListUniqueQueues()))
            again_ms = self._clock.now_ms() + _LEARN_AGAIN_MS
            held = {
                name: Held(await self._elsewhere(name, rows, until_ms), until_ms, again_ms)
                for name, rows in found.items()
            }
            if self._epoch is not epoch:
                return
            self._held.update(held)
        self.settled = len(shards) == 1 or (
            self.by_queue and all(self._knows(shard.name) and not self._held[shard.name].queues for shard in shards)
        )

    async def _elsewhere(self, shard: str, rows: Sequence[UniqueHeld], until_ms: int) -> Set[str]:
        """Finds the queues whose keys are partly on this shard although their home is elsewhere. Works in pieces, so that other tasks
        run.
        """
        found: set[str] = set()
        for start in range(0, len(rows), _QUEUES_A_TURN):
            found.update(
                row.queue
                for row in rows[start : start + _QUEUES_A_TURN]
                if made_at_ms(row.oldest_id) <= until_ms and not self._is_home(shard, row.queue)
            )
            await asyncio.sleep(0)
        return found

    def _is_home(self, shard: str, queue: str) -> bool:
        return self.by_queue and self._first_of(queue) == shard

    def _is_time(self, shard: str, now_ms: int) -> bool:
        if shard not in self._since_ms:
            return True
        if not self._knows(shard):
            return now_ms >= self._until_ms
        return now_ms >= self._held[shard].again_ms

    # --- enqueues under way -----------------------------------------------------------------------------------------------

    async def begin(self) -> Epoch:
        """Begins a unique enqueue, before it chooses its shards: enqueues with a former map are finished then. Call `end` after it."""
        while self._former:
            former = self._former[0]
            await former.over.wait()
            if self._former and self._former[0] is former:
                del self._former[0]
        epoch = self._epoch
        epoch.under_way += 1
        epoch.over.clear()
        return epoch

    def end(self, epoch: Epoch) -> None:
        """Ends one enqueue of that epoch."""
        epoch.under_way -= 1
        if not epoch.under_way:
            epoch.over.set()


async def _of_each(shards: Sequence[ShardLanes], ask: Callable[[ShardLanes], Coroutine[Any, Any, T]]) -> dict[str, T]:
    """Returns the answer of each shard, by name, except for shards that can't answer."""
    answers = await asyncio.gather(*map(ask, shards), return_exceptions=True)
    found: dict[str, T] = {}
    for shard, answer in zip(shards, answers, strict=True):
        if not isinstance(answer, BaseException):
            found[shard.name] = answer
        elif not isinstance(answer, PinLaterError):
            raise answer
    return found
