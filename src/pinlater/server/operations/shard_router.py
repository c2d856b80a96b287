"""An enqueue on several shards: which of them gets which jobs, where jobs go when one fails, and keys that are already known.

- Plain jobs go together to a partition of their queue (chosen by `Enqueue`); if it fails in a way that has surely stored nothing, to
  another shard.
- A request with a key goes to the partition where the key leads. The router first looks for an earlier request with this key, on every
  shard that can have it.
- A request with unique keys goes to the home of these keys and nowhere else, after other shards that may have the keys from before a
  change of the map have been asked. If another shard has one of them, and while servers of the previous version are in the cluster (whose
  keys have homes of their own), the request is stored in pieces: if it has a request key, each under a key of its own, so that a repeat
  finds each wherever it is, and whatever else has been stored.
- A request with ordering keys is stored whole on the stored home of its queue (`order_homes.py`), and nowhere else.

A request whose outcome can't be known is refused as retryable; nothing is stored twice. Weakness, also named on the guarantees page: a
repeat that reaches another server while the first attempt is still under way on this one does not find it yet. If both servers store it
on the same shard, the store recognises it; if this server has skipped that shard (full, stalled, unreachable) and the other one does not,
both store it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.errors import (
    Draining,
    EnqueueRejected,
    OrderElsewhere,
    OutcomeUnknown,
    PinLaterError,
    QueueFull,
    QueueNotFound,
    RequestTooOld,
    ShardConnectionFailed,
    StoreFull,
    TooManyWaiting,
    Unavailable,
    adding,
)
from pinlater.domain.queue import Queue
from pinlater.domain.wording import counted
from pinlater.server.operations.order_homes import OrderHomes
from pinlater.server.operations.unsettled_requests import UnsettledRequests
from pinlater.server.sharding.guarded import shard_unreachable
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import FindRequests, FindUnique
from pinlater.server.storage.values import Inserted, InsertRequest, KeyHolder, RequestRef, UniqueRef
from pinlater.wire.generated.structs import Enqueued, Job

_HOMES_TRIED = 5
_KEY_SHOWN = 64  # characters of a unique key in an error


class KeyedRequest(NamedTuple):
    """A request's key, its fingerprint, whether it was sent before, and the time after which no shard may begin it."""

    key: str
    fingerprint: bytes
    repeat: bool
    begin_by_ms: int


Insert = Callable[[ShardLanes, Queue, Sequence[Job], int, str | None, KeyedRequest | None], Awaitable[Inserted]]
Finish = Callable[[Queue, Sequence[Job], str, Inserted], Enqueued]


class RequestPart(NamedTuple):
    """Jobs of a request that are stored together, by their positions. `unique`: one of their keys, `home`: the name of its home."""

    indices: Sequence[int]
    key: str | None = None
    unique: str | None = None
    home: str | None = None


class StoredPart(NamedTuple):
    """The outcome of a part, and its shard."""

    part: RequestPart
    shard: str
    inserted: Inserted


