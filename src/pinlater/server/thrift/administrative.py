"""Administrative calls are logged, a line each, and reported to listeners, whether they took effect or were refused: the caller, the
request, the outcome.

An allow-list names the arguments that are shown, so that a new argument is not logged by accident: never a password, never the content of
a body or a pattern for bodies. Values are fields of the line, which the formatters of `supervision.logs` escape and truncate, so no
caller's text can forge a line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pinlater.domain.access import Role
from pinlater.domain.caller_address import named_address, shown_address
from pinlater.domain.caller_names import ADMIN_PASSWORD, NO_TOKEN, NamedCaller
from pinlater.domain.errors import (
    CallerError,
    OutcomeUnknown,
    PinLaterError,
    TokenInvalid,
    TokenRequired,
    Unavailable,
    code_of,
)
from pinlater.server.operations.changes import AdministrativeChange, ChangeOutcome
from pinlater.wire.generated.structs import SPECS

logger = logging.getLogger(__name__)

Fields = Mapping[str, object]
OK, INTERRUPTED = "ok", "interrupted"
TEXT_MAX = 200  # characters of a caller's text


def _nothing(_: Any) -> Fields:
    return {}


class Administrative(NamedTuple):
    """The fields in the line of one method's calls.

    `asked`: fields of the arguments; `queue` is one of them.
    `affected`: how many jobs were affected according to the answer; None if it does not contain that.
    `answered`: fields of the answer.
    `takes_password`: whether the admin password may replace a role.
    `tells_refusals`: whether listeners learn of refused calls. Not if programs repeat such calls, which would displace other entries.
    """

    asked: Callable[[Any], Fields]
    affected: Callable[[Any], int] | None = None
    answered: Callable[[Any], Fields] = _nothing
    takes_password: bool = False
    tells_refusals: bool = True


def given(request: Any, *fields: str) -> Fields:
    """Returns those of the fields that a request has, under the IDL's names, which operators know."""
    names = {entry[2]: entry[4] for entry in SPECS[type(request)] if entry is not None}
    return {names[field]: value for field in fields if (value := getattr(request, field)) is not None}


class AdministrativeCall(NamedTuple):
    """One administrative call. `arguments` are those of the wire; `peer` and `host`: the origin of its connection."""

    shown: Administrative
    method: str
    arguments: Any
    peer: str
    host: str
    caller: NamedCaller


def succeeded(call: AdministrativeCall, answer: object) -> AdministrativeChange:
    """The call took effect, according to its answer."""
    affected = None if call.shown.affected is None else call.shown.affected(answer)
    answered = call.shown.answered(answer)
    _log(call, {**answered, "outcome": OK} if affected is None else {**answered, "outcome": OK, "jobs": affected})
    return _change(call, ChangeOutcome.OK, jobs=affected, answered=answered)


def refused(call: AdministrativeCall, error: PinLaterError) -> AdministrativeChange | None:
    """The call was answered with an error. None if listeners are not told, as for a caller without rights, which could fill memories with
    it: it is in the log."""
    code = code_of(error).name
    _log(call, {"outcome": code, "detail": error.detail})
    if isinstance(error, TokenInvalid | TokenRequired) or not call.shown.tells_refusals:
        return None
    return _change(call, _outcome_of(error), code if error.detail in ("", code) else f"{code} {error.detail}")


def interrupted(call: AdministrativeCall) -> AdministrativeChange:
    """The call was interrupted by the end of the server or of its connection, and may or may not have taken effect."""
    _log(call, {"outcome": INTERRUPTED})
    return _change(call, ChangeOutcome.UNKNOWN, INTERRUPTED)


def _outcome_of(error: PinLaterError) -> ChangeOutcome:
    if isinstance(error, CallerError):
        return ChangeOutcome.REFUSED
    if isinstance(error, Unavailable) and not isinstance(error, OutcomeUnknown):
        return ChangeOutcome.FAILED
    return ChangeOutcome.UNKNOWN


def _change(
    call: AdministrativeCall,
    outcome: ChangeOutcome,
    detail: str = "",
    jobs: int | None = None,
    answered: Fields | None = None,
) -> AdministrativeChange:
    fields = dict(call.shown.asked(call.arguments)) | dict(answered or {})
    queue = str(fields.pop("queue"))[:TEXT_MAX]
    caller, context = call.caller, call.arguments.context
    if call.shown.takes_password and Role.ADMIN.value not in caller.roles and outcome is not ChangeOutcome.REFUSED:
        fields["admin_password"] = True  # the right one: with a wrong one, the call is refused
        caller = caller._replace(who=ADMIN_PASSWORD) if caller.who == NO_TOKEN else caller
    source = context.source[:TEXT_MAX]
    address = shown_address(context.caller_address or "", call.host)[:TEXT_MAX]
    return AdministrativeChange(call.method, queue, fields, caller, source, address, outcome, detail[:TEXT_MAX], jobs)


def _log(call: AdministrativeCall, became: Fields) -> None:
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
    logger.info("administrative call", extra=who | dict(call.shown.asked(call.arguments)) | dict(became))
