"""Which server owns what a call is about, as a server said. Pure decisions; `_owners` keeps what the client knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from pinlater.client._client_call import ClientCall
from pinlater.client._thrift import types
from pinlater.domain.descriptor import shard_of
from pinlater.domain.rendezvous import rendezvous_home, rendezvous_order
from pinlater.domain.slices import SLICES, slice_of

NO_SERVER = ""


class Aim(NamedTuple):
    """What decides which owner is meant: the queue, the shard if the call names one, the key that leads to a shard. `unique`: whether the
    key is a unique key, or an ordering key. `jobs`: how many it is about."""

    queue: str
    shard: str = ""
    key: str = ""
    unique: bool = False
    jobs: int = 1


def aim_of(call: ClientCall[Any]) -> Aim | None:
    """Returns None for a call that any server executes at the same cost, and for a repeat, which goes the way of calls that failed."""
    aim = _AIMS.get(call.method)
    return None if aim is None else aim(call.args[0])


def _enqueue(request: types.EnqueueRequest) -> Aim | None:
    if request.repeated:
        return None
    first = request.jobs[0] if request.jobs else None
    home = None if first is None else first.unique_key or first.ordering_key
    return Aim(request.queue, "", home or request.request_key or "", bool(home), len(request.jobs))


def _dequeue(request: types.DequeueRequest) -> Aim:
    acks = request.acks
    shard = "" if acks is None else _first(acks.succeeded, acks.failed)
    jobs = request.limit if isinstance(request.limit, int) else 1  # another type is refused when the call is encoded
    return Aim(request.queue, shard, jobs=jobs)


def _acks(request: types.AckBatch) -> Aim:
    return Aim(request.queue, _first(request.succeeded, request.failed))


def _checkpoints(request: types.CheckpointBatch) -> Aim:
    return Aim(request.queue, _first(request.requests))


def _claims(request: types.ClaimsRequest | types.ReleaseRequest) -> Aim:
    return Aim(request.queue, _first(request.claims))


def _first(*lists: Iterable[Any] | None) -> str:
    """The shard of the first job. A client that reports on jobs of several shards at once asks their owners through one server."""
    first = next(chain.from_iterable(items for items in lists if items), None)
    return "" if first is None else shard_of(first.descriptor)


_AIMS: Mapping[str, Callable[[Any], Aim | None]] = {
    "enqueueJobs": _enqueue,
    "dequeueJobs": _dequeue,
    "ackJobs": _acks,
    "ackDequeuedJobs": _acks,
    "checkpointJobs": _checkpoints,
    "checkpointJobsFenced": _checkpoints,
    "heartbeatClaims": _claims,
    "releaseJobs": _claims,
}


class OwnerTable(NamedTuple):
    """`addresses`: where clients reach a server, by its id; '' if it does not know. `owners`: the ids of a shard's owners, by slice.

    `takers`: the shards that take enqueues. `partitions`: how many a queue has that has several; None if each queue is on all shards.
    """

    addresses: Mapping[str, str] = {}
    owners: Mapping[str, Sequence[str]] = {}
    takers: tuple[str, ...] = ()
    partitions: Mapping[str, int] | None = None

    def candidates(self, aim: Aim) -> Sequence[str]:
        """The ids of the servers that are equally good for it, `NO_SERVER` for any; none if no owner is known."""
        place = slice_of(aim.queue)
        if aim.shard:
            owners = self.owners.get(aim.shard)
            return () if owners is None else (owners[place],)
        shards: Sequence[str] = self.takers or tuple(self.owners)
        if self.partitions is not None and self.takers:
            shards = _order(aim.queue, self.takers)[: self.partitions.get(aim.queue, 1)]
        if aim.key and shards:
            is_first = aim.unique and self.partitions is not None
            shards = shards[:1] if is_first else (rendezvous_home(aim.key, shards),)
        return tuple(dict.fromkeys([self.owners[shard][place] for shard in shards]))


@lru_cache(maxsize=1024)
def _order(queue: str, shards: tuple[str, ...]) -> Sequence[str]:
    return rendezvous_order(queue, shards)


def owner_table(answer: types.QueueOwners) -> OwnerTable:
    """An answer as a table. One that divides queues in another way than this version of the client knows says nothing."""
    ids = [server.id for server in answer.servers]
    if not ids or any(len(shard.owners) != SLICES for shard in answer.shards):
        return OwnerTable()
    owners = {
        shard.name: [ids[place] if 0 <= place < len(ids) else NO_SERVER for place in shard.owners]
        for shard in answer.shards
    }
    return OwnerTable(
        {server.id: server.address or "" for server in answer.servers},
        owners,
        tuple([shard.name for shard in answer.shards if shard.takes_enqueues]),
        answer.partitions,
    )
