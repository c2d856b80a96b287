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
from pinlater.domain.bulk_runs import BulkAction
from pinlater.domain.caller_address import named_address, shown_address
from pinlater.domain.errors import CallerError, OutcomeUnknown, PinLaterError, TokenInvalid, TokenRequired, Unavailable
from pinlater.domain.job import JobState, Outcome
from pinlater.server.thrift.failures import code_of
from pinlater.wire.queue_settings import WIRE_NAMES

logger = logging.getLogger(__name__)

Fields = Mapping[str, object]
OK, INTERRUPTED = "ok", "interrupted"
_TEXT_MAX = 200  # characters of a caller's text in an entry
_DELETE_QUEUE = "deleteQueue"
_RATE_LIMIT = "maxJobsPerSecond"
_TASKS_MAX = 5
_MOVED_MAX = 5
_STATES = {int(state): state.name for state in JobState}
_ACTIONS = {number: action.value for number, action in enumerate(BulkAction)}


def _nothing(_: Any) -> Fields:
    return {}


class Audited(NamedTuple):
    """What the line of one method's calls shows: fields of the arguments, how many jobs the answer says were affected, and fields of the
    answer."""

    asked: Callable[[Any], Fields]
    affected: Callable[[Any], int] | None = None
    answered: Callable[[Any], Fields] = _nothing


def _retry_failed_jobs(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queueName,
        "priority": request.priority,
        "limit": request.limit,
        **_given(request, "attemptsToAllow", "runAfterTimestampMillis", "skipCancelled"),
    }


def _delete_jobs(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queueName,
        "state": _STATES.get(request.jobState, request.jobState),
        "priority": request.priority,
        "by_regex": request.bodyRegexToMatch is not None,
        "limit": request.limit,
    }


def _given(request: Any, *fields: str) -> Fields:
    return {field: value for field in fields if (value := getattr(request, field)) is not None}


def _run_jobs(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queueName,
        "named": len(request.jobDescriptors),
        **_given(request, "attemptsToAllow", "runAfterTimestampMillis"),
    }


def _change_priority(call: Any) -> Fields:
    request = call.request
    return {"queue": request.queueName, "named": len(request.jobDescriptors), "priority": request.priority}


def _moved(answer: Any) -> Fields:
    """Some of the jobs, with their descriptors before and afterwards: the entry is all that leads from the one to the other."""
    moved = [job for job in answer if job.outcome == Outcome.APPLIED and job.movedTo != job.descriptor]
    return {"moved": [f"{job.descriptor} to {job.movedTo}" for job in moved[:_MOVED_MAX]]}


def _named_jobs(call: Any) -> Fields:
    return {"queue": call.queueName, "named": len(call.jobDescriptors)}


def _configure_queue(call: Any) -> Fields:
    """All settings that the queue has from now on. The rate limit is told also where there is none, so that its removal can be seen."""
    limit = {_RATE_LIMIT: call.config.maxJobsPerSecond}
    return {"queue": call.queueName, **limit, **_given(call.config, *WIRE_NAMES.values())}


def _queue_made(call: Any) -> Fields:
    return {"queue": call.name}


def _queue_named(call: Any) -> Fields:
    return {"queue": call.queueName}


def _mark(call: Any) -> Fields:
    return {"queue": call.mark.queueName or "", "at_ms": call.mark.atMillis, "text": call.mark.text[:_TEXT_MAX]}


def _start_bulk_run(call: Any) -> Fields:
    order, chosen = call.order, call.order.filter
    if order.undoes:  # of the filter nothing counts
        undoes = {"action": _ACTIONS.get(order.action, order.action), "undoes": order.undoes[:_TEXT_MAX]}
        return {"queue": order.queueName, **undoes, **_given(order, "jobsPerSecond")}
    return {
        "queue": order.queueName,
        "action": _ACTIONS.get(order.action, order.action),
        "state": _STATES.get(chosen.jobState, chosen.jobState),
        "by_regex": chosen.bodyRegexToMatch is not None,
        "by_error": bool(chosen.errorText),
        "headers": len(chosen.headers or ()),
        "tasks": [task[:_TEXT_MAX] for task in (chosen.tasks or ())[:_TASKS_MAX]],
        "group": (chosen.groupName or "")[:_TEXT_MAX],
        **_given(order, "attemptsToAllow", "jobsPerSecond", "forGood"),
        **_given(chosen, "priority", "minAttempts", "enqueuedFromMillis", "enqueuedBeforeMillis", "skipCancelled"),
    }


def _stop_bulk_run(call: Any) -> Fields:
    return {"queue": call.queueName, "run": call.runId[:_TEXT_MAX]}


def _mute(call: Any) -> Fields:
    return {"queue": call.mute.queueName, "group": call.mute.name[:_TEXT_MAX], **_given(call.mute, "untilMillis")}


def _applied(answer: Any) -> int:
    return sum(each.outcome == Outcome.APPLIED for each in answer)


AUDITED: dict[str, Audited] = {
    "createQueue": Audited(_queue_made),
    "deleteQueue": Audited(_queue_made),
    "addDeployMark": Audited(_mark),
    "muteFailures": Audited(_mute),
    "startBulkRun": Audited(_start_bulk_run),
    "stopBulkRun": Audited(_stop_bulk_run),
    "configureQueue": Audited(_configure_queue),
    "pauseQueue": Audited(_queue_named),
    "resumeQueue": Audited(_queue_named),
    "retryFailedJobs": Audited(_retry_failed_jobs, int),
    "deleteJobs": Audited(_delete_jobs, int),
    "deleteJobsByDescriptor": Audited(_named_jobs, int),
    "cancelJobs": Audited(_named_jobs, _applied),
    "runJobs": Audited(_run_jobs, _applied),
    "changePriority": Audited(_change_priority, _applied, _moved),
}


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
    if call.method == _DELETE_QUEUE and Role.ADMIN.value not in roles and outcome is not AuditOutcome.REFUSED:
        fields["admin_password"] = True  # which was the right one
        who = ADMIN_PASSWORD if who == NO_TOKEN else who
    return AuditEntry(
        "",
        0,
        who,
        roles,
        call.arguments.requestContext.source[:_TEXT_MAX],
        shown_address(call.arguments.requestContext.callerAddress or "", call.host)[:_TEXT_MAX],
        call.method,
        queue[:_TEXT_MAX],
        _as_json(fields),
        jobs,
        outcome.value,
        (detail or "")[:_TEXT_MAX],
    )


def _as_json(fields: Fields) -> str:
    """Numbers, words and flags of our own: short. JSON has no infinite numbers, so these are texts."""
    try:
        return json.dumps(fields, allow_nan=False)
    except ValueError:
        return json.dumps({name: str(value) for name, value in fields.items()})


def _log(call: AuditCall, became: Fields) -> None:
    context = call.arguments.requestContext
    who = {
        "method": call.method,
        "source": context.source,
        "request_id": context.requestId,
        "peer": call.peer,
        "who": call.caller.who,
    }
    if client := named_address(context.callerAddress or ""):
        who["client"] = client
    logger.info("administrative call", extra=who | dict(call.audited.asked(call.arguments)) | dict(became))
