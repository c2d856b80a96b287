"""From an HTTP request to a page or an action, and its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pinlater.client.errors import PinLaterError
from pinlater.console import problems
from pinlater.console.counted_response import CountedResponse
from pinlater.console.pages.api import Api
from pinlater.console.pages.notices import Notices
from pinlater.console.pages.page import Action, Goto, PageCall, SitePage, with_fields
from pinlater.console.pages.rendering import environment, rendered, static_files
from pinlater.console.pages.routes import ACTIONS, PAGES, SECTIONS
from pinlater.console.problems import RequestRefused, invalid, no_memory, refused
from pinlater.console.reading import bearer_of, body_of
from pinlater.console.shapes.problem import Problem
from pinlater.domain.byte_budget import ByteBudget

HTML, FORM = "text/html", "application/x-www-form-urlencoded"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # without a referrer a browser sends no origin with a form
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
DONE = "done"  # the field of a URL with the name of a notice
_FORM_BYTES_MAX, _FORM_FIELDS_MAX = 64 * 1024, 50


class Navigation(NamedTuple):
    """`current`: the section of the page. `notice`: what an action did."""

    sections: Mapping[str, str]
    current: str
    notice: str
    path: str


class Site:
    """The pages with what their requests share. `budget`: of the console."""

    def __init__(self, api: Api, now_ms: Callable[[], int], budget: ByteBudget) -> None:
        self._api = api
        self._now_ms = now_ms
        self._budget = budget
        self._static = static_files()
        self._templates = environment(self._static)
        self._notices = Notices()

    def routes(self) -> list[Route]:
        """Of all pages, actions and static files."""
        return [
            Route("/static/{name}", self._file, methods=["GET"]),
            *(Route(page.path, self._page(page), methods=["GET"]) for page in PAGES),
            *(Route(action.path, self._action(action), methods=["POST"]) for action in ACTIONS),
        ]

    def error_of(self, request: Request, problem: Problem) -> Response:
        """A page that says what went wrong."""
        return self._answer("error.html", self._navigation(request, ""), problem.status, problem=problem)

    def _page(self, page: SitePage) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            given = {name: value for name, value in request.query_params.items() if value and name != DONE}
            shown = await page.show(self._call(request, given))
            if isinstance(shown, Goto):
                return self._redirect(shown)
            return self._answer(page.template, self._navigation(request, page.section), HTTPStatus.OK, view=shown)

        return self._guarded(answer)

    def _action(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            async with body_of(request, self._budget) as data:
                given = _form(request, data)
            return self._redirect(await action.act(self._call(request, given)))

        return self._guarded(answer)

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                return await answer(request)
            except RequestRefused as error:
                return self.error_of(request, error.problem)
            except PinLaterError as error:
                return self.error_of(request, problems.problem_of(error))
            except ClientDisconnect:
                return Response(status_code=problems.GONE)

        return guarded

    def _call(self, request: Request, given: Mapping[str, str]) -> PageCall:
        names = request.path_params
        api = self._api.with_token(bearer_of(request))
        return PageCall(api, self._now_ms(), names.get("queue", ""), names.get("descriptor", ""), given)

    def _navigation(self, request: Request, section: str) -> Navigation:
        given = [(name, value) for name, value in request.query_params.multi_items() if name != DONE]
        path = with_fields(request.scope["raw_path"].decode("ascii", "replace"), **dict(given))
        return Navigation(SECTIONS, section, self._notices.find(request.query_params.get(DONE, "")), path)

    def _redirect(self, goto: Goto) -> Response:
        done = {DONE: self._notices.keep(goto.message, self._now_ms())} if goto.message else {}
        path, _, query = goto.path.partition("?")
        return RedirectResponse(with_fields(path, **dict(parse_qsl(query)), **done), HTTPStatus.SEE_OTHER, HEADERS)

    def _answer(self, template: str, navigation: Navigation, status: int, **values: Any) -> Response:
        now_ms = self._now_ms()
        data = rendered(self._templates, template, navigation=navigation, now_ms=now_ms, **values)
        response = CountedResponse(self._budget, data, status, HTML)
        if not response.fits:
            return problems.response_of(no_memory("the page").problem)
        response.headers.update(HEADERS)
        return response

    async def _file(self, request: Request) -> Response:
        found = self._static.get(request.path_params["name"])
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        response = CountedResponse(self._budget, found.content, HTTPStatus.OK, found.media_type)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def wants_page(request: Request) -> bool:
    """Whether an error is for a person: no part of the API, and a browser asks."""
    return not request.url.path.startswith("/v1/") and HTML in request.headers.get("accept", "")


def _form(request: Request, data: bytes) -> dict[str, str]:
    """The fields of a form that are not empty."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in ("", FORM):
        raise refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", f"A form is {FORM}")
    if len(data) > _FORM_BYTES_MAX:
        raise refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "BODY_TOO_LARGE", "The form is too large")
    try:
        return dict(parse_qsl(data.decode(), max_num_fields=_FORM_FIELDS_MAX, errors="strict"))
    except ValueError as error:
        raise invalid("form", f"The form can't be read: {error}") from None
