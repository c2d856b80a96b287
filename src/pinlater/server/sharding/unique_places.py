"""Where a unique key may be besides its home.

A key's home follows from the shards that take enqueues, so a change of the map moves some keys' homes, while the rows that were made
before stay where they are. Until those have gone, an enqueue with such a key asks the shard that holds it first. Since when the map is
as it is, is kept on the shards themselves: a server that starts must not forget it. A minute later no server goes by an older map: the
old keys on a shard are listed then, and those that have another home are all that it needs to be asked for.

Weakness: while servers still go by different maps (they look at the shard file every ten seconds) two of them may take one key on two
shards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeVar

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError
from pinlater.server.sharding.misplaced_keys import KeyScan
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import NoteMap

T = TypeVar("T")
logger = logging.getLogger(__name__)

# So long after a change of the map other servers may still go by the old one, and clocks differ.
_MARGIN_MS = 60_000
_LEARN_AGAIN_MS = 60_000
# A scan of many keys comes less often, so that at most this part of the time goes into scans of one shard.
_SCANNING_PART = 1 / 50


class Held(NamedTuple):
    """What a shard said when it was asked last.

    `misplaced`: by queue, its unique keys there that have another home; None for a queue that has too many of them. `until_ms`:
    those of jobs that were made until then. `again_ms`: when to ask next.
    """

    misplaced: Mapping[str, Set[str] | None]
    until_ms: int
    again_ms: int


class Epoch:
    """Unique enqueues that went by one map."""

    def __init__(self) -> None:
        self.under_way = 0
        self.over = asyncio.Event()
        self.over.set()


class UniquePlaces:
    """What is known of old unique keys. Before enough is known every other shard may hold some.

    `refused_because_of`: the unreachable shards for which all unique keys are refused; empty while keys are accepted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[str, int] = {}
        self._held: dict[str, Held] = {}
        self._scans: dict[str, KeyScan] = {}  # those that have not read all yet
        self._epoch = Epoch()
        self._former: list[Epoch] = []
        self.refused_because_of: frozenset[str] = frozenset()
        self.settled = False

    # --- asking -----------------------------------------------------------------------------------------------------------

    def to_ask(self, queue: str, key: str, home: ShardLanes, shards: Iterable[ShardLanes]) -> Sequence[ShardLanes]:
        """The shards to ask for a key of this queue before it is taken at its home."""
        if self.settled:
            return ()
        return [shard for shard in shards if shard is not home and self._may_hold(shard.name, queue, key)]

    def _may_hold(self, shard: str, queue: str, key: str) -> bool:
        if not self._knows(shard):
            return True
        keys = self._held[shard].misplaced.get(queue, ())
        return keys is None or key in keys

    def _knows(self, shard: str) -> bool:
        """Not if the shard was asked too early: servers that went by an older map might have put keys there since."""
        held = self._held.get(shard)
        return held is not None and held.until_ms >= self._until_ms

    @property
    def _until_ms(self) -> int:
        """No server goes by an older map any more, as far as the shards have said since when the map is as it is."""
        return max(self._since_ms.values(), default=0) + _MARGIN_MS

    # --- learning ---------------------------------------------------------------------------------------------------------

    def map_changed(self) -> None:
        """Nothing is known any more; enqueues that still go by the old map are waited for."""
        self.settled = False
        self._since_ms = {}
        self._held = {}
        self._scans = {}
        if self._epoch.under_way:
            self._former.append(self._epoch)
        self._epoch = Epoch()

    async def learn(self, shards: Sequence[ShardLanes]) -> None:
        """Asks the shards in reach what they hold; those that fail stay unknown. To be called every few seconds: it asks when it is time.

        Reads keys for about a second; the next calls read the rest. One shard alone is told the map all the same, for when others come.
        """
        if not self.settled:
            await self._learn(shards)
        self._log_refusals(shards)

    def _log_refusals(self, shards: Sequence[ShardLanes]) -> None:
        """Warns once that all unique keys are refused, since a shard is unreachable whose keys are unknown, and says when that ends."""
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
        now_ms = self._clock.now_ms()
        wanted = [shard for shard in shards if shard.healthy and self._is_time(shard.name, now_ms)]
        if len(shards) == 1 and shards[0].trusted:
            wanted = []
        since_ms = await _of_each(wanted, lambda shard: shard.store.submit(NoteMap("\n".join(homes), now_ms)))
        if self._epoch is not epoch:
            return  # the map changed meanwhile
        self._since_ms.update(since_ms)
        until_ms = self._until_ms
        if now_ms >= until_ms:  # else more may come
            answered = [shard for shard in wanted if shard.name in since_ms]
            scans = {shard.name: self._scan(shard, homes, until_ms) for shard in answered}
            ended = await _of_each(answered, lambda shard: scans[shard.name].go_on())
            if self._epoch is not epoch:
                return
            for name, is_complete in ended.items():
                if is_complete:
                    self._held[name] = self._result(scans[name])
                else:
                    self._scans[name] = scans[name]
        self.settled = len(shards) == 1 or all(
            self._knows(shard.name) and not self._held[shard.name].misplaced for shard in shards
        )

    def _is_time(self, shard: str, now_ms: int) -> bool:
        if shard not in self._since_ms:
            return True
        if not self._knows(shard):
            return now_ms >= self._until_ms
        return now_ms >= self._held[shard].again_ms

    def _scan(self, shard: ShardLanes, homes: Sequence[str], until_ms: int) -> KeyScan:
        """The scan that was begun, to go on with, or a new one. After an error it begins again."""
        begun = self._scans.pop(shard.name, None)
        if begun is not None and begun.shard is shard and begun.until_ms >= until_ms:
            return begun
        return KeyScan(shard, homes, until_ms, self._clock)

    def _result(self, scan: KeyScan) -> Held:
        pause_ms = max(_LEARN_AGAIN_MS, round(1000 * scan.spent_s / _SCANNING_PART))
        return Held(scan.misplaced, scan.until_ms, self._clock.now_ms() + pause_ms)

    # --- enqueues under way -----------------------------------------------------------------------------------------------

    async def begin(self) -> Epoch:
        """Before a unique enqueue chooses its shards: those by a former map are through then. To be ended with `end`."""
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
    """What each shard answers, by name; without those that can't."""
    answers = await asyncio.gather(*map(ask, shards), return_exceptions=True)
    found: dict[str, T] = {}
    for shard, answer in zip(shards, answers, strict=True):
        if not isinstance(answer, BaseException):
            found[shard.name] = answer
        elif not isinstance(answer, PinLaterError):
            raise answer
    return found
