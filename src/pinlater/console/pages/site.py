"""Routes an HTTP request to a page or an action, and sends its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pinlater.client.errors import PinLaterError, TokenInvalid, TokenRequired
from pinlater.console import problems
from pinlater.console.arrival import arrival_of
from pinlater.console.browser_guard import STATIC
from pinlater.console.cookies import give_pins, give_session_id, pins_of, session_id_of, take_session_id
from pinlater.console.counted_response import CountedResponse
from pinlater.console.endpoint import Content
from pinlater.console.pages.actions import own_path
from pinlater.console.pages.api import Api
from pinlater.console.pages.login import Logins
from pinlater.console.pages.notices import Notice, Notices
from pinlater.console.pages.page import Action, Goto, PageCall, SitePage, with_fields
from pinlater.console.pages.rendering import environment, rendered, static_files, with_links_below
from pinlater.console.pages.routes import ACTIONS, PAGES, SECTIONS
from pinlater.console.pages.visitors import Visitor, Visitors
from pinlater.console.problems import Problem, RequestRefused, invalid, no_memory, refused
from pinlater.console.reading import BYTES, body_of
from pinlater.domain.byte_budget import ByteBudget
from pinlater.domain.link_urls import LinkUrls

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


EVERY_PAGE_CALLS = "getQueueStats"  # or a method with the same roles
FORM_TOKEN, BACK = "form-token", "back"  # fields of forms
NO_VISITOR = Visitor("")
LOGIN, LOGOUT = "/login", "/logout"


class Navigation(NamedTuple):
    """`current`: the section of the page. `notice`: the result of an action. `path`: of the page. `changes`: whether that was asked for.
    `root`: the URL of the console for the browser, without a slash at the end; pages know only the path below it."""

    sections: Mapping[str, str]
    current: str
    notice: Notice
    path: str
    visitor: Visitor
    changes: bool
    root: str


class Site:
    """The pages with the data that their requests share. `budget`: of the console. `now_ms`: a clock that never jumps.
    `links`: see `Console`."""

    def __init__(
        self, api: Api, visitors: Visitors, now_ms: Callable[[], int], budget: ByteBudget, links: LinkUrls
    ) -> None:
        self._links = links
        self._api = api
        self._visitors = visitors
        self._logins = Logins(visitors, now_ms)
        self._now_ms = now_ms
        self._budget = budget
        self._static = static_files()
        self._templates = environment(self._static)
        self._notices = Notices()

    def routes(self) -> list[Route]:
        """Returns the routes of all pages, actions and static files."""
        return [
            Route(STATIC + "{name}", self._file, methods=["GET"]),
            self._route("GET", LOGIN, self._login_page),
            self._route("POST", LOGIN, self._log_in),
            self._route("POST", LOGOUT, self._log_out),
            *map(self._page, PAGES),
            *map(self._action, ACTIONS),
        ]

    def error_of(self, request: Request, problem: Problem, visitor: Visitor | None = None) -> Response:
        """Returns an error page. `visitor`: the visitor, if known."""
        navigation = self._navigation(request, "", visitor or NO_VISITOR)
        response = self._answer("error.html", navigation, problem.status, problem=problem)
        response.headers.update(problems.headers_of(problem))
        return response

    def refusal_of(self, request: Request, problem: Problem) -> Response:
        """Returns a page for a request whose base URL is unknown. Its links are relative to the page."""
        depth = request.scope["raw_path"].count(b"/") - 1
        navigation = self._navigation(request, "", NO_VISITOR, "/".join([".."] * depth) or ".")
        return self._answer("error.html", navigation, problem.status, problem=problem)

    def _page(self, page: SitePage) -> Route:
        async def answer(request: Request, visitor: Visitor) -> Response:
            given = {name: value for name, value in request.query_params.items() if value and name != DONE}
            shown = await page.show(self._call(request, visitor, given))
            if isinstance(shown, Goto):
                return self._redirect(request, shown)
            if isinstance(shown, Content):
                response = self._counted(shown.data, HTTPStatus.OK, BYTES, "the body")
                response.headers["Content-Disposition"] = "attachment"
                return response
            navigation = self._navigation(request, page.section, visitor)
            return self._answer(page.template, navigation, HTTPStatus.OK, view=shown)

        return self._route("GET", page.path, self._for_visitor(answer))

    def _action(self, action: Action) -> Route:
        async def answer(request: Request, visitor: Visitor) -> Response:
            given = await self._form_of(request, visitor)
            done = await action.act(self._call(request, visitor, given))
            response = self._redirect(request, done)
            if done.pins is not None:
                give_pins(request, response, done.pins)
            return response

        return self._route("POST", action.path, self._for_visitor(answer))

    async def _form_of(self, request: Request, visitor: Visitor) -> dict[str, str]:
        """The fields of a form. Raises RequestRefused unless the form is of a page of this session or user, if there is one."""
        async with body_of(request, self._budget) as data:
            given = _form(request, data)
        if not _is_of(visitor, given.pop(FORM_TOKEN, "")):
            detail = "This form belongs to another log-in, or to no page of this console. Open the page again."
            raise refused(HTTPStatus.FORBIDDEN, "FORM_TOKEN_INVALID", detail, field=FORM_TOKEN)
        return given

    async def _login_page(self, request: Request) -> Response:
        visitor, back = await self._visitors.of(request), request.query_params.get(BACK, "")
        if visitor.caller.user:
            return self._redirect(request, Goto(own_path(back, "/")))
        return self._ask_for_token(request, visitor, HTTPStatus.OK, back)

    async def _log_in(self, request: Request) -> Response:
        caller = self._visitors.seen(request).caller
        if caller.user:  # whose requests no session would change
            detail = (
                f"The proxy before this console says that you are {caller.user}: you cannot log in as another user."
            )
            raise refused(HTTPStatus.CONFLICT, "LOGIN_BY_PROXY", detail)
        async with body_of(request, self._budget) as data:
            given = _form(request, data)
        back = own_path(given.get(BACK, ""), "/")
        try:
            done = await self._logins.log_in(caller, given.get("token", ""))
        except TokenInvalid as error:
            return self._ask_for_token(request, NO_VISITOR, HTTPStatus.UNAUTHORIZED, back, error.message)
        except PinLaterError as error:
            problem = problems.problem_of(error)
            return self._ask_for_token(request, NO_VISITOR, HTTPStatus(problem.status), back, problem.detail)
        self._visitors.sessions.end(session_id_of(request))
        response = self._redirect(request, Goto(back, done.message))
        if done.session_id:
            give_session_id(request, response, done.session_id)
        return response

    async def _log_out(self, request: Request) -> Response:
        await self._form_of(request, self._visitors.seen(request))
        self._visitors.sessions.end(session_id_of(request))
        response = self._redirect(request, Goto(LOGIN, "You are logged out."))
        take_session_id(request, response)
        return response

    def _ask_for_token(
        self, request: Request, visitor: Visitor, status: HTTPStatus, back: str, problem: str = "", again: str = ""
    ) -> Response:
        """The page with the field for a token. `back`: the page to show afterwards. `again`: the page that the browser requests at once."""
        navigation = self._navigation(request, "", visitor)
        response = self._answer(
            "login.html", navigation, status, back=own_path(back, "/"), problem=problem, again=again
        )
        if status == HTTPStatus.UNAUTHORIZED:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def _for_visitor(
        self, answer: Callable[[Request, Visitor], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Identifies the visitor, and shows the log-in page instead if the servers require another token, or any."""

        async def find_and_answer(request: Request) -> Response:
            visitor = self._visitors.seen(request)
            try:
                visitor = await self._visitors.of(request)
                if not visitor.token and not visitor.rights.may(EVERY_PAGE_CALLS):
                    raise TokenRequired  # here: servers delay the refusals
                return await answer(request, visitor)
            except (TokenInvalid, TokenRequired) as error:
                return self._wants_token(request, visitor, error)
            except RequestRefused as error:
                return self.error_of(request, error.problem, visitor)
            except PinLaterError as error:
                return self.error_of(request, problems.problem_of(error), visitor)

        return find_and_answer

    def _wants_token(self, request: Request, visitor: Visitor, error: TokenInvalid | TokenRequired) -> Response:
        if visitor.token and visitor.session is None and not visitor.is_guest:  # a program, with a token in its request
            return self.error_of(request, problems.problem_of(error), visitor)
        if isinstance(error, TokenInvalid):
            self._visitors.refused(visitor.token)
        text = error.message if isinstance(error, TokenInvalid) and not visitor.is_guest else ""
        if request.method not in ("GET", "HEAD"):
            gone = "You are no longer logged in, so nothing was changed."
            return self._ask_for_token(request, NO_VISITOR, HTTPStatus.UNAUTHORIZED, "", text or gone)
        back = self._navigation(request, "", NO_VISITOR).path
        again = _with(back, **{DONE: "again"}) if _is_link_of_another_site(request) else ""
        return self._ask_for_token(request, NO_VISITOR, HTTPStatus.UNAUTHORIZED, back, text, again)

    def _route(self, method: str, path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
        async def guarded(request: Request) -> Response:
            try:
                return await answer(request)
            except RequestRefused as error:
                return self.error_of(request, error.problem)
            except PinLaterError as error:
                return self.error_of(request, problems.problem_of(error))
            except ClientDisconnect:
                return Response(status_code=problems.GONE)

        return Route(path, guarded, methods=[method])

    def _call(self, request: Request, visitor: Visitor, given: Mapping[str, str]) -> PageCall:
        names = request.path_params
        api = self._api.with_token(visitor.token, visitor.caller)
        return PageCall(
            api,
            self._now_ms(),
            names.get("queue", ""),
            names.get("descriptor", ""),
            given,
            visitor.rights.may,
            pins_of(request),
            self._links,
        )

    def _navigation(self, request: Request, section: str, visitor: Visitor, root: str | None = None) -> Navigation:
        given = [(name, value) for name, value in request.query_params.multi_items() if name != DONE]
        path = with_fields(request.scope["raw_path"].decode("ascii", "replace"), **dict(given))
        notice = self._notices.find(request.query_params.get(DONE, ""))
        root = arrival_of(request).prefix if root is None else root
        return Navigation(SECTIONS, section, notice, path, visitor, request.method == "POST", root)

    def _redirect(self, request: Request, goto: Goto) -> Response:
        notice = Notice(goto.message, goto.job)
        done = {DONE: self._notices.keep(notice, self._now_ms())} if notice.text else {}
        return RedirectResponse(arrival_of(request).prefix + _with(goto.path, **done), HTTPStatus.SEE_OTHER, HEADERS)

    def _answer(self, template: str, navigation: Navigation, status: int, **values: Any) -> Response:
        now_ms = self._now_ms()
        page = rendered(self._templates, template, navigation=navigation, now_ms=now_ms, **values)
        data = with_links_below(navigation.root, page)
        response = self._counted(data, status, HTML, "the page")
        response.headers.update(HEADERS)
        return response

    def _counted(self, data: bytes, status: int, media_type: str, what: str) -> Response:
        response = CountedResponse(self._budget, data, status, media_type)
        return response if response.fits else problems.response_of(no_memory(what).problem)

    async def _file(self, request: Request) -> Response:
        found = self._static.get(request.path_params["name"])
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        response = CountedResponse(self._budget, found.content, HTTPStatus.OK, found.media_type)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def wants_page(request: Request) -> bool:
    """Returns whether an error is for a person: the path is not of the API, and a browser asks."""
    return not request.url.path.startswith("/v1/") and HTML in request.headers.get("accept", "")


def _is_of(visitor: Visitor, form_token: str) -> bool:
    """Returns whether a form with this token may act for the visitor. Without a session or a proxy, nothing is added to a form on its
    way.
    """
    return not (visitor.session or visitor.caller.user) or visitor.has_form_token(form_token)


def _is_link_of_another_site(request: Request) -> bool:
    """Returns whether the browser came from a page of another site, and so sent no cookie. It sends the cookie if our own page leads it
    here."""
    return request.headers.get("sec-fetch-site", "") in ("cross-site", "same-site") and DONE not in request.query_params


def _with(path: str, /, **fields: str) -> str:
    """A path, which may have a query, with more fields."""
    path, _, query = path.partition("?")
    return with_fields(path, **dict(parse_qsl(query)), **fields)


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
