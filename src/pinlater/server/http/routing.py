"""Which handler answers which path. Paths are compared as they came, with a table: no file is ever looked up by a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pinlater.domain.host_names import is_loopback
from pinlater.server.http.messages import Handler, Request, Response, text_response


class Route(NamedTuple):
    """A handler and the methods it takes; HEAD is GET without the body."""

    handler: Handler
    methods: frozenset[str]


class Router:
    """A table of exact paths."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}

    def add(self, path: str, handler: Handler, methods: Iterable[str] = ("GET",)) -> None:
        """Answers `path`. Raises ValueError if it is taken."""
        if path in self._routes:
            raise ValueError(f"{path} has a handler already")
        taken = frozenset(methods)
        self._routes[path] = Route(handler, taken | {"HEAD"} if "GET" in taken else taken)

    def find(self, request: Request) -> Handler | Response:
        """The handler, or the answer that says there is none."""
        route = self._routes.get(request.path)
        if route is None:
            paths = ", ".join(sorted(self._routes))
            return text_response(f"Not found. Here are {paths}; the dashboard and its API have another port\n", 404)
        if request.method not in route.methods:
            return text_response("Method not allowed\n", 405, {"Allow": ", ".join(sorted(route.methods))})
        return route.handler


class HostCheck:
    """Refuses requests that a web page made through a name of its own that points at this machine (DNS rebinding).

    Only for loopback listeners: a server on a network has host names that it does not know, and needs access control anyway.
    A request without a Host header (HTTP/1.0) comes from no browser.
    """

    def __init__(self, listen_host: str, allowed: Iterable[str]) -> None:
        self._guarded = is_loopback(listen_host)
        self._allowed = {name.lower() for name in allowed} | {listen_host.lower()}

    def permits(self, host_header: str | None) -> bool:
        if not self._guarded or host_header is None:
            return True
        name = _without_port(host_header.strip().lower())
        return name in self._allowed or is_loopback(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
