"""Entries of the audit: who changed what, from where, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple


class AuditEntry(NamedTuple):
    """A change that was asked for. `who`: the name of the caller's token, with the user that it spoke for (`console for ada`), `no token`,
    `admin password`, the user whose command changed a file (`ada (via sudo)`), or the file that changed; `roles`: of the token. `source`:
    what the caller calls itself, or the file; `address`: where its connection came from, after the address of a client that it names
    (`203.0.113.9 through 10.0.0.7`), or the name of the machine of the command.
    `queue`: empty for a change of none.

    `arguments`: a JSON object, without bodies and secrets. `jobs`: how many were changed, None where that is not counted. `outcome`: `ok`,
    `refused`, `failed` or `unknown`; `detail`: the code of a refusal or failure, with what is finer. `server`: the one that carried it out.
    """

    id: str
    at_ms: int
    who: str
    roles: Sequence[str]
    source: str
    address: str
    operation: str
    queue: str
    arguments: str
    jobs: int | None
    outcome: str
    detail: str
    server: str = ""

    def shown_arguments(self) -> dict[str, str]:
        """The arguments by name, each value as JSON; none if they are no object."""
        try:
            fields = json.loads(self.arguments)
        except ValueError:
            return {}
        if not isinstance(fields, dict):
            return {}
        return {name: json.dumps(value, ensure_ascii=False) for name, value in fields.items()}


class AuditFilter(NamedTuple):
    """Which entries to read; '' and None leave a field out. `since_ms` counts in, `until_ms` does not.

    `continuation`: of the page before."""

    queue: str = ""
    who: str = ""
    operation: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int = 100
    continuation: str = ""


class AuditPage(NamedTuple):
    """Entries, newest first. `continuation`: for what follows, '' at the end; a page may have few entries, or none, although more follow.

    `incomplete`: a shard could not be asked, so that entries may be missing."""

    entries: Sequence[AuditEntry]
    continuation: str = ""
    incomplete: bool = False
