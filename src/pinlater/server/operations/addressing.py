"""From descriptors to jobs: first parse all of a request's, then find the shard of each."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from pinlater.domain.descriptor import JobDescriptor, parse_descriptor
from pinlater.domain.errors import (
    InvalidArgument,
    NoHealthyShards,
    PinLaterError,
    ShardConnectionFailed,
    Unavailable,
    code_of,
)
from pinlater.domain.ids import made_at_ms
from pinlater.domain.job import Outcome
from pinlater.server.operations.long_lists import ITEMS_A_TURN, in_turns, pairs_in_turns
from pinlater.server.sharding.guarded import shard_unreachable
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.values import Acked, JobKey
from pinlater.server.telemetry.metrics import Metrics
from pinlater.wire.generated.structs import AckResult

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

# A request may name fifty thousand jobs. A shard is asked for this many at a time: no transaction, statement or turn of the loop grows
# with the request, and other requests run in between.
KEYS_A_CALL = 500

_ID_DIGITS_ALWAYS_FIT = 19  # fewer digits than this surely fit into an i64; the parser checks the rest


class OnShard(Struct, frozen=True):
    """The part of a request that lives on one shard: positions in the request, and the jobs named there."""

    shard: ShardLanes
    indices: list[int]
    keys: list[JobKey]


def address(shards: Shards, queue: str | None, descriptors: Sequence[str], most: int) -> list[OnShard]:
    """The named jobs, by shard. Raises `DescriptorInvalid` for the first that can't be parsed, so that nothing happens.

    A descriptor of another queue than `queue` (None: any), or of a shard that isn't ours, names nothing and is left out.
    """
    if len(descriptors) == 1 <= most:  # most requests
        name, shard_name, priority, local_id = parse_descriptor(descriptors[0])
        shard = shards.get(shard_name)
        if shard is None or (queue is not None and name != queue):
            return []
        return [
            OnShard(shard, [0], [tuple.__new__(JobKey, (name, priority, local_id))])
        ]  # faster than calling the class
    addressed = _Addressed(shards, queue, len(descriptors), most)
    addressed.add(descriptors)
    return addressed.parts()


async def address_in_turns(
    shards: Shards, queue: str | None, descriptors: Sequence[str], most: int
) -> Sequence[OnShard]:
    """Does the same as `address`; very many descriptors are processed in slices, one in each turn of the loop."""
    if len(descriptors) <= ITEMS_A_TURN:
        return address(shards, queue, descriptors, most)
    addressed = _Addressed(shards, queue, len(descriptors), most)
    await in_turns(descriptors, addressed.add)
    return addressed.parts()


async def find_jobs(shards: Shards, queue: str | None, descriptors: Sequence[str], most: int) -> Sequence[OnShard]:
    """Does the same as `address_in_turns`. If a shard is not in the map, it first rereads the shard file."""
    parts = await address_in_turns(shards, queue, descriptors, most)
    if shards.reader is None or not await _not_in_map(shards, queue, descriptors, parts):
        return parts
    await shards.reader.look()
    return await address_in_turns(shards, queue, descriptors, most)


async def on_unknown_shards(
    shards: Shards, queue: str | None, descriptors: Sequence[str], parts: Sequence[OnShard]
) -> Mapping[int, ShardConnectionFailed]:
    """The jobs that `parts` lack because they are on shards that this server does not know, by position, with an error that tells so.

    Nothing for shards that no file names, and for jobs from before their shard was gone: these do not exist. The shard in a file may be
    new, or back, and this file the old one. Call it after `find_jobs`, which reads the file.
    """
    named = await _not_in_map(shards, queue, descriptors, parts)
    return {
        index: _unknown(job.shard)
        for index, job in named.items()
        if made_at_ms(job.local_id) > shards.gone.get(job.shard, -math.inf)
    }


async def _not_in_map(
    shards: Shards, queue: str | None, descriptors: Sequence[str], parts: Sequence[OnShard]
) -> Mapping[int, JobDescriptor]:
    """By position, the jobs that `parts` lack because of their shards. Nothing if no file names the shards."""
    if shards.reader is None or covers(parts, len(descriptors)):
        return {}

    def look(some: Sequence[str]) -> list[JobDescriptor | None]:
        named = map(parse_descriptor, some)
        return [None if shards.get(one.shard) or queue not in (None, one.queue) else one for one in named]

    jobs = await in_turns(descriptors, look)
    return {index: job for index, job in enumerate(jobs) if job is not None}


def covers(parts: Sequence[OnShard], count: int) -> bool:
    """Whether none of the `count` jobs of a request was left out."""
    for part in parts:
        count -= len(part.keys)
    return count == 0


def check_count(count: int, most: int) -> None:
    """Raises `InvalidArgument` for a request that names more than `most` jobs."""
    if count > most:
        raise InvalidArgument(f"{count} descriptors in one request; at most {most} are taken", detail="TOO_MANY")


def _unknown(shard: str) -> ShardConnectionFailed:
    return ShardConnectionFailed(
        f"This server does not know shard {shard} (yet): its shard file does not name it", retry_after_ms=1000
    )


class _Addressed:
    """The parts of a request so far. Raises `InvalidArgument` if it names more than `most` jobs."""

    def __init__(self, shards: Shards, queue: str | None, count: int, most: int) -> None:
        check_count(count, most)
        self._shards = shards
        self._queue = queue
        self._parts: dict[str, OnShard] = {}
        # Descriptors of one request mostly differ only in their id; the part before it is parsed once.
        self._heads: dict[str, tuple[OnShard | None, str, int]] = {}
        self._count = 0

    def parts(self) -> list[OnShard]:
        return [part for part in self._parts.values() if part.keys]

    def add(self, descriptors: Sequence[str]) -> Sequence[None]:
        """The next descriptors of the request."""
        queue, heads, make = self._queue, self._heads, tuple.__new__  # which is faster than calling the class
        for index, text in enumerate(descriptors, self._count):
            head, _, tail = text.rpartition(":")
            known = heads.get(head)
            if known is None or not (tail.isdecimal() and tail.isascii() and len(tail) < _ID_DIGITS_ALWAYS_FIT):
                name, shard_name, priority, local_id = parse_descriptor(text)
                part = None if queue is not None and name != queue else self._part(shard_name)
                heads[head] = (part, name, priority)
            else:
                part, name, priority = known
                local_id = int(tail)
            if part is not None:
                part.indices.append(index)
                part.keys.append(make(JobKey, (name, priority, local_id)))
        self._count += len(descriptors)
        return ()

    def _part(self, name: str) -> OnShard | None:
        """The part of that shard, created at the first job on it; None for an unknown shard."""
        part = self._parts.get(name)
        if part is None and (shard := self._shards.get(name)) is not None:
            part = self._parts[name] = OnShard(shard, [], [])
        return part


async def on_each_shard(
    parts: Sequence[OnShard], act: Callable[[OnShard], Awaitable[Sequence[Value]]], answers: list[Value]
) -> list[Value]:
    """Puts the answers of `act` for each shard into `answers`, at the request's positions.

    An unreachable shard fails the call with SHARD_CONNECTION_FAILED; changes on other shards remain, and repeating is safe. A part of
    more than `KEYS_A_CALL` jobs is executed in pieces; if one fails, the changes of the pieces before it remain, too.
    """
    if len(parts) == 1:
        [part] = parts
        if not part.shard.healthy:
            raise shard_unreachable(part.shard.name)
        only = await (act(part) if len(part.keys) <= KEYS_A_CALL else in_pieces(part, act))
        if len(only) == len(answers):
            return list(only)  # all jobs of the request are here
        results: Sequence[Sequence[Value] | BaseException] = (only,)
    else:
        results = await asyncio.gather(*(_on_shard(part, act) for part in parts), return_exceptions=True)
    for part, values in zip(parts, results, strict=True):
        if isinstance(values, BaseException):
            raise values
        for index, value in zip(part.indices, values, strict=True):
            answers[index] = value
    return answers


async def _on_shard(part: OnShard, act: Callable[[OnShard], Awaitable[Sequence[Value]]]) -> Sequence[Value]:
    if not part.shard.healthy:
        raise shard_unreachable(part.shard.name)
    return await in_pieces(part, act)


async def in_pieces(part: OnShard, act: Callable[[OnShard], Awaitable[Sequence[Value]]]) -> Sequence[Value]:
    """The answers of `act` for `KEYS_A_CALL` of the part's jobs at a time, one call after the other."""
    if len(part.keys) <= KEYS_A_CALL:
        return await act(part)
    values: list[Value] = []
    for start in range(0, len(part.keys), KEYS_A_CALL):
        end = start + KEYS_A_CALL
        values += await act(OnShard(part.shard, part.indices[start:end], part.keys[start:end]))
        await asyncio.sleep(0)  # a store in this process may have answered without a turn of the loop
    return values


