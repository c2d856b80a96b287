"""Administrative calls leave a line each in the log, and an entry in the audit, whether they took effect or were refused: who asked, for
what, what became of it.

An allow-list says which arguments are shown, so that a new argument is not logged by accident: never a password, never what a body or
a pattern for bodies holds. Values are fields of the line, which the formatters of `supervision.logs` escape and cut, so no caller's
text can forge a line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pinlater.domain.access import Role
from pinlater.domain.audit import ADMIN_PASSWORD, NO_TOKEN, AuditCaller, AuditEntry, AuditOutcome
from pinlater.domain.caller_address import named_address, shown_address
from pinlater.domain.errors import (
    CallerError,
    OutcomeUnknown,
    PinLaterError,
    TokenInvalid,
    TokenRequired,
    Unavailable,
    code_of,
)
from pinlater.wire.generated.structs import SPECS

logger = logging.getLogger(__name__)

Fields = Mapping[str, object]
OK, INTERRUPTED = "ok", "interrupted"
TEXT_MAX = 200  # characters of a caller's text in an entry


def _nothing(_: Any) -> Fields:
    return {}


class Audited(NamedTuple):
    """What the line of one method's calls shows.

    `asked`: fields of the arguments; `queue` is one of them.
    `affected`: how many jobs the answer says were affected; None if it says nothing of that.
    `answered`: fields of the answer.
    `takes_password`: whether the admin password may take the place of a role.
    """

    asked: Callable[[Any], Fields]
    affected: Callable[[Any], int] | None = None
    answered: Callable[[Any], Fields] = _nothing
    takes_password: bool = False


def given(request: Any, *fields: str) -> Fields:
    """Returns those of the fields that a request has, under the IDL's names, which operators know."""
    names = {entry[2]: entry[4] for entry in SPECS[type(request)] if entry is not None}
    return {names[field]: value for field in fields if (value := getattr(request, field)) is not None}


class AuditCall(NamedTuple):
    """One administrative call. `arguments` are those of the wire; `peer` and `host`: where its connection came from."""

    audited: Audited
    method: str
    arguments: Any
    peer: str
    host: str
    caller: AuditCaller


def succeeded(call: AuditCall, answer: object) -> AuditEntry:
    """The call took effect, as its answer says."""
    affected = None if call.audited.affected is None else call.audited.affected(answer)
    answered = call.audited.answered(answer)
    _log(call, {**answered, "outcome": OK} if affected is None else {**answered, "outcome": OK, "jobs": affected})
    return _entry(call, AuditOutcome.OK, jobs=affected, answered=answered)


def refused(call: AuditCall, error: PinLaterError) -> AuditEntry | None:
    """The call was answered with an error. No entry for a caller without rights, who could push others' entries out: the log has it."""
    code = code_of(error).name
    _log(call, {"outcome": code, "detail": error.detail})
    if isinstance(error, TokenInvalid | TokenRequired):
        return None
    return _entry(call, _outcome_of(error), code if error.detail in ("", code) else f"{code} {error.detail}")


def interrupted(call: AuditCall) -> AuditEntry:
    """The call was cut off by the end of the server or of its connection, and may or may not have taken effect."""
    _log(call, {"outcome": INTERRUPTED})
    return _entry(call, AuditOutcome.UNKNOWN, INTERRUPTED)


def _outcome_of(error: PinLaterError) -> AuditOutcome:
    if isinstance(error, CallerError):
        return AuditOutcome.REFUSED
    if isinstance(error, Unavailable) and not isinstance(error, OutcomeUnknown):
        return AuditOutcome.FAILED
    return AuditOutcome.UNKNOWN


def _entry(
    call: AuditCall, outcome: AuditOutcome, detail: str = "", jobs: int | None = None, answered: Fields | None = None
) -> AuditEntry:
    fields = dict(call.audited.asked(call.arguments)) | dict(answered or {})
    queue = str(fields.pop("queue"))
    who, roles = call.caller
    if call.audited.takes_password and Role.ADMIN.value not in roles and outcome is not AuditOutcome.REFUSED:
        fields["admin_password"] = True  # which was the right one
        who = ADMIN_PASSWORD if who == NO_TOKEN else who
    return AuditEntry(
        "",
        0,
        who,
        roles,
        call.arguments.context.source[:TEXT_MAX],
        shown_address(call.arguments.context.caller_address or "", call.host)[:TEXT_MAX],
        call.method,
        queue[:TEXT_MAX],
        _as_json(fields),
        jobs,
        outcome.value,
        (detail or "")[:TEXT_MAX],
    )


def _as_json(fields: Fields) -> str:
    """Numbers, words and flags of our own: short. JSON has no infinite numbers, so these are texts."""
    try:
        return json.dumps(fields, allow_nan=False)
    except ValueError:
        return json.dumps({name: str(value) for name, value in fields.items()})


def _log(call: AuditCall, became: Fields) -> None:
    context = call.arguments.context
    who = {
        "method": call.method,
        "source": context.source,
        "request_id": context.request_id,
        "peer": call.peer,
        "who": call.caller.who,
    }
    if client := named_address(context.caller_address or ""):
        who["client"] = client
    logger.info("administrative call", extra=who | dict(call.audited.asked(call.arguments)) | dict(became))
