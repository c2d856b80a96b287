"""Errors as RFC 9457 problems: one mapping from the client's errors to status and words, and the console's own refusals."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Annotated, Any

from msgspec import Struct, json
from starlette.responses import Response

from pinlater.client import errors
from pinlater.console.endpoints.fields import doc
from pinlater.domain.errors import UnknownMethod

MEDIA_TYPE = "application/problem+json"
GONE = 499  # the status for a caller that does not read the answer
_RETRY_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_RETRY_AFTER_S = 1  # if the server gives no time

# The first class that an error is an instance of.
STATUSES: dict[type[errors.PinLaterError], HTTPStatus] = {
    errors.QueueNotFound: HTTPStatus.NOT_FOUND,
    errors.PasswordInvalid: HTTPStatus.FORBIDDEN,
    errors.TokenRequired: HTTPStatus.UNAUTHORIZED,
    errors.TokenInvalid: HTTPStatus.UNAUTHORIZED,
    errors.AccessDenied: HTTPStatus.FORBIDDEN,
    errors.BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.TooManyQueues: HTTPStatus.CONFLICT,
    errors.RequestKeyConflict: HTTPStatus.UNPROCESSABLE_ENTITY,
    UnknownMethod: HTTPStatus.NOT_IMPLEMENTED,
    errors.DequeueRateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    errors.QueueFull: HTTPStatus.TOO_MANY_REQUESTS,
    errors.QuotaExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    errors.StoreFull: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.OutcomeUnknown: HTTPStatus.GATEWAY_TIMEOUT,
    errors.ConnectionLost: HTTPStatus.GATEWAY_TIMEOUT,
    errors.DeadlineExceeded: HTTPStatus.GATEWAY_TIMEOUT,
    errors.CallerError: HTTPStatus.BAD_REQUEST,
}
# No server answered, so there is no code; a program needs a word all the same.
_REASONS: dict[type[errors.PinLaterError], str] = {
    errors.ServerUnreachable: "SERVER_UNREACHABLE",
    errors.ConnectionLost: "CONNECTION_LOST",
    errors.DeadlineExceeded: "DEADLINE_EXCEEDED",
}


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, as RFC 9457 describes it, with the words of the protocol."""

    type: Annotated[str, doc("`urn:pinlater:error:` and `reason`.")]
    title: str
    status: int
    detail: Annotated[str, doc("A sentence for people.")]
    code: Annotated[str, doc("The name of the error code of the protocol; empty if no server answered.")]
    reason: Annotated[str, doc("A word for programs, finer than the code.")]
    # No default: it is answered in any case.
    retryable: Annotated[bool, doc("Whether the same request may succeed later.")]
    retry_after_ms: int | None = None
    field: Annotated[str | None, doc("The field, parameter or header that is wrong.")] = None


class RequestRefused(Exception):
    """A request that the console itself refuses, with the problem for its answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def refused(
    status: HTTPStatus, reason: str, detail: str, *, field: str | None = None, retryable: bool = False
) -> RequestRefused:
    """A refusal. `field`: the field, parameter or header that is wrong."""
    return RequestRefused(_problem(status, reason, detail, retryable=retryable, field=field))


def invalid(field: str, detail: str) -> RequestRefused:
    """A refusal because of one field."""
    return refused(HTTPStatus.BAD_REQUEST, errors.InvalidArgument.detail, detail, field=field)


def no_memory(what: str) -> RequestRefused:
    """A refusal because too many requests and answers are in flight."""
    detail = f"The console has no memory free for {what}"
    return refused(HTTPStatus.SERVICE_UNAVAILABLE, "TOO_MANY_WAITING", detail, retryable=True)


def problem_of(error: errors.PinLaterError) -> Problem:
    """The problem for the error of a call to a server."""
    code = "" if error.code is None else error.code.name
    status, reason, retryable = _status_of(error), reason_of(error), error.retryable
    return _problem(status, reason, error.message, retryable=retryable, code=code, retry_after_ms=error.retry_after_ms)


def problem_of_status(status: int, detail: str = "") -> Problem:
    """Returns a problem without details beyond its status."""
    known = HTTPStatus(status)
    return _problem(known, known.name, detail or f"{known.phrase}.", retryable=False)


def response_of(problem: Problem) -> Response:
    """The answer to the caller."""
    return Response(json.encode(problem), problem.status, headers_of(problem), MEDIA_TYPE)


def headers_of(problem: Problem) -> dict[str, str]:
    """Returns the headers of each answer with the problem, in any format: when to try again, and that a token is needed."""
    headers = {}
    if problem.retryable and (problem.retry_after_ms is not None or problem.status in _RETRY_LATER):
        seconds = math.ceil((problem.retry_after_ms or 0) / 1000) or _RETRY_AFTER_S
        headers["Retry-After"] = str(seconds)
    if problem.status == HTTPStatus.UNAUTHORIZED:
        missing = problem.reason == errors.TokenRequired.detail
        headers["WWW-Authenticate"] = "Bearer" if missing else 'Bearer error="invalid_token"'
    return headers


def reason_of(error: errors.PinLaterError) -> str:
    """The word of the error for programs."""
    if error.detail:
        return error.detail
    known = next((word for kind, word in _REASONS.items() if isinstance(error, kind)), "")
    return known or ("UNKNOWN" if error.code is None else error.code.name)


def _status_of(error: errors.PinLaterError) -> HTTPStatus:
    if error.detail == "INTERNAL":
        return HTTPStatus.INTERNAL_SERVER_ERROR
    found = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), None)
    return found or HTTPStatus.SERVICE_UNAVAILABLE


def _problem(status: HTTPStatus, reason: str, detail: str, *, retryable: bool, code: str = "", **more: Any) -> Problem:
    kind, title = f"urn:pinlater:error:{reason}", status.phrase
    return Problem(
        type=kind, title=title, status=status, detail=detail, code=code, reason=reason, retryable=retryable, **more
    )
