"""Changes and their callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pinlater.console.endpoint import ApiCall, endpoint
from pinlater.console.endpoints.fields import AnswerShape, Moment, Nothing, RequestShape, doc
from pinlater.console.endpoints.forms import like
from pinlater.domain.audit import ENTRIES_A_PAGE_MAX


class AuditQuery(RequestShape, frozen=True, kw_only=True):
    """Selects entries."""

    queue: Annotated[str | None, doc("Only changes of this queue.")] = None
    who: Annotated[
        str | None, doc("Only changes made with this token, with `no token`, or with the `admin password`.")
    ] = None
    operation: Annotated[str | None, doc("Only this operation, such as `pauseQueue` or `tokenAdded`.")] = None
    since_ms: Annotated[Moment | None, doc("Only changes at this time or later.")] = None
    until_ms: Annotated[Moment | None, doc("Only changes before this time.")] = None
    limit: Annotated[
        int,
        doc(
            "The largest number of entries. An answer may have fewer although more follow.", ge=1, le=ENTRIES_A_PAGE_MAX
        ),
    ] = 100
    continuation: Annotated[str | None, doc("From the previous answer.")] = None


class AuditItem(AnswerShape, frozen=True, kw_only=True):
    """A requested change. `outcome` is `ok`, `refused`, `failed` or `unknown`."""

    id: str
    at_ms: int
    who: Annotated[str, doc("The name of the token, `no token`, `admin password`, or the file that changed.")]
    roles: Sequence[str]
    source: Annotated[str, doc("What the caller calls itself.")]
    address: Annotated[
        str,
        doc(
            "The address of the connection. For a call through a console: the address of the console's client, then the console's."
        ),
    ]
    operation: str
    queue: Annotated[str, doc("Empty if the change is not about a queue.")]
    arguments: Annotated[Mapping[str, str], doc("Each value as JSON. Bodies and secrets are left out.")]
    jobs: Annotated[int | None, doc("The number of jobs that were changed; null if they are not counted.")]
    outcome: str
    detail: Annotated[str, doc("The code of the error, if there was one.")]
    server: str


class AuditAnswer(AnswerShape, frozen=True, kw_only=True):
    """Entries, newest first."""

    entries: Sequence[AuditItem]
    continuation: Annotated[str | None, doc("Send it to get the next entries; null if there are none.")]
    incomplete: Annotated[bool, doc("A shard was unreachable, so entries may be missing.")]


@endpoint("GET", "/v1/audit", calls="audit")
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
    entries = [like(AuditItem, entry, arguments=entry.shown_arguments()) for entry in page.entries]
    return AuditAnswer(entries=entries, continuation=page.continuation or None, incomplete=page.incomplete)
