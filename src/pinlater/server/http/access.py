"""Which requests are answered: it depends on their tokens (`Authorization: Bearer`, RFC 6750), and on the host that they name."""

from __future__ import annotations

from pinlater.domain.access import needed_for
from pinlater.domain.errors import AccessDenied, TokenInvalid, TokenRequired
from pinlater.domain.host_names import host_name, is_loopback
from pinlater.server.access.control import AccessControl
from pinlater.server.http.messages import Request, Response, text_response
from pinlater.server.http.settings import HttpSettings

_STATISTICS = "getQueueStats"  # the pages show the same as this method, for all queues


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
    """Answers 401 to a request whose token is missing or invalid, and 403 to one whose token lacks the role."""
    if isinstance(error, TokenRequired):
        return text_response(f"{error.message}\n", 401, {"WWW-Authenticate": "Bearer"})
    if isinstance(error, TokenInvalid):
        return text_response(f"{error.message}\n", 401, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
    return text_response(f"{error.message}\n", 403)


def permits_host(settings: HttpSettings, host_header: str | None) -> bool:
    """Returns whether a request with this header is answered. A web page may make one through a host name of its own that resolves to
    this machine (DNS rebinding).

    Only loopback listeners refuse some: a server on a network has host names that it does not know, and needs access control anyway.
    A request without a Host header (HTTP/1.0) comes from no browser.
    """
    if host_header is None or not is_loopback(settings.host):
        return True
    named = host_name(host_header.strip())
    allowed = {name.lower() for name in (settings.host, *settings.allowed_hosts)}
    return named is not None and (named.name in allowed or is_loopback(named.name))
