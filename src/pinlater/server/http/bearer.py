"""Tokens of HTTP requests: `Authorization: Bearer`, as RFC 6750 says."""

from __future__ import annotations

from pinlater.domain.access import needed_for
from pinlater.domain.errors import AccessDenied, TokenInvalid, TokenRequired
from pinlater.server.access.control import AccessControl
from pinlater.server.http.messages import Request, Response, text_response

_STATISTICS = "getQueueStats"  # the pages show what this method does, of all queues


def check_access(access: AccessControl, request: Request) -> None:
    """Raises AccessDenied unless the request's token, or a request without one, may see statistics of all queues."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    grant = access.grant_of(secret.strip() if scheme.lower() == "bearer" else "")
    if _STATISTICS not in grant.allowed:
        what = f"{request.path[:100]} needs the role {needed_for(_STATISTICS)}"
        raise (
            AccessDenied(f"{what}; token {grant.name} lacks it")
            if grant.name
            else TokenRequired(f"{what}; send a token")
        )
    if not grant.all_queues:
        raise AccessDenied(f"{request.path[:100]} shows all queues; token {grant.name} is for some only")


def refusal(error: AccessDenied) -> Response:
    """401 for a request whose token is missing or no good, 403 for one whose token lacks the role."""
    if isinstance(error, TokenRequired):
        return text_response(f"{error.message}\n", 401, {"WWW-Authenticate": "Bearer"})
    if isinstance(error, TokenInvalid):
        return text_response(f"{error.message}\n", 401, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
    return text_response(f"{error.message}\n", 403)
