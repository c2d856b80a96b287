"""The event that an administrative change has ended: an operator's call, a change that a server carried out by itself, or a file that it
took over. Features listen to it (`Parts.change_listeners`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from pinlater.domain.caller_names import NamedCaller


class ChangeOutcome(str, Enum):  # noqa: UP042 - also the words of the wire, of commands and of pages
    """What became of a change."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


class AdministrativeChange(NamedTuple):
    """A change that was asked for, without bodies and secrets. Its texts are short.

    `operation`: the method of the protocol, or another word for what no call asked for.
    `queue`: empty for a change of none.
    `fields`: what was asked for and answered, by the names that operators know.
    `caller`: who asked for it, or the file that changed.
    `source`: what the caller calls itself, or the file.
    `address`: where the call or the command came from.
    `outcome`, `detail`: what became of it; of a refusal or failure its code, with what is finer.
    `jobs`: how many were changed; None where that is not counted.
    `at_ms`: when it took place; None for now. Several servers may tell of one change with the same time, operation, queue and fields.
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
