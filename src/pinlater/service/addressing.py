"""From descriptors to jobs: parse all of a request's first, then see on which shard each lives."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.errors import InvalidArgument, ShardConnectionFailed
from pinlater.domain.job import Outcome
from pinlater.service.values import AckResult
from pinlater.sharding.shards import ShardLanes, Shards
from pinlater.storage.interface import Acked, JobKey
from pinlater.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

_ID_DIGITS_ALWAYS_FIT = 19  # fewer digits than this are within an i64 for sure; the rest is for the parser


class OnShard(NamedTuple):
    """The part of a request that lives on one shard: positions in the request, and the jobs named there."""

    shard: ShardLanes
    indices: list[int]
    keys: list[JobKey]


def address(shards: Shards, queue: str | None, descriptors: Sequence[str], most: int) -> list[OnShard]:
    """The jobs named, by shard. Raises `DescriptorInvalid` for the first that can't be parsed, so that nothing happens.

    A descriptor of another queue than `queue` (None: any), or of a shard that isn't ours, names nothing and is left out.
    """
    if len(descriptors) > most:
        raise InvalidArgument(
            f"{len(descriptors)} descriptors in one request; at most {most} are taken", detail="TOO_MANY"
        )
    parts: dict[str, OnShard] = {}
    # Descriptors of one request mostly differ in their id alone; what stands before it is parsed once.
    heads: dict[str, tuple[OnShard | None, str, int]] = {}
    for index, text in enumerate(descriptors):
        head, _, tail = text.rpartition(":")
        known = heads.get(head)
        if known is None or not (tail.isdecimal() and tail.isascii() and len(tail) < _ID_DIGITS_ALWAYS_FIT):
            name, shard_name, priority, local_id = parse_descriptor(text)
            part = None if queue is not None and name != queue else _part(parts, shards, shard_name)
            heads[head] = (part, name, priority)
        else:
            part, name, priority = known
            local_id = int(tail)
        if part is not None:
            part.indices.append(index)
            part.keys.append(JobKey(name, priority, local_id))
    return [part for part in parts.values() if part.keys]


def _part(parts: dict[str, OnShard], shards: Shards, name: str) -> OnShard | None:
    """The part of that shard, made when it is named first; None for a shard that isn't ours."""
    part = parts.get(name)
    if part is None and (shard := shards.get(name)) is not None:
        part = parts[name] = OnShard(shard, [], [])
    return part


async def on_each_shard(
    parts: Sequence[OnShard], act: Callable[[OnShard], Awaitable[Sequence[Value]]], answers: list[Value]
) -> list[Value]:
    """Puts what `act` answers for each shard into `answers`, at the request's positions.

    A shard out of reach fails the call with SHARD_CONNECTION_FAILED; what was done on others stays done and repeating is safe.
    """
    for part in parts:
        if not part.shard.healthy:
            raise ShardConnectionFailed(f"Shard {part.shard.name} is out of reach", retry_after_ms=1000)
        values = await act(part)
        if len(values) == len(answers):
            return list(values)  # all of the request lives here
        for index, value in zip(part.indices, values, strict=True):
            answers[index] = value
    return answers


def reachable(shards: Shards, metrics: Metrics, method: str) -> list[ShardLanes]:
    """The shards that a count, a scan or a bulk operation can answer for; those left out are logged and counted."""
    found = [shard for shard in shards if shard.healthy]
    if len(found) < len(shards):
        left_out = [shard.name for shard in shards if not shard.healthy]
        metrics.count("shards_left_out", len(left_out))
        logger.warning("%s answers without shards out of reach", method, extra={"shards": left_out})
    return found


NOT_FOUND = Acked(Outcome.NOT_FOUND)


def ack_results(descriptors: Sequence[str], answers: Sequence[Acked]) -> list[AckResult]:
    """The store's answers in the service's words."""
    return [
        AckResult(descriptor, acked.outcome, acked.holder, acked.held_since_ms, acked.deadline_ms)
        for descriptor, acked in zip(descriptors, answers, strict=True)
    ]