class ShardRouter:
    """Enqueues over several shards. `insert` and `finish` execute it on one shard."""

    def __init__(self, shards: Shards, homes: OrderHomes, clock: Clock, insert: Insert, finish: Finish) -> None:
        self._shards = shards
        self._homes = homes
        self._clock = clock
        self._insert = insert
        self._finish = finish
        # Requests under way; a repeat that waits for the end of one has put a future there.
        self._keyed: dict[tuple[str, str], asyncio.Future[None] | None] = {}
        self._unsettled = UnsettledRequests(clock.monotonic)

    def enqueue(
        self, queue: Queue, jobs: Sequence[Job], now_ms: int, request: KeyedRequest | None, *, have_home: bool
    ) -> Awaitable[Enqueued]:
        """Does the same as `Enqueue.enqueue`, for checked jobs of which some have unique keys or ordering keys (`have_home`), or a
        request with a key."""
        if request is None:
            return self._enqueue_at_home(queue, jobs, now_ms, None, [])
        return self._one_at_a_time(queue, jobs, now_ms, request, have_home=have_home)

    async def elsewhere(
        self, queue: Queue, jobs: Sequence[Job], now_ms: int, tried: ShardLanes, failure: PinLaterError
    ) -> Enqueued:
        """Stores plain jobs that `tried` could not take on another shard, if it has surely stored nothing. Otherwise raises its failure."""
        if not has_stored_nothing(failure):
            raise failure
        shard, inserted = await self._anywhere(queue, jobs, now_ms, None, None, tried=tried, failure=failure)
        return self._finish(queue, jobs, shard, inserted)

    # --- request keys -----------------------------------------------------------------------------------------------------

    async def _one_at_a_time(
        self, queue: Queue, jobs: Sequence[Job], now_ms: int, request: KeyedRequest, *, have_home: bool
    ) -> Enqueued:
        """A repeat that arrives during the first waits for it."""
        name = (queue.name, request.key)
        while name in self._keyed:
            await self._end_of(name)
        self._keyed[name] = None
        try:
            found = await self._find(queue, jobs, request) if request.repeat else []
            if sum([len(stored.part.indices) for stored in found]) == len(jobs):
                return self._answer(queue, jobs, found)
            if have_home:
                return await self._enqueue_at_home(queue, jobs, now_ms, request, found)
            shard, inserted = await self._anywhere(queue, jobs, now_ms, request.key, request)
            return self._finish(queue, jobs, shard, inserted)
        finally:
            awaited = self._keyed.pop(name)
            if awaited is not None:
                awaited.set_result(None)

    async def _end_of(self, name: tuple[str, str]) -> None:
        """Waits until a request under way has its answer, or none."""
        end = self._keyed[name] = self._keyed[name] or asyncio.get_running_loop().create_future()
        await asyncio.wait([end])

    async def _find(self, queue: Queue, jobs: Sequence[Job], request: KeyedRequest) -> list[StoredPart]:
        """The stored outcome of an earlier request with this key, from all shards that can have it. Raises if that can't be determined,
        and `RequestKeyConflict`."""
        if self._shards.reader is not None and not await self._shards.reader.look():
            raise _cannot_say("whether this request was stored already", _file_not_read())  # on a shard that is new
        whole = RequestPart(range(len(jobs)), request.key)
        pieces = _pieces(jobs, request.key)
        wanted = [whole, *(part for part in pieces if part.key != whole.key)]
        refs = [RequestRef(queue.name, part.key or "", request.fingerprint) for part in wanted]
        shards = self._shards.that_may_hold_requests()
        late: set[str] = set()

        async def look(shard: ShardLanes) -> Sequence[Any]:
            if await self._has_unended(
                shard, queue
            ):  # before it is asked: what it finds now is not all that it may still do
                late.add(shard.name)
            return await self._ask(shard, lambda shard: shard.store.submit(FindRequests(refs, self._clock.now_ms())))

        answers = await asyncio.gather(*map(look, shards), return_exceptions=True)
        found: dict[str | None, StoredPart] = {}
        failure: Unavailable | None = None
        for shard, answer in zip(shards, answers, strict=True):
            if shard.name in late:
                failure = _unended(shard)
            if isinstance(answer, Unavailable):
                failure = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                for part, known in zip(wanted, answer, strict=True):
                    if isinstance(known, PinLaterError):
                        raise known
                    if known is not None:
                        found[part.key] = StoredPart(part, shard.name, known)
        if whole.key in found:
            return [found[whole.key]]
        if failure is not None and len(found) < len(pieces):
            raise _cannot_say("whether this request was stored already", failure)
        return list(found.values())

    async def _has_unended(self, shard: ShardLanes, queue: Queue) -> bool:
        """Whether an insert may still be executed there: one of unknown outcome, or one that another server sent and that is under way.
        An empty insert that is executed behind them proves that it may not."""
        lane = shard.insert
        if (lane.outcome_unknown or lane.length) and shard.healthy and not lane.has_late_calls:
            try:
                await lane.submit(InsertRequest(queue.name, []))
            except (ShardConnectionFailed, TooManyWaiting, Draining):
                return True
            except PinLaterError:  # executed, and refused
                pass
        return lane.outcome_unknown or lane.has_late_calls

    async def _ask(
        self, shard: ShardLanes, call: Callable[[ShardLanes], Coroutine[Any, Any, Sequence[Any]]]
    ) -> Sequence[Any]:
        if not shard.healthy:
            raise shard_unreachable(shard.name)
        return await call(shard)

    # --- unique keys ------------------------------------------------------------------------------------------------------

    async def _enqueue_at_home(
        self, queue: Queue, jobs: Sequence[Job], now_ms: int, request: KeyedRequest | None, found: list[StoredPart]
    ) -> Enqueued:
        """Stores the jobs that are not `found`. If the shard is no longer the one for their ordering keys, it has stored nothing."""
        for _ in range(_HOMES_TRIED):
            try:
                return await self._enqueue_there(queue, jobs, now_ms, request, found)
            except OrderElsewhere:
                queue = queue._replace(home=await self._homes.settle(queue.name))
        return await self._enqueue_there(queue, jobs, now_ms, request, found)

    async def _enqueue_there(
        self, queue: Queue, jobs: Sequence[Job], now_ms: int, request: KeyedRequest | None, found: list[StoredPart]
    ) -> Enqueued:
        """From here on the request uses the map as it is now, whatever happens to it."""
        request_key = None if request is None else request.key
        known = {index for stored in found for index in stored.part.indices}
        order_home = await self._home_of_order(queue, jobs)
        if order_home is not None and not any(job.unique_key for job in jobs):
            parts = _whole(jobs, request_key, order_home, known, {})
            return await self._store_all(queue, jobs, now_ms, parts, request, found)
        places = self._shards.unique
        epoch = await places.begin()
        try:
            by_queue = places.by_queue
            homes = {key: self._shards.home_of(queue.name, key).name for job in jobs if (key := job.unique_key)}
            held = await self._held_elsewhere(
                queue,
                {index: job.unique_key for index, job in enumerate(jobs) if job.unique_key and index not in known},
                homes,
            )
            if order_home is not None:
                parts = _whole(jobs, request_key, order_home, known, held)
            elif found or held or not by_queue:
                known |= held.keys()
                pieces = [
                    RequestPart(
                        [index for index in piece.indices if index not in known],
                        piece.key,
                        piece.unique,
                        homes.get(piece.unique or ""),
                    )
                    for piece in _pieces(jobs, request_key)
                ]
                parts = [piece for piece in pieces if piece.indices]
            else:
                unique, home = next(iter(homes.items()))
                parts = [RequestPart(range(len(jobs)), request_key, unique, home)]
            found = [*found, *(_held(index, place) for index, place in held.items())]
            return await self._store_all(queue, jobs, now_ms, parts, request, found)
        finally:
            places.end(epoch)

    async def _home_of_order(self, queue: Queue, jobs: Sequence[Job]) -> str | None:
        """The shard of jobs with ordering keys; None if there are none. Raises as `OrderHomes.settle`."""
        if all(job.ordering_key is None for job in jobs):
            return None
        if not self._shards.unique.by_queue:
            raise EnqueueRejected(
                "Jobs with an ordering key are refused while a server of the version before is in the cluster, which places them elsewhere"
            )
        return await self._homes.shard_of(queue)

    async def _held_elsewhere(
        self, queue: Queue, key_of: Mapping[int, str], homes: Mapping[str, str]
    ) -> dict[int, tuple[str, KeyHolder]]:
        """Jobs whose unique key (`key_of`, by position) is taken on another shard than its home: position → (shard, holder)."""
        if self._shards.unique.settled:
            return {}
        wanted: dict[str, list[int]] = {}
        for index, key in key_of.items():
            wanted.setdefault(key, []).append(index)
        keys_by_shard: dict[str, tuple[ShardLanes, list[str]]] = {}
        for key in wanted:
            for shard in self._shards.unique.to_ask(queue.name, homes[key], self._shards):
                keys_by_shard.setdefault(shard.name, (shard, []))[1].append(key)
        asked = list(keys_by_shard.values())
        for shard, keys in asked:
            if await self._has_unended(shard, queue):
                raise _cannot_say(_whether_taken(keys), _unended(shard))
        answers = await asyncio.gather(
            *(self._ask(shard, self._look_for(queue, keys)) for shard, keys in asked), return_exceptions=True
        )
        held: dict[int, tuple[str, KeyHolder]] = {}
        for (shard, keys), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Unavailable):
                raise _cannot_say(_whether_taken(keys), answer)
            if isinstance(answer, BaseException):
                raise answer
            for key, job in zip(keys, answer, strict=True):
                if job is not None:
                    held.update((index, (shard.name, job)) for index in wanted[key])
        return held

    def _look_for(
        self, queue: Queue, keys: Sequence[str]
    ) -> Callable[[ShardLanes], Coroutine[Any, Any, Sequence[KeyHolder | None]]]:
        refs = [UniqueRef(queue.name, key) for key in keys]
        return lambda shard: shard.store.submit(FindUnique(refs, self._clock.now_ms()))

    # --- storing ----------------------------------------------------------------------------------------------------------

    async def _store_all(
        self,
        queue: Queue,
        jobs: Sequence[Job],
        now_ms: int,
        parts: Sequence[RequestPart],
        request: KeyedRequest | None,
        found: list[StoredPart],
    ) -> Enqueued:
        """Stores the parts, all at once. If one fails, the error names which of the request's jobs are stored."""
        if len(parts) == 1 and not found:
            return self._answer(queue, jobs, [await self._store(queue, jobs, now_ms, parts[0], request)])
        results = await asyncio.gather(
            *(self._store(queue, jobs, now_ms, part, request) for part in parts), return_exceptions=True
        )
        stored = [*found, *(result for result in results if isinstance(result, StoredPart))]
        for result in results:
            if isinstance(result, PinLaterError):
                indices = sorted(index for one in stored for index in one.part.indices)
                if not indices:
                    raise result
                raise adding(result, f" (stored already: the jobs at {indices})") from result
            if isinstance(result, BaseException):
                raise result
        return self._answer(queue, jobs, stored)

    async def _store(
        self, queue: Queue, jobs: Sequence[Job], now_ms: int, part: RequestPart, request: KeyedRequest | None
    ) -> StoredPart:
        """Stores a part on its home; a part without a home on another shard if the first has surely stored nothing."""
        chosen = jobs if len(part.indices) == len(jobs) else [jobs[index] for index in part.indices]
        if part.home is not None:
            home = self._shards.get(part.home)
            try:
                if home is None or not home.healthy:
                    raise shard_unreachable(part.home)
                inserted = await self._insert(home, queue, chosen, now_ms, part.key, request)
            except RequestTooOld:
                raise
            except (ShardConnectionFailed, StoreFull) as error:
                raise adding(error, f"; only shard {part.home} takes jobs with {_keys_of(chosen)}") from error
            return StoredPart(part, home.name, inserted)
        done = await self._anywhere(queue, chosen, now_ms, part.key, request)
        return StoredPart(part, *done)

    async def _anywhere(
        self,
        queue: Queue,
        jobs: Sequence[Job],
        now_ms: int,
        key: str | None,
        request: KeyedRequest | None,
        *,
        tried: ShardLanes | None = None,
        failure: PinLaterError | None = None,
    ) -> tuple[str, Inserted]:
        """Stores the jobs together on one shard, in the order of `key` if there is one; returns its name, and the result.

        `key`: that of `request`, or of the part of it that these jobs are. `tried`: was tried already, and failed with `failure`.
        """
        shards = self._shards
        sent_to = None if key is None else self._unsettled.shard_of(queue.name, key)
        if key is not None and sent_to is not None:
            shard = self._shards.get(sent_to)
            if shard is None or not shard.healthy:
                raise shard_unreachable(sent_to)
            return sent_to, await self._store_keyed(shard, queue, jobs, now_ms, key, request)
        repeat = request is not None and request.repeat
        names = [] if tried is None else [tried.name]
        while True:
            try:
                shard = (
                    shards.for_enqueue(queue.name, names)
                    if key is None
                    else shards.for_request(queue.name, key, names, repeat=repeat)
                )
            except PinLaterError as error:
                raise failure or error from None
            try:
                if key is None:
                    return shard.name, await self._insert(shard, queue, jobs, now_ms, None, None)
                return shard.name, await self._store_keyed(shard, queue, jobs, now_ms, key, request)
            except PinLaterError as error:
                if not has_stored_nothing(error):
                    raise
                failure = error
                names.append(shard.name)

    async def _store_keyed(
        self,
        shard: ShardLanes,
        queue: Queue,
        jobs: Sequence[Job],
        now_ms: int,
        key: str,
        request: KeyedRequest | None,
    ) -> Inserted:
        """On this shard. An unknown outcome is noted if another server was asked; for the shard's own lanes `_has_unended` tells more."""
        forwarded = shard.lanes_of(queue.name) is not shard
        try:
            inserted = await self._insert(shard, queue, jobs, now_ms, key, request)
        except (OutcomeUnknown, asyncio.CancelledError):
            if forwarded:
                self._unsettled.note(queue.name, key, shard.name)
            raise
        self._unsettled.settle(queue.name, key)
        return inserted

    def _answer(self, queue: Queue, jobs: Sequence[Job], stored: Sequence[StoredPart]) -> Enqueued:
        """The parts' answers in the order of the request."""
        if len(stored) == 1 and len(stored[0].part.indices) == len(jobs):
            return self._finish(queue, jobs, stored[0].shard, stored[0].inserted)
        descriptors = [""] * len(jobs)
        existing: list[int] = []
        for part, shard, inserted in stored:
            answer = self._finish(queue, [jobs[index] for index in part.indices], shard, inserted)
            for index, descriptor in zip(part.indices, answer.descriptors, strict=True):
                descriptors[index] = descriptor
            existing += [part.indices[position] for position in answer.existing or ()]
        return Enqueued(descriptors, sorted(existing) or None)


