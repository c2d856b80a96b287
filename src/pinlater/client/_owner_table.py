"""Which server owns what a call is about, as a server said. Pure decisions; `_owners` keeps what the client knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from pinlater.client._client_call import ClientCall
from pinlater.client._thrift import types
from pinlater.domain.descriptor import shard_of
from pinlater.domain.rendezvous import rendezvous_home
from pinlater.domain.slices import SLICES, slice_of

NO_SERVER = ""


class Aim(NamedTuple):
    """What decides which owner is meant: the queue, and the shard or the key whose home is the shard, if the call has one.
    `jobs`: how many it is about."""

    queue: str
    shard: str = ""
    key: str = ""
    jobs: int = 1


def aim_of(call: ClientCall[Any]) -> Aim | None:
    """None for a call that any server carries out as cheaply. A repeat has none either: it goes the way of calls that failed."""
    aim = _AIMS.get(call.method)
    return None if aim is None else aim(call.args[0])


def _enqueue(request: types.EnqueueRequest) -> Aim | None:
    if request.repeated:
        return None
    unique_key = request.jobs[0].unique_key if request.jobs else None
    return Aim(request.queue, key=unique_key or request.request_key or "", jobs=len(request.jobs))


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

    `takers`: the shards that take enqueues. `by_slice`: the owners of each slice on all shards.
    """

    addresses: Mapping[str, str] = {}
    owners: Mapping[str, Sequence[str]] = {}
    takers: Sequence[str] = ()
    by_slice: Sequence[Sequence[str]] = ()

    def candidates(self, aim: Aim) -> Sequence[str]:
        """The ids of the servers that are equally good for it, `NO_SERVER` for any; none if no owner is known."""
        if not self.owners:
            return ()
        if aim.shard:
            owners = self.owners.get(aim.shard)
            return () if owners is None else (owners[slice_of(aim.queue)],)
        if aim.key and self.takers:
            return (self.owners[rendezvous_home(aim.key, self.takers)][slice_of(aim.queue)],)
        return self.by_slice[slice_of(aim.queue)]


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
        [shard.name for shard in answer.shards if shard.takes_enqueues],
        [tuple(dict.fromkeys(by_slice[place] for by_slice in owners.values())) for place in range(SLICES)],
    )
