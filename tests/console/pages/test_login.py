"""People log in with a token; a session lets them see and do what the token allows, and ends when it should."""

from __future__ import annotations

import asyncio
import logging
from itertools import count

import pytest

from pinlater.client import AsyncClient
from pinlater.console.pages import login
from pinlater.console.pages.visitors import UPDATE
from pinlater.console.sessions import IDLE_MS, LENGTH_MS, SESSIONS_MAX, SESSIONS_OF_A_TOKEN_MAX, Sessions
from pinlater.domain.access import Role, new_secret
from pinlater.domain.clock import ManualClock
from pinlater.domain.refusals import Refusals
from pinlater.server.main.core import Core
from tests.console.pages.conftest import failed_job, guarded_console
from tests.console.pages.guarded import GuardedConsole, text_of
from tests.console.pages.visitor import PageReader, PageVisitor

FORM = "http://127.0.0.1"
COOKIE = "pinlater-session"


async def test_a_page_asks_for_a_token_and_shows_itself_after_the_log_in(guarded: GuardedConsole) -> None:
    person = guarded.person()
    answer = await person.get("/queues/mail?tab=failed", accept="text/html")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert b'name="back" value="/queues/mail?tab=failed"' in answer.body
    answer = await person.logs_in(guarded.tokens.make("ops", Role.OPERATE), back="/queues/mail?tab=failed")
    assert answer.status == 303
    page = await person.get(answer.headers["location"], accept="text/html")
    assert page.status == 200
    assert "You are logged in with token ops." in text_of(page)
    assert "Tokenops Rolesoperate Queuesall Log out" in text_of(page)


async def test_a_token_that_the_servers_refuse_starts_no_session(guarded: GuardedConsole) -> None:
    person = guarded.person()
    for given in (new_secret(), "", "two words", "\u202e", "x" * 5000):
        answer = await person.logs_in(given)
        assert answer.status == 401
        assert given not in text_of(answer) or not given
    assert person.cookies == {}
    assert "The field is empty" in text_of(await guarded.person().logs_in("  "))


async def test_what_the_role_may_not_do_is_not_offered_and_the_page_says_why(
    guarded: GuardedConsole, client: AsyncClient
) -> None:
    name = await failed_job(client)
    person = await guarded.logged_in("wall", Role.READ)
    for path in ("/queues/mail?tab=failed", f"/jobs/{name}", "/failed"):
        page = await person.page(path)
        assert page.targets in (["/logout"], ["/logout", "/queues/mail/settings"])
        assert "need the role operate; token wall has read." in page.text
    answer = await person.presses("/queues/mail/pause")
    assert answer.status == 403
    assert "needs the role operate" in text_of(answer)
    assert not (await client.queue_config("mail")).paused


async def test_a_page_that_the_role_may_not_see_names_role_and_token_and_offers_to_log_out(
    guarded: GuardedConsole,
) -> None:
    person = await guarded.logged_in("billing", Role.PRODUCE)
    page = await person.page("/", 403)
    assert "getQueueStats needs the role read; token billing has produce" in page.text
    assert "You are logged in with token billing; its roles: produce; its queues: all." in page.text
    assert set(page.targets) == {"/logout"}


async def test_a_token_for_some_queues_sees_these_only(guarded: GuardedConsole, client: AsyncClient) -> None:
    await client.create_queue("images")
    person = await guarded.logged_in("mails", Role.READ, queues=["mail*"])
    links = (await person.page("/")).links
    assert "/queues/mail" in links
    assert "/queues/images" not in links
    assert "is not for queue 'images', only for mail*" in (await person.page("/queues/images", 403)).text


async def test_logging_out_ends_the_session_for_every_copy_of_its_cookie(guarded: GuardedConsole) -> None:
    person, thief = await guarded.logged_in("ops", Role.OPERATE), guarded.person()
    thief.cookies = dict(person.cookies)
    assert (await thief.get("/", accept="text/html")).status == 200
    answer = await person.presses("/logout")
    assert (answer.status, person.cookies) == (303, {})
    assert "You are logged out." in (await person.page(answer.headers["location"])).text
    assert (await thief.get("/", accept="text/html")).status == 401


