"""The audit: reads its entries."""

from __future__ import annotations

from typing import Any

from pinlater.domain.audit import AuditFilter
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.record import AnyQueue, ServedMethod
from pinlater.wire.generated import structs


async def _get_audit(service: Service, call: structs.getAudit_args) -> structs.AuditPage:
    page = await service.of(AuditTrail).read(_filter(call.request))
    entries = [structs.AuditEntry(*entry._replace(roles=list(entry.roles))) for entry in page.entries]
    return structs.AuditPage(entries, page.continuation or None, page.incomplete)


def _filter(request: structs.AuditRequest) -> AuditFilter:
    return AuditFilter(
        request.queue or "",
        request.who or "",
        request.operation or "",
        request.since_ms,
        request.until_ms,
        AuditFilter().limit if request.limit is None else request.limit,
        request.continuation or "",
    )


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
