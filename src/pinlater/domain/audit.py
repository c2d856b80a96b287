"""Entries of the audit: who changed what, from where, and what became of it. As client and server both see them.

Pure. An entry's id begins with its time, so that ids sort as the entries came, and ends with digits that no other entry has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

ENTRIES_A_PAGE_MAX = 500
NO_TOKEN, UNKNOWN_TOKEN, ADMIN_PASSWORD = "no token", "unknown token", "admin password"
"""Callers that are no token: the space keeps them apart from names of tokens."""
USER_RULE = "1 to 100 letters, digits, and the characters _ . @ + - = : / \\"
_USER = re.compile(r"[A-Za-z0-9_.@+=:/\\-]{1,100}", re.ASCII)
_FOR = " for "
_TIME_DIGITS = 13
_LAST_MS = 10**_TIME_DIGITS - 1


class AuditOutcome(str, Enum):  # noqa: UP042 - also the words of the wire, of commands and of pages
    """What became of a change."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


class AuditCaller(NamedTuple):
    """A caller: the name of its token, or a word for callers without a good one; and its roles."""

    who: str
    roles: Sequence[str] = ()


WITHOUT_TOKEN = AuditCaller(NO_TOKEN)


class AuditEntry(NamedTuple):
    """A change that was asked for. `who`: the name of the caller's token, with the user that it spoke for (`console for ada`), `no token`,
    `admin password`, the user whose command changed a file (`ada (via sudo)`), or the file that changed; `roles`: of the token. `source`:
    what the caller calls itself, or the file; `address`: where its connection came from, after the address of a client that it names
    (`203.0.113.9 through 10.0.0.7`), or the name of the machine of the command.
    `queue`: empty for a change of none.

    `arguments`: a JSON object, without bodies and secrets. `jobs`: how many were changed, None where that is not counted. `outcome`: a word
    of `AuditOutcome`; `detail`: the code of a refusal or failure, with what is finer. `server`: the one that carried it out.
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

    def fits(self, entry: AuditEntry) -> bool:
        """Whether the entry has the wanted queue, caller and operation."""
        return (
            (not self.queue or entry.queue == self.queue)
            and (not self.who or entry.who == self.who)
            and (not self.operation or entry.operation == self.operation)
        )


class AuditPage(NamedTuple):
    """Entries, newest first. `continuation`: for what follows, '' at the end; a page may have few entries, or none, although more follow.

    `incomplete`: a shard could not be asked, so that entries may be missing."""

    entries: Sequence[AuditEntry]
    continuation: str = ""
    incomplete: bool = False


def is_user_name(text: str) -> bool:
    """Whether a text can be the name of a user that a caller speaks for. It has no spaces, commas, or characters beyond ASCII."""
    return _USER.fullmatch(text) is not None


def spoken_for(token_name: str, user: str) -> str:
    """What the audit calls a caller that speaks for a user. A token's name has no space, so the texts of two callers never are the same."""
    return f"{token_name}{_FOR}{user}"


def entry_id(at_ms: int, number: int, random: int) -> str:
    """The id of an entry of that time. `number` orders the entries of one server in a millisecond; `random` has 32 bits."""
    return f"{first_id_at(at_ms)}-{number % 2**24:06x}{random % 2**32:08x}"


def first_id_at(at_ms: int) -> str:
    """Not higher than any id of that time or later, and higher than all of earlier times."""
    return f"{min(max(at_ms, 0), _LAST_MS):0{_TIME_DIGITS}d}"
