"""What jobs, links and pages of other sites can't do to an operator with a browser."""

from __future__ import annotations

import pytest

from pinlater.client import AsyncClient
from pinlater.console.pages.formats import visible
from pinlater.console.pages.page import Action
from pinlater.console.pages.routes import ACTIONS
from tests.console.pages.conftest import stored
from tests.console.pages.visitor import PageVisitor

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}</pre>\u202egpj.exe\u2066\x1b[31m"


@pytest.mark.parametrize("key", ["<img src=x onerror=alert(1)>", "__proto__", "\u202e", "\ud800"])
async def test_hostile_json_is_shown_as_text(visitor: PageVisitor, client: AsyncClient, key: str) -> None:
    body = b'{"%s": "\\ud800"}' % key.encode("utf-8", "surrogatepass").replace(b"\xed\xa0\x80", b"\\ud800")
    page = await visitor.page(f"/jobs/{await stored(client, body)}")
    assert visible(key) in page.text
    assert "\\u{d800}" in page.text


@pytest.mark.parametrize("path", ["/queues/{}", "/jobs/{}", "/find?text={}", "/?filter={}", "/?sort={}", "/{}"])
async def test_hostile_urls_are_shown_as_text(visitor: PageVisitor, path: str) -> None:
    text = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27%E2%80%AE"
    answer = await visitor.get(path.format(text), accept="text/html")
    assert answer.status in (200, 303, 400, 404)
    assert b"<script>alert" not in answer.body


async def test_a_link_can_not_make_a_page_say_something(visitor: PageVisitor) -> None:
    page = (await visitor.get("/?done=All+jobs+are+deleted", accept="text/html")).body.decode()
    assert "All jobs" not in page
    assert "data-notice" not in page


@pytest.mark.parametrize(
    "back", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "\\/x", "/a\r\nX: y"]
)
async def test_an_action_leads_to_a_page_of_this_console_only(visitor: PageVisitor, back: str) -> None:
    answer = await visitor.submit("/queues/mail/pause", {"back": back})
    assert answer.headers["location"].startswith("/queues/mail?done=")


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.path)
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"},
    ],
    ids=str,
)
async def test_no_page_of_another_site_can_submit_a_form(
    visitor: PageVisitor, client: AsyncClient, action: Action, headers: dict[str, str]
) -> None:
    name = await stored(client)
    path = action.path.format(queue="mail", descriptor=name)
    answer = await visitor.submit(path, {"number": 1}, **headers)
    assert answer.status == 403
    assert (await client.lookup([name]))[name].state.name == "PENDING"
    assert not (await client.queue_config("mail")).paused


async def test_a_form_without_a_sign_of_its_origin_is_refused(visitor: PageVisitor, client: AsyncClient) -> None:
    assert (await visitor.send("POST", "/queues/mail/pause", b"")).status == 403
    assert (await visitor.send("POST", "/queues/mail/pause", b"", sec_fetch_site="same-origin")).status == 303


async def test_another_site_may_link_to_a_page_and_read_none(visitor: PageVisitor) -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert (await visitor.get("/queues/mail", accept="text/html", **link)).status == 200
    for other in ({**link, "sec_fetch_dest": "iframe"}, {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}):
        assert (await visitor.get("/queues/mail", **other)).status == 403
    assert (await visitor.get("/v1/queues", **link)).status == 403


async def test_static_files_are_ours_only(visitor: PageVisitor) -> None:
    answer = await visitor.get("/static/style.css?v=1")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("../app.py", "..%2fapp.py", "none.css"):
        assert (await visitor.get(f"/static/{name}")).status == 404


async def test_a_form_is_bounded(visitor: PageVisitor) -> None:
    assert (await visitor.submit("/queues/mail/settings", {"max_backlog": "9" * 70_000})).status == 413
    assert (await visitor.submit("/queues/mail/settings", {f"f{n}": 1 for n in range(60)})).status == 400
    assert (await visitor.submit("/queues/mail/pause", content_type="text/plain")).status == 415
