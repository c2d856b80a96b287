"""Changes and their callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from pinlater.console.shapes.fields import AnswerShape, Moment, RequestShape
from pinlater.domain.audit import ENTRIES_A_PAGE_MAX


class AuditQuery(RequestShape, frozen=True, kw_only=True):
    """Which entries."""

    queue: Annotated[str | None, Meta(description="Only changes of this queue.")] = None
    who: Annotated[str | None, Meta(description="Only by this token, or `no token` or `admin password`.")] = None
    operation: Annotated[str | None, Meta(description="Only this one: `pauseQueue`, `tokenAdded`, ...")] = None
    since_ms: Annotated[Moment | None, Meta(description="From this time on.")] = None
    until_ms: Annotated[Moment | None, Meta(description="Before this time.")] = None
    limit: Annotated[
        int,
        Meta(
            ge=1,
            le=ENTRIES_A_PAGE_MAX,
            description="The largest number of entries. An answer may have fewer although more follow.",
        ),
    ] = 100
    continuation: Annotated[str | None, Meta(description="From the previous answer.")] = None


class AuditItem(AnswerShape, frozen=True, kw_only=True):
    """A change that was asked for. `outcome` is `ok`, `refused`, `failed` or `unknown`."""

    id: str
    at_ms: int
    who: Annotated[
        str, Meta(description="The name of the token, `no token`, `admin password`, or the file that changed.")
    ]
    roles: Sequence[str]
    source: Annotated[str, Meta(description="What the caller calls itself.")]
    address: Annotated[
        str,
        Meta(
            description="Where the connection of the caller came from: that of a console comes after that of its client."
        ),
    ]
    operation: str
    queue: Annotated[str, Meta(description="Empty for a change of no queue.")]
    arguments: Annotated[Mapping[str, str], Meta(description="Each value as JSON. Never bodies or secrets.")]
    jobs: Annotated[int | None, Meta(description="How many were changed; null where that is not counted.")]
    outcome: str
    detail: Annotated[str, Meta(description="The code of an error.")]
    server: str


class AuditAnswer(AnswerShape, frozen=True, kw_only=True):
    """Entries, newest first."""

    entries: Sequence[AuditItem]
    continuation: Annotated[str | None, Meta(description="Send it to get the next entries; null if there are none.")]
    incomplete: Annotated[bool, Meta(description="A shard was unreachable, so that entries may be missing.")]
