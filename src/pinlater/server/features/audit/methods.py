"""The audit: reads its entries."""

from __future__ import annotations

from typing import Any

from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.record import AnyQueue, ServedMethod
from pinlater.wire.generated import structs


async def _get_audit(service: Service, call: structs.getAudit_args) -> structs.AuditPage:
    return await service.of(AuditTrail).read(call.request)


def _allowed_entries(may: AnyQueue, page: Any) -> Any:
    page.entries = [entry for entry in page.entries if entry.queue and may(entry.queue)]
    return page


METHODS = [
    ServedMethod(
        "getAudit",
        handle=_get_audit,
        queues=lambda call: () if call.request.queue is None else (call.request.queue,),
        allowed_part=_allowed_entries,
    )
]
