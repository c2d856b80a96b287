"""Administrative calls leave a line each in the log, whether they took effect or were refused: who asked, for what, what became of it.

An allow-list says which arguments are shown, so that a new argument is not logged by accident: never a password, never what a body or
a pattern for bodies holds. Values are fields of the line, which the formatters of `supervision.logs` escape and cut, so no caller's
text can forge a line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import JobState, Outcome
from pinlater.server.thrift.failures import code_of
from pinlater.wire.queue_settings import WIRE_NAMES

logger = logging.getLogger(__name__)

Fields = Mapping[str, object]
OK, INTERRUPTED = "ok", "interrupted"
_STATES = {int(state): state.name for state in JobState}


class Audited(NamedTuple):
    """What the line of one method's calls shows: fields of the arguments, and how many jobs the answer says were affected."""

    asked: Callable[[Any], Fields]
    affected: Callable[[Any], int] | None = None


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


def _named_jobs(call: Any) -> Fields:
    return {"queue": call.queueName, "named": len(call.jobDescriptors)}


def _configure_queue(call: Any) -> Fields:
    config = {name: getattr(call.config, name) for name in WIRE_NAMES.values()}
    return {"queue": call.queueName} | {name: value for name, value in config.items() if value is not None}


def _queue_made(call: Any) -> Fields:
    return {"queue": call.name}


def _queue_named(call: Any) -> Fields:
    return {"queue": call.queueName}


def _mark(call: Any) -> Fields:
    return {"queue": call.mark.queueName or "", "at_ms": call.mark.atMillis, "text": call.mark.text}


def _applied(answer: Any) -> int:
    return sum(each.outcome == Outcome.APPLIED for each in answer)


AUDITED: dict[str, Audited] = {
    "createQueue": Audited(_queue_made),
    "deleteQueue": Audited(_queue_made),
    "addDeployMark": Audited(_mark),
    "configureQueue": Audited(_configure_queue),
    "pauseQueue": Audited(_queue_named),
    "resumeQueue": Audited(_queue_named),
    "retryFailedJobs": Audited(_retry_failed_jobs, int),
    "deleteJobs": Audited(_delete_jobs, int),
    "deleteJobsByDescriptor": Audited(_named_jobs, int),
    "cancelJobs": Audited(_named_jobs, _applied),
    "runJobs": Audited(_run_jobs, _applied),
}


def succeeded(audited: Audited, method: str, call: Any, peer: str, answer: object) -> None:
    """The call took effect, as its answer says."""
    affected: Fields = {} if audited.affected is None else {"jobs": audited.affected(answer)}
    _log(audited, method, call, peer, {"outcome": OK, **affected})


def refused(audited: Audited, method: str, call: Any, peer: str, error: PinLaterError) -> None:
    """The call was answered with an error."""
    _log(audited, method, call, peer, {"outcome": code_of(error).name, "detail": error.detail})


def interrupted(audited: Audited, method: str, call: Any, peer: str) -> None:
    """The call was cut off by the end of the server or of its connection, and may or may not have taken effect."""
    _log(audited, method, call, peer, {"outcome": INTERRUPTED})


def _log(audited: Audited, method: str, call: Any, peer: str, became: Fields) -> None:
    context = call.context
    who = {"method": method, "source": context.source, "request_id": context.requestId, "peer": peer}
    logger.info("administrative call", extra=who | dict(audited.asked(call)) | dict(became))
