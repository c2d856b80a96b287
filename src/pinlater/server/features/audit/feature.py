"""Puts the audit into a server: it listens to administrative changes."""

from __future__ import annotations

from typing import Any

from pinlater.domain.audit import first_id_at
from pinlater.server.features.audit.buffer import FLUSH_MS, AuditBuffer
from pinlater.server.features.audit.settings import AuditSettings
from pinlater.server.features.audit.trail import AuditTrail, entry_for
from pinlater.server.features.feature import Feature
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.parts import Parts
from pinlater.server.operations.service import Service
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import PruneTrail
from pinlater.server.thrift.methods.record import AnyQueue, ServedMethod

_PRUNE_MS = 60_000


def _allowed_entries(may: AnyQueue, page: Any) -> Any:
    page.entries = [entry for entry in page.entries if entry.queue and may(entry.queue)]
    return page


METHODS = [
    ServedMethod(
        "getAudit",
        handle=lambda service, call: service.of(AuditTrail).read(call.request),
        queues=lambda call: () if call.request.queue is None else (call.request.queue,),
        allowed_part=_allowed_entries,
    )
]


def _add(service: Service) -> None:
    settings, clock = service.of(AuditSettings), service.clock
    trail = AuditTrail(service)

    async def prune(shard: ShardLanes, limit: int) -> int:
        return await shard.store.submit(PruneTrail(first_id_at(clock.now_ms() - settings.ttl_ms), limit))

    service.put(trail)
    service.change_listeners.append(trail.note)
    service.periodic += [
        Periodic("audit", FLUSH_MS, trail.buffer.flush),
        service.of(Sweeps).periodic("audit-garbage", _PRUNE_MS, prune),
    ]
    service.closing.append(trail.buffer.close)


def _add_to_front(front: Parts) -> None:
    """Keeps changes of callers of this process until the store process has stored them."""
    buffer = AuditBuffer(front.of(AuditTrail).keep, front.metrics, front.clock, front.random)
    if front.of(AuditSettings).stores:
        front.change_listeners.append(lambda change: buffer.add(entry_for(change)))
    front.periodic.append(Periodic("audit", FLUSH_MS, buffer.flush))
    front.closing.append(buffer.close)


FEATURE = Feature(METHODS, _add, Forwarded(AuditTrail, changes=("keep",), looks=("read",)), _add_to_front)