def reachable(shards: Shards, metrics: Metrics, method: str) -> list[ShardLanes]:
    """The shards that a count, a scan or a bulk operation can answer for; those left out are logged and counted.

    Raises `NoHealthyShards`.
    """
    found = shards.in_reach()
    if not found:
        raise NoHealthyShards
    if len(found) < len(shards):
        left_out(metrics, method, [shard.name for shard in shards if not shard.healthy])
    return found


def left_out(metrics: Metrics, method: str, names: Sequence[str], reason: str = "") -> None:
    """Logs and counts that `method` answers without these shards."""
    metrics.count("shards_left_out", len(names))
    extra = {"shards": list(names)} | ({"reason": reason} if reason else {})
    logger.warning("%s answers without the unreachable shards", method, extra=extra)


async def on_reachable(
    shards: Shards, metrics: Metrics, method: str, act: Callable[[ShardLanes], Awaitable[Value]]
) -> list[Value]:
    """The answers of `act` for each reachable shard, all at once. Shards that fail meanwhile are left out too, but not all of them."""
    found = reachable(shards, metrics, method)
    if len(found) == 1:
        return [await act(found[0])]
    results = await asyncio.gather(*(act(shard) for shard in found), return_exceptions=True)
    values: list[Value] = []
    failures: list[PinLaterError] = []
    for shard, result in zip(found, results, strict=True):
        if isinstance(result, Unavailable):
            failures.append(result)
            left_out(metrics, method, [shard.name], result.message)
        elif isinstance(result, BaseException):
            raise result
        else:
            values.append(result)
    if not values:
        raise failures[0]
    return values


