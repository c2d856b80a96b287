"""Audit: who changed what, with filters, in pages."""

from __future__ import annotations

from msgspec.structs import replace

from pinlater.client.errors import PinLaterError
from pinlater.console.endpoints.audit import AuditItem, AuditQuery, get_audit
from pinlater.console.endpoints.fields import RequestShape
from pinlater.console.pages.page import PageCall, PageView, moment_ms, paths

ROWS = 50
METHOD = "getAudit"
_NOT_A_TIME = "is not a time; write 2026-01-31 or 2026-01-31T14:00"
_PAGES_MAX = 5  # calls of the API for a page that finds few entries
_CHANGES_OF_PAUSE = ("pauseQueue", "resumeQueue", "createQueue", "createOrderedQueue", "deleteQueue")


class AuditPageQuery(RequestShape, frozen=True, kw_only=True):
    """Which entries. `since` and `until`: ISO 8601 in UTC, or a day. `after`: the continuation of the previous page."""

    queue: str = ""
    who: str = ""
    operation: str = ""
    since: str = ""
    until: str = ""
    after: str = ""


async def show(call: PageCall) -> PageView:
    """Shows the page. Makes one call, and a few more while a filter finds little; then the page does not update itself."""
    query = call.read(AuditPageQuery)
    wanted = AuditQuery(
        queue=query.queue or None,
        who=query.who or None,
        operation=query.operation or None,
        since_ms=moment_ms(query.since, "since", _NOT_A_TIME),
        until_ms=moment_ms(query.until, "until", _NOT_A_TIME),
        continuation=query.after or None,
    )
    entries: list[AuditItem] = []
    incomplete = False
    for _ in range(_PAGES_MAX):
        answer = await call.api.ask(get_audit, query=replace(wanted, limit=ROWS - len(entries)))
        entries += answer.entries
        wanted, incomplete = replace(wanted, continuation=answer.continuation), incomplete or answer.incomplete
        if answer.continuation is None or len(entries) >= ROWS:
            break
    return PageView(
        "Audit",
        polls=query == AuditPageQuery(),
        path=paths("/audit", query),
        query=query,
        entries=entries,
        next_page=wanted.continuation or "",
        incomplete=incomplete,
    )


async def pause_of(call: PageCall) -> AuditItem | None:
    """The entry of the pause of the page's queue, if it is among the queue's newest entries and the visitor may see them."""
    if not call.may(METHOD):
        return None
    try:
        answer = await call.api.ask(get_audit, query=AuditQuery(queue=call.queue, limit=ROWS))
    except PinLaterError:  # of a server that has no audit: the page shows all the rest
        return None
    changes = (one for one in answer.entries if one.outcome == "ok" and one.operation in _CHANGES_OF_PAUSE)
    newest = next(changes, None)
    return newest if newest is not None and newest.operation == "pauseQueue" else None
