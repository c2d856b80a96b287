"""The event that an administrative change has ended: an operator's call, a change that a server made by itself, or a file that it
applied. Features listen to it (`Parts.change_listeners`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from pinlater.domain.caller_names import NamedCaller


class ChangeOutcome(str, Enum):  # noqa: UP042 - also the words of the wire, of commands and of pages
    """The outcome of a change."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


class AdministrativeChange(NamedTuple):
    """A change that was asked for, without bodies and secrets. Its texts are short.

    `operation`: the method of the protocol, or another word for a change without a call.
    `queue`: empty for a change of none.
    `fields`: of the request and the answer, by the names that operators know.
    `caller`: who asked for it, or the file that changed.
    `source`: the name that the caller gives itself, or the file.
    `address`: where the call or the command came from.
    `outcome`, `detail`: the result; for a refusal or failure its code, with details.
    `jobs`: how many were changed; None if that is not counted.
    `at_ms`: when it took place; None for now. Several servers may report one change with the same time, operation, queue and fields.
    """

    operation: str
    queue: str
    fields: Mapping[str, object]
    caller: NamedCaller
    source: str = ""
    address: str = ""
    outcome: ChangeOutcome = ChangeOutcome.OK
    detail: str = ""
    jobs: int | None = None
    at_ms: int | None = None