def has_stored_nothing(error: PinLaterError) -> bool:
    """Whether an insert with this failure may be made on another shard."""
    if isinstance(error, OutcomeUnknown | RequestTooOld):  # too old for every shard
        return False
    return isinstance(error, ShardConnectionFailed | StoreFull | QueueFull | QueueNotFound | TooManyWaiting | Draining)


def _file_not_read() -> ShardConnectionFailed:
    return ShardConnectionFailed("The shard file could not be read again in time")


def _unended(shard: ShardLanes) -> ShardConnectionFailed:
    return ShardConnectionFailed(f"Shard {shard.name} has not ended a call that was given up")


def _cannot_say(what: str, failure: Unavailable) -> ShardConnectionFailed:
    error = ShardConnectionFailed(f"{failure.message}, so that it is unknown {what}", retry_after_ms=1000)
    error.__cause__ = failure
    return error


def _whether_taken(keys: Sequence[str]) -> str:
    return f"whether {_named_keys(keys)} {'is' if len(keys) == 1 else 'are'} taken there"


def _keys_of(jobs: Sequence[Job]) -> str:
    """The unique keys of these jobs, or their ordering keys: the first by its name, the others by their number."""
    ordering_keys = list(dict.fromkeys(job.ordering_key for job in jobs if job.ordering_key))
    if ordering_keys:
        return _named_keys(ordering_keys, "the ordering key")
    return _named_keys(list(dict.fromkeys(job.unique_key for job in jobs if job.unique_key)))


