"""The ASGI application: finds the endpoint of a request, reads the request, calls the endpoint, writes the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pinlater.client import AsyncClient
from pinlater.client.errors import PinLaterError
from pinlater.console import costs, problems
from pinlater.console.arrival import Arrivals, arrival_of
from pinlater.console.browser_guard import BrowserGuard, check_page_sender
from pinlater.console.counted_response import CountedResponse
from pinlater.console.endpoint import ApiCall, Content, Endpoint
from pinlater.console.forwarded_users import ForwardedUsers
from pinlater.console.openapi import document
from pinlater.console.pages.api import Api
from pinlater.console.pages.shared_answers import SharedAnswers
from pinlater.console.pages.site import Site, wants_page
from pinlater.console.pages.visitors import Visitors
from pinlater.console.poll_limit import PollLimit
from pinlater.console.problems import Problem, RequestRefused, no_memory
from pinlater.console.reading import BYTES, JSON, bearer_of, body_of, content_of, decoded, header_of, query_of
from pinlater.console.routes import ENDPOINTS
from pinlater.console.sessions import Sessions
from pinlater.domain.byte_budget import ByteBudget
from pinlater.domain.link_urls import NO_LINKS, LinkUrls
from pinlater.domain.trusted_proxies import USER_HEADER

T = TypeVar("T")
_BYTES_MAX = 256 * 1024 * 1024
OPENAPI_PATH = "/v1/openapi.json"
_NO_SUCH_PATH = f"There is no such endpoint or page; {OPENAPI_PATH} describes the endpoints"


class Console:
    """The application with the data that its requests share. It has no rights of its own: each request's token goes to the servers, which
    decide.

    `client` is opened and closed with the application.

    `now_ms`: this machine's clock, which never jumps. `hosts`, `names`: the names that callers use for this console, as in `BrowserGuard`.
    `guest_token`: people without a log-in see what this token may see; '' means nothing. `links`: from jobs to their traces and their
    code.
    `proxies`: the networks of trusted proxies. `user_header`: the header in which they name users, and `user_token`: the token for calls
    on behalf of these; None ignores users of proxies. Raises ValueError for an invalid network or header name.
    """

    def __init__(
        self,
        client: AsyncClient,
        now_ms: Callable[[], int],
        hosts: Collection[str] | None,
        guest_token: Callable[[], str] = str,
        links: LinkUrls = NO_LINKS,
        proxies: Sequence[str] = (),
        user_header: str = USER_HEADER,
        user_token: Callable[[], str] | None = None,
        names: Collection[str] = (),
    ) -> None:
        self._client = client
        self._now_ms = now_ms
        self.budget = ByteBudget(_BYTES_MAX)
        self.poll_limit = PollLimit()
        self._stopping = False
        self.sessions = Sessions(now_ms)
        self._forwarded = ForwardedUsers(user_token or str)
        visitors = Visitors(client, self.sessions, now_ms, guest_token, self._forwarded)
        api = Api(client, self._api_call, self.budget, SharedAnswers(now_ms))
        self._site = Site(api, visitors, now_ms, self.budget, links)
        starlette = Starlette(
            routes=[*self._routes(), Route(OPENAPI_PATH, _openapi), *self._site.routes()],
            exception_handlers={HTTPException: self._not_routed, Exception: _failed},
            lifespan=self._lifespan,
        )
        starlette.router.redirect_slashes = False  # another path is a 404 as in the document
        arrivals = Arrivals(proxies, user_header if user_token else "", lambda: now_ms() / 1000)
        self.app = BrowserGuard(starlette, hosts, names, arrivals, self._refusal)

    def stop(self) -> None:
        """Ends long polls, with the jobs that the servers have answered or without jobs. Other requests continue."""
        self._stopping = True
        self._client.hang_up()

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with self._client:
            yield

    def _routes(self) -> list[Route]:
        """Returns one route for each path, so that another method on it gets a 405 with all allowed ones. Fixed paths come before
        patterns.
        """
        by_path = groupby(sorted(ENDPOINTS, key=lambda one: ("{" in one.path, one.path)), key=attrgetter("path"))
        return [self._route(path, list(endpoints)) for path, endpoints in by_path]

    def _route(self, path: str, endpoints: Sequence[Endpoint[Any, Any, Any]]) -> Route:
        by_method = {endpoint.method: endpoint for endpoint in endpoints}

        async def answer(request: Request) -> Response:
            return await self._answer(by_method["GET" if request.method == "HEAD" else request.method], request)

        return Route(path, answer, methods=list(by_method))

    async def _answer(self, endpoint: Endpoint[Any, Any, Any], request: Request) -> Response:
        try:
            client = self._client_of(request)
            query = query_of(request, endpoint.query)
            header = header_of(request, endpoint.header)
            async with body_of(request, self.budget) as data:
                content = endpoint.body is Content
                body = content_of(request, data) if content else decoded(request, data, endpoint.body)
                call = self._call(request, client, header, query, body)
                with costs.reserved(self.budget, endpoint, call):
                    result = await self._result(endpoint, request, call)
                    response = _response(endpoint, result, self.budget)
                if response.fits or not endpoint.changes_nothing:
                    return response
                if endpoint.give_back is not None:
                    await endpoint.give_back(call, result)
                raise no_memory("the answer")
        except RequestRefused as error:
            return problems.response_of(error.problem)
        except PinLaterError as error:
            return problems.response_of(problems.problem_of(error))
        except ClientDisconnect:
            return Response(status_code=problems.GONE)

    def _client_of(self, request: Request) -> AsyncClient:
        """Returns a client with the rights of the token in the request, or of the user that a trusted proxy names.

        A browser sends no token by itself. A proxy also names the user in a request that another site's page makes, so a change must
        prove its origin, as a form must."""
        bearer = bearer_of(request)
        caller = arrival_of(request)
        if bearer or not caller.user:
            return caller._replace(user="").calls_of(self._client, bearer)
        check_page_sender(request.method, request.headers, caller)
        return caller.calls_of(self._client, self._forwarded.token)

    def _call(self, request: Request, client: AsyncClient, header: str, query: Any, body: Any) -> ApiCall[Any, Any]:
        names = request.path_params
        queue, descriptor = names.get("queue", ""), names.get("descriptor", "")
        return self._api_call(client, queue=queue, descriptor=descriptor, header=header, query=query, body=body)

    def _api_call(self, client: AsyncClient, **request: Any) -> ApiCall[Any, Any]:
        return ApiCall(client, self._now_ms(), lambda: self._stopping, self.poll_limit, **request)

    async def _result(self, endpoint: Endpoint[Any, Any, T], request: Request, call: ApiCall[Any, Any]) -> T:
        if endpoint.give_back is None:
            return await endpoint.act(call)
        acting = asyncio.create_task(endpoint.act(call))
        gone = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait({acting, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                return acting.result()
            call.client.hang_up()
            with suppress(PinLaterError):
                await endpoint.give_back(call, await acting)
            raise ClientDisconnect
        finally:
            await _cancel(acting, gone)

    async def _not_routed(self, request: Request, error: Exception) -> Response:
        """Answers a path without an endpoint or page, or a method that none on the path has."""
        status = getattr(error, "status_code", HTTPStatus.NOT_FOUND)
        headers: Mapping[str, str] = getattr(error, "headers", None) or {}
        detail = _NO_SUCH_PATH if status == HTTPStatus.NOT_FOUND else ""
        if "Allow" in headers:
            methods = ", ".join(sorted(headers["Allow"].split(", ")))
            detail = f"This path takes {methods} only; /v1/openapi.json describes the endpoints"
        problem = problems.problem_of_status(status, detail)
        response = self._site.error_of(request, problem) if wants_page(request) else problems.response_of(problem)
        response.headers.update(headers)
        return response

    def _refusal(self, request: Request, problem: Problem) -> Response:
        """The answer to a request that the guard refuses."""
        return self._site.refusal_of(request, problem) if wants_page(request) else problems.response_of(problem)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _openapi(request: Request) -> Response:
    servers = [{"url": arrival_of(request).prefix or "/"}]
    return Response(json.encode({**document(), "servers": servers}), media_type=JSON)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _response(endpoint: Endpoint[Any, Any, Any], result: Any, budget: ByteBudget) -> CountedResponse:
    if isinstance(result, Content):
        response = CountedResponse(budget, result.data, endpoint.status, BYTES)
        response.headers["Content-Disposition"] = "attachment"
        return response
    data = b"" if result is None else json.encode(result)
    return CountedResponse(budget, data, endpoint.status, None if result is None else JSON)


async def _failed(_request: Request, _error: Exception) -> Response:
    """An error of the console itself, which uvicorn logs."""
    return problems.response_of(problems.problem_of_status(500, "The console failed; its log says why."))