async def one_after_another(
    shards: Shards, metrics: Metrics, method: str, act: Callable[[ShardLanes], Awaitable[int]]
) -> int:
    """The sum of the results of `act` for each reachable shard, if they share a budget. Leaves out the same shards as `on_reachable`."""
    found = reachable(shards, metrics, method)
    total, failures = 0, 0
    for shard in found:
        try:
            total += await act(shard)
        except Unavailable as error:
            failures += 1
            if failures == len(found):
                raise
            left_out(metrics, method, [shard.name], error.message)
    return total


async def ack_results(descriptors: Sequence[str], answers: Sequence[Acked | PinLaterError]) -> list[AckResult]:
    """Returns the outcome of each item, in order."""
    if len(descriptors) <= ITEMS_A_TURN:
        return _ack_results(descriptors, answers)
    return await pairs_in_turns(descriptors, answers, _ack_results)


def _ack_results(descriptors: Sequence[str], answers: Sequence[Acked | PinLaterError]) -> list[AckResult]:
    return [
        _not_carried_out(descriptor, acked)
        if isinstance(acked, PinLaterError)
        else AckResult(descriptor, acked.outcome, acked.holder or None, acked.held_since_ms, acked.deadline_ms)
        for descriptor, acked in zip(descriptors, answers, strict=True)
    ]


def _not_carried_out(descriptor: str, error: PinLaterError) -> AckResult:
    """Without the error's message, which could be as long as the rest of the answer."""
    return AckResult(
        descriptor,
        Outcome.ERROR,
        error_code=int(code_of(error)),
        error_detail=error.detail,
        retryable=error.retryable,
        retry_after_ms=error.retry_after_ms,
    )