def _named_keys(keys: Sequence[str], kind: str = "the unique key") -> str:
    others = f" and {counted(len(keys) - 1, 'other key')} of the request" if len(keys) > 1 else ""
    return f"{kind} {keys[0][:_KEY_SHOWN]!r}{others}"


def _held(index: int, place: tuple[str, KeyHolder]) -> StoredPart:
    shard, holder = place
    return StoredPart(RequestPart([index]), shard, Inserted([holder.job_id], {0: holder}))


def _whole(
    jobs: Sequence[Job],
    request_key: str | None,
    home: str,
    known: Collection[int],
    held: Mapping[int, tuple[str, KeyHolder]],
) -> list[RequestPart]:
    """Returns the jobs of a request with ordering keys that are not stored yet, as one part.

    `known`, `held`: positions of jobs that are already stored.

    Raises `EnqueueRejected` if a repeat of it could not be recognised.
    """
    if held and request_key is not None:
        position, (shard, _) = min(held.items())
        raise EnqueueRejected(
            f"{_named_keys([jobs[position].unique_key or ''])} is taken on shard {shard}, where the queue was before the shards changed; "
            "a request with ordering keys is stored whole: send that job without a request key"
        )
    left = [index for index in range(len(jobs)) if index not in known and index not in held]
    return [RequestPart(left, request_key, home=home)] if left else []


def _pieces(jobs: Sequence[Job], request_key: str | None) -> list[RequestPart]:
    """A request in pieces: one for the jobs of each unique key, and one for the others; the whole request if that is a single piece.

    With a request key each piece has a key of its own. Its format must not change: a repeat finds what servers of the previous version
    stored.
    """
    groups: dict[str | None, list[int]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(job.unique_key or None, []).append(index)
    if request_key is None or len(groups) == 1:
        return [RequestPart(indices, request_key, unique) for unique, indices in groups.items()]
    return [RequestPart(indices, derived_key(request_key, unique), unique) for unique, indices in groups.items()]


def derived_key(request_key: str, unique: str | None) -> str:
    """The request key of a part. It has 40 characters, and is the same on every server."""
    text = f"{request_key}\0" if unique is None else f"{request_key}\0{unique}\0"
    return f"part:{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=18).hexdigest()}"[:40]
