"""Changes and their callers."""

from __future__ import annotations

from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import like
from pinlater.console.shapes.audit import AuditAnswer, AuditItem, AuditQuery
from pinlater.console.shapes.fields import Nothing


async def get_audit(call: ApiCall[AuditQuery, Nothing]) -> AuditAnswer:
    """Returns who changed queues, jobs, tokens and shards, newest first, as far as the servers still keep it."""
    query = call.query
    page = await call.client.audit(
        queue=query.queue or "",
        who=query.who or "",
        operation=query.operation or "",
        since_ms=query.since_ms,
        until_ms=query.until_ms,
        limit=query.limit,
        continuation=query.continuation or "",
    )
    return AuditAnswer(
        entries=[like(AuditItem, entry, arguments=entry.shown_arguments()) for entry in page.entries],
        continuation=page.continuation or None,
        incomplete=page.incomplete,
    )
