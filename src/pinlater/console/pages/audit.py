"""Audit: who changed what, with filters, in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pinlater.client.errors import PinLaterError
from pinlater.console.endpoints.audit import get_audit
from pinlater.console.pages.page import PageCall, PageView, with_fields
from pinlater.console.problems import invalid
from pinlater.console.shapes.audit import AuditItem, AuditQuery
from pinlater.console.shapes.fields import RequestShape

ROWS = 50
METHOD = "getAudit"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView(PageView):
    """`next_page`: the continuation; empty at the end."""

    query: AuditPageQuery
    entries: Sequence[AuditItem] = ()
    next_page: str = ""
    incomplete: bool = False

    def path(self, **changes: object) -> str:
        """The same filters with changes; a change begins at the first page."""
        query = self.query
        kept = {name: getattr(query, name) for name in ("queue", "who", "operation", "since", "until")}
        return with_fields("/audit", **{**kept, **changes})


async def show(call: PageCall) -> AuditView:
    """Shows the page. Makes one call, and a few more while a filter finds little; then the page does not update itself."""
    query = call.read(AuditPageQuery)
    wanted = AuditQuery(
        queue=query.queue or None,
        who=query.who or None,
        operation=query.operation or None,
        since_ms=_moment_ms(query.since, "since"),
        until_ms=_moment_ms(query.until, "until"),
        limit=ROWS,
    )
    found: list[AuditItem] = []
    continuation: str | None = query.after or None
    incomplete = False
    for _ in range(_PAGES_MAX):
        asked = AuditQuery(
            queue=wanted.queue,
            who=wanted.who,
            operation=wanted.operation,
            since_ms=wanted.since_ms,
            until_ms=wanted.until_ms,
            limit=ROWS - len(found),
            continuation=continuation,
        )
        answer = await call.api.ask(get_audit, query=asked)
        found += answer.entries
        continuation, incomplete = answer.continuation, incomplete or answer.incomplete
        if continuation is None or len(found) >= ROWS:
            break
    return AuditView(
        title="Audit",
        polls=query == AuditPageQuery(),
        query=query,
        entries=found,
        next_page=continuation or "",
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


def _moment_ms(text: str, field: str) -> int | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise invalid(field, f"{text[:50]!r} is not a time; write 2026-01-31 or 2026-01-31T14:00") from None