async def test_a_session_ends_when_the_servers_refuse_its_token(guarded: GuardedConsole, clock: ManualClock) -> None:
    person = await guarded.logged_in("ops", Role.OPERATE)
    guarded.tokens.revoke("ops")
    clock.advance(seconds=10)
    assert "it was revoked" in (await person.page("/", 401)).text
    assert len(guarded.console.sessions) == 0


async def test_a_session_ends_without_use_and_pages_that_update_themselves_are_no_use(
    guarded: GuardedConsole, clock: ManualClock
) -> None:
    person = await guarded.logged_in("wall", Role.READ)
    for _ in range(2):
        clock.advance(ms=IDLE_MS * 6 // 10)
        assert (await person.get("/", accept="text/html")).status == 200
    clock.advance(ms=IDLE_MS * 6 // 10)
    assert (await person.get("/", accept="text/html", **{UPDATE: "1"})).status == 200
    clock.advance(ms=IDLE_MS * 6 // 10)
    assert (await person.get("/", accept="text/html")).status == 401


def test_a_session_ends_after_some_hours_of_use() -> None:
    now_ms = 0
    sessions = Sessions(lambda: now_ms)
    name, _ = sessions.start("secret")
    while now_ms + IDLE_MS // 2 < LENGTH_MS:
        now_ms += IDLE_MS // 2
        assert sessions.find(name, renews=True)
    now_ms = LENGTH_MS
    assert sessions.find(name, renews=True) is None


def test_the_number_of_sessions_is_bounded_for_each_token_and_for_all() -> None:
    sessions = Sessions(lambda: 0)
    first, _ = sessions.start("greedy")
    others = [sessions.start("greedy")[0] for _ in range(SESSIONS_OF_A_TOKEN_MAX)]
    assert sessions.find(first, renews=True) is None
    assert sessions.find(others[0], renews=True)
    for number in range(SESSIONS_MAX):
        sessions.start(f"token-{number}")
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(others[0], renews=True) is None


async def test_a_log_in_makes_a_new_id_and_ends_the_session_of_before(guarded: GuardedConsole) -> None:
    """Else a person could be made to log in to a session whose id another one knows."""
    person = guarded.person()
    person.cookies[COOKIE] = "chosen-by-another"
    token = guarded.tokens.make("ops", Role.OPERATE)
    await person.logs_in(token)
    first = person.cookies[COOKIE]
    await person.logs_in(token)
    assert len({"chosen-by-another", first, person.cookies[COOKIE]}) == 3
    for old in ("chosen-by-another", first):
        thief = guarded.person()
        thief.cookies[COOKIE] = old
        assert (await thief.get("/", accept="text/html")).status == 401


async def test_the_cookie_is_for_this_console_alone_and_holds_no_token(guarded: GuardedConsole) -> None:
    person, token = guarded.person(), guarded.tokens.make("ops", Role.OPERATE)
    await person.logs_in(token, host="127.0.0.1:9998", origin="http://127.0.0.1:9998")
    [cookie] = person.set_cookies
    assert cookie.startswith("pinlater-session-9998=")
    assert {"HttpOnly", "Path=/", "SameSite=strict"} == {part.strip() for part in cookie.split(";")[1:]}
    assert token not in cookie


@pytest.mark.parametrize(
    "headers", [{"x_forwarded_proto": "https"}, {"origin": "https://127.0.0.1"}], ids=["the proxy", "the browser"]
)
async def test_the_cookie_is_secure_where_the_browser_uses_tls(
    guarded: GuardedConsole, headers: dict[str, str]
) -> None:
    person = guarded.person()
    await person.logs_in(guarded.tokens.make("ops", Role.OPERATE), **headers)
    [cookie] = person.set_cookies
    assert cookie.startswith("__Host-pinlater-session=")
    assert "Secure" in cookie
    assert (await person.get("/", accept="text/html")).status == 200


async def test_the_api_takes_no_cookie(guarded: GuardedConsole, client: AsyncClient) -> None:
    person = await guarded.logged_in("admin", Role.ADMIN)
    fields = {"origin": FORM, "content_type": "text/plain"}
    assert (await person.send("POST", "/v1/queues/mail/jobs", b"x", **fields)).status == 401
    assert (await person.get("/v1/queues")).status == 401
    assert (await client.count_jobs("mail")).jobs == 0


FOREIGN = [
    {"origin": "http://evil.example"},
    {"origin": "http://127.0.0.1:8080"},
    {"origin": "null"},
    {"origin": ""},
    {"origin": FORM, "sec_fetch_site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_form_of_another_site_does_nothing_even_with_cookie_and_form_token(
    guarded: GuardedConsole, client: AsyncClient, headers: dict[str, str]
) -> None:
    person = await guarded.logged_in("ops", Role.OPERATE)
    fields = {"form-token": await person.form_token()}
    assert (await person.submit("/queues/mail/pause", fields, **headers)).status == 403
    assert (await person.submit("/logout", fields, **headers)).status == 403
    assert (await guarded.person().logs_in(guarded.tokens.make("other", Role.READ), **headers)).status == 403
    assert not (await client.queue_config("mail")).paused
    assert len(guarded.console.sessions) == 1


async def test_a_form_without_the_token_of_its_session_does_nothing_wherever_it_comes_from(
    guarded: GuardedConsole, client: AsyncClient
) -> None:
    person, other = await guarded.logged_in("ops", Role.OPERATE), await guarded.logged_in("more", Role.OPERATE)
    for path in ("/queues/mail/pause", "/logout"):
        for given in ({}, {"form-token": "x"}, {"form-token": "\u202e"}, {"form-token": await other.form_token()}):
            answer = await person.submit(path, given)
            assert (answer.status, "Open the page again" in text_of(answer)) == (403, True)
    assert not (await client.queue_config("mail")).paused
    assert (await person.get("/", accept="text/html")).status == 200


async def test_a_form_after_the_end_of_the_session_says_that_nothing_changed(
    guarded: GuardedConsole, client: AsyncClient, clock: ManualClock
) -> None:
    person = await guarded.logged_in("ops", Role.OPERATE)
    form_token = await person.form_token()
    clock.advance(ms=IDLE_MS)
    answer = await person.submit("/queues/mail/pause", {"form-token": form_token})
    assert (answer.status, "nothing was changed" in text_of(answer)) == (401, True)
    assert not (await client.queue_config("mail")).paused


@pytest.mark.parametrize("back", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"])
async def test_a_log_in_leads_to_a_page_of_this_console_only(guarded: GuardedConsole, back: str) -> None:
    answer = await guarded.person().logs_in(guarded.tokens.make("ops", Role.OPERATE), back=back)
    assert answer.headers["location"].startswith("/?done=")
    page = (await guarded.person().get(f"/login?back={back}", accept="text/html")).body
    assert b'name="back" value="/"' in page


async def test_guesses_of_one_address_get_slower_and_are_logged_without_the_token(
    guarded: GuardedConsole, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delays: list[float] = []

    async def record(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr(login, "sleep", record)
    passed = count(step=100)
    guarded.control.refusals = Refusals(lambda: next(passed))  # the server itself delays nothing
    caplog.set_level(logging.INFO, "pinlater.console")
    guess = new_secret()
    for _ in range(10):
        assert (await guarded.person().logs_in(guess)).status == 401
    assert delays == sorted(delays)
    assert len(delays) == 7
    good = guarded.tokens.make("ops", Role.OPERATE)
    await guarded.person().logs_in(good)
    logged = [record.message for record in caplog.records if record.name == "pinlater.console"]
    assert [line.partition(":")[0] for line in logged] == ["log-in refused", "logged in"]
    assert guess not in caplog.text
    assert good not in caplog.text


async def test_a_link_of_another_site_leads_to_the_page_if_the_person_is_logged_in(guarded: GuardedConsole) -> None:
    """A browser sends no cookie with it, so the page asks once more by itself, and then the browser does."""
    person = await guarded.logged_in("wall", Role.READ)
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    answer = await guarded.person().get("/queues/mail?tab=failed", accept="text/html", **link)
    assert answer.status == 401
    assert b'content="0; url=/queues/mail?tab=failed&amp;done=again"' in answer.body
    assert (await person.get("/queues/mail?tab=failed&done=again", accept="text/html")).status == 200
    answer = await guarded.person().get("/queues/mail?done=again", accept="text/html", **link)
    assert b"http-equiv" not in answer.body


async def test_default_roles_show_pages_without_a_log_in_and_offer_one(
    core: Core, clock: ManualClock, client: AsyncClient
) -> None:
    async with guarded_console(core, clock, default_roles=[Role.READ]) as guarded:
        page = await guarded.person().page("/queues/mail")
        assert "/login?back=%2Fqueues%2Fmail" in page.links
        assert "need the role operate; log in with a token that has it" in page.text
        answer = await guarded.person().submit("/queues/mail/pause")
        assert answer.status == 401


async def test_without_access_control_no_page_speaks_of_logging_in(visitor: PageVisitor) -> None:
    page = await visitor.page("/queues/mail")
    assert "Log in" not in page.text
    assert "/queues/mail/pause" in page.targets
    answer = await visitor.submit("/login", {"token": "any"})
    assert answer.status == 303
    assert "set-cookie" not in answer.headers
    page = PageReader((await visitor.get(answer.headers["location"], accept="text/html")).body.decode())
    assert "no log-in is needed" in page.text


async def test_a_program_with_a_bearer_token_gets_an_error_and_no_log_in_page(guarded: GuardedConsole) -> None:
    token = guarded.tokens.make("script", Role.READ)
    person = guarded.person()
    assert (await person.get("/", accept="text/html", authorization=f"Bearer {token}")).status == 200
    answer = await person.get("/", accept="text/html", authorization=f"Bearer {new_secret()}")
    assert answer.status == 401
    assert b'name="token"' not in answer.body


async def test_the_consoles_own_token_shows_pages_to_people_without_a_log_in_and_lets_them_do_nothing(
    guarded: GuardedConsole, client: AsyncClient
) -> None:
    own = guarded.tokens.make("wall", Role.OPERATE)
    person = guarded.person(guest_token=own)
    page = await person.page("/queues/mail")
    assert page.targets == ["/queues/mail/settings"]
    assert "log in with a token that has it" in page.text
    assert "/login?back=%2Fqueues%2Fmail" in page.links
    assert (await person.submit("/queues/mail/pause")).status == 401
    assert (await person.get("/v1/queues")).status == 401
    assert not (await client.queue_config("mail")).paused
    guarded.tokens.revoke("wall")
    assert (await guarded.person(guest_token=own).get("/", accept="text/html")).status == 401


async def test_an_address_has_a_bounded_number_of_log_ins_under_way(
    guarded: GuardedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, waits = asyncio.Event(), asyncio.Semaphore(0)

    async def sleep(_seconds: float) -> None:
        waits.release()
        await refused.wait()

    monkeypatch.setattr(login, "sleep", sleep)
    passed = count(step=100)
    guarded.control.refusals = Refusals(lambda: next(passed))  # the server itself delays nothing
    good = guarded.tokens.make("ops", Role.OPERATE)
    for _ in range(3):  # the first refusals are not delayed
        assert (await guarded.person().logs_in(new_secret())).status == 401
    guesses = [asyncio.create_task(guarded.person().logs_in(new_secret())) for _ in range(login.AT_ONCE_MAX)]
    for _ in guesses:
        await waits.acquire()
    assert (await guarded.person().logs_in(good)).status == 429
    refused.set()
    assert {(await guess).status for guess in guesses} == {401}
    assert (await guarded.person().logs_in(good)).status == 303
