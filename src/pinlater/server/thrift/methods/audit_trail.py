"""The audit: reads its entries. How each call is audited is in `thrift.audit`."""

from __future__ import annotations

from typing import Any

from pinlater.domain.audit import AuditFilter
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.record import AnyQueue, ServedMethod
from pinlater.wire.generated import received
from pinlater.wire.generated import ttypes as types


async def _get_audit(service: Service, call: received.getAudit_args) -> types.AuditPage:
    page = await service.audit.read(_filter(call.request))
    entries = [types.AuditEntry(*entry._replace(roles=list(entry.roles))) for entry in page.entries]
    return types.AuditPage(entries, page.continuation or None, page.incomplete)


def _filter(request: received.AuditRequest) -> AuditFilter:
    return AuditFilter(
        request.queueName or "",
        request.who or "",
        request.operation or "",
        request.sinceTimestampMillis,
        request.untilTimestampMillis,
        AuditFilter().limit if request.limit is None else request.limit,
        request.continuation or "",
    )


def _allowed_entries(may: AnyQueue, page: Any) -> Any:
    page.entries = [entry for entry in page.entries if entry.queueName and may(entry.queueName)]
    return page


METHODS = [
    ServedMethod(
        "getAudit",
        handle=_get_audit,
        queues=lambda call: () if call.request.queueName is None else (call.request.queueName,),
        allowed_part=_allowed_entries,
    )
]
