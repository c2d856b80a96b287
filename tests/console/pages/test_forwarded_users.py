"""What a trusted proxy names: users with their rights, their names in pages and the audit, addresses, and headers that must not count."""

from __future__ import annotations

import pytest

from pinlater.client import AsyncClient
from pinlater.domain.access import Role
from pinlater.domain.trusted_proxies import CLIENT_HEADER, USER_HEADER, TrustedProxies, checked_header, network_of
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.main.core import Core
from pinlater.wire.generated.structs import AuditRequest
from tests.console.pages.guarded import GuardedConsole, Person, ProxiedPerson, text_of

HTML = "text/html"
OWN = {"origin": "http://127.0.0.1"}


@pytest.fixture
def token(guarded: GuardedConsole) -> str:
    return guarded.tokens.make("console", Role.OPERATE, speaks_for_others=True)


@pytest.fixture
def ada(guarded: GuardedConsole, token: str) -> ProxiedPerson:
    return guarded.behind_proxy("ada", token)


async def audited(core: Core) -> list[tuple[str, str]]:
    """Callers and operations, the newest first."""
    found = await core.service.of(AuditTrail).read(AuditRequest())
    return [(entry.who, entry.operation) for entry in found.entries]


async def test_a_page_is_shown_without_a_log_in_and_names_user_and_token(ada: ProxiedPerson) -> None:
    text = text_of(await ada.get("/", accept=HTML))
    assert "UseradaTokenconsole" in text
    assert "Log in" not in text
    assert "Log out" not in text
    assert ada.set_cookies == []


async def test_an_action_is_audited_with_the_user_beside_the_token(
    ada: ProxiedPerson, core: Core, client: AsyncClient
) -> None:
    assert (await ada.presses("/queues/mail/pause")).status == 303
    assert (await client.queue_config("mail")).paused
    assert await audited(core) == [("console for ada", "pauseQueue")]
    assert "console for ada" in text_of(await ada.get("/audit", accept=HTML))


async def addresses(core: Core) -> list[tuple[str, str]]:
    """Addresses and sources of the entries of the audit, the newest first."""
    found = await core.service.of(AuditTrail).read(AuditRequest())
    return [(entry.address, entry.source) for entry in found.entries]


async def test_the_audit_has_the_address_that_the_proxy_names_before_that_of_the_console(
    ada: ProxiedPerson, core: Core
) -> None:
    """Of pages and of the API; and the source names the proxy, because several may be trusted."""
    ada.added = {**ada.added, CLIENT_HEADER: "203.0.113.9"}
    await ada.presses("/queues/mail/pause")
    await ada.ok("POST", "/v1/queues/mail/resume", **OWN)
    assert await addresses(core) == [("203.0.113.9 through 127.0.0.1", "console through proxy 127.0.0.1")] * 2


async def test_the_audit_has_the_address_of_a_caller_with_a_token_or_a_session_too(
    ada: ProxiedPerson, guarded: GuardedConsole, core: Core
) -> None:
    token = guarded.tokens.make("ops", Role.OPERATE)
    client = {CLIENT_HEADER: "2001:db8::7"}
    program, person = ProxiedPerson(ada.app, client), ProxiedPerson(ada.app, client)
    await program.ok("POST", "/v1/queues/mail/pause", authorization=f"Bearer {token}")
    assert (await person.logs_in(token)).status == 303
    assert (await person.presses("/queues/mail/resume")).status == 303
    assert await addresses(core) == [("2001:db8::7 through 127.0.0.1", "console through proxy 127.0.0.1")] * 2


@pytest.mark.parametrize("proxies", [[], ["10.0.0.0/8"]])
async def test_an_address_in_a_header_from_elsewhere_is_ignored(
    guarded: GuardedConsole, token: str, core: Core, proxies: list[str]
) -> None:
    """The address of the connection counts, which is that of the caller in these tests."""
    app = guarded.behind_proxy("", token, proxies=proxies).app
    caller = ProxiedPerson(app, {CLIENT_HEADER: "203.0.113.9"})
    await caller.ok("POST", "/v1/queues/mail/pause", authorization=f"Bearer {token}")
    assert await addresses(core) == [("127.0.0.1 through 127.0.0.1", "console")]


async def test_a_refusal_is_logged_with_the_address_of_the_caller(
    guarded: GuardedConsole, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caller = ProxiedPerson(guarded.behind_proxy("", token).app, {CLIENT_HEADER: "203.0.113.9"})
    await caller.refused("GET", "/v1/queues", authorization="Bearer pinlater_a_guess")
    [line] = [record for record in caplog.records if record.message.startswith("access refused")]
    assert line.host == "203.0.113.9 through 127.0.0.1"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("forwarded_for", "client"),
    [
        ([], "10.0.0.5"),
        (["203.0.113.9"], "203.0.113.9"),
        (["192.0.2.1", "203.0.113.9"], "203.0.113.9"),  # the first is what the client has sent
        (["203.0.113.9", "10.0.0.8"], "203.0.113.9"),  # two proxies
        (["10.0.0.7", "10.0.0.8"], "10.0.0.7"),
        (["203.0.113.9", "unknown", "10.0.0.8"], "10.0.0.8"),
        (["::ffff:203.0.113.9"], "203.0.113.9"),
        ([""], "10.0.0.5"),
        (["203.0.113.9:4711"], "203.0.113.9"),
        (["2001:db8::7"], "2001:db8::7"),
        (["[2001:db8::7]"], "2001:db8::7"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["_hidden", "10.0.0.8:80"], "10.0.0.8"),
    ],
)
def test_the_client_is_the_first_that_no_trusted_proxy_is(forwarded_for: list[str], client: str) -> None:
    assert TrustedProxies(["10.0.0.0/24"]).route_of("10.0.0.5", forwarded_for).client == client


def test_without_a_trusted_proxy_the_client_is_the_one_that_connects() -> None:
    for proxies in ([], ["10.0.0.0/24"]):
        assert TrustedProxies(proxies).route_of("192.0.2.1", ["203.0.113.9"]).client == "192.0.2.1"


async def test_a_request_of_the_api_is_made_by_the_user_too(ada: ProxiedPerson, core: Core) -> None:
    assert (await ada.ok("GET", "/v1/server"))["caller"]["token_name"] == "console"
    await ada.ok("POST", "/v1/queues/mail/pause", **OWN)
    assert await audited(core) == [("console for ada", "pauseQueue")]


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}],
)
async def test_a_request_of_the_api_that_changes_something_must_prove_its_origin(
    ada: ProxiedPerson, client: AsyncClient, headers: dict[str, str]
) -> None:
    """The proxy names the user in what another site makes the browser send, too."""
    problem = await ada.refused("POST", "/v1/queues/mail/pause", **headers)
    assert problem["reason"] == ("CROSS_SITE_REQUEST" if headers else "ORIGIN_REQUIRED")
    assert not (await client.queue_config("mail")).paused


async def test_a_form_needs_the_token_of_the_users_own_pages(
    ada: ProxiedPerson, guarded: GuardedConsole, token: str, client: AsyncClient
) -> None:
    eve = ProxiedPerson(ada.app, {USER_HEADER: "eve"})
    others = guarded.behind_proxy("ada", token)
    for given in ({}, {"form-token": ""}, {"form-token": "x"}, {"form-token": await eve.form_token()},
                  {"form-token": await others.form_token()}):  # fmt: skip
        answer = await ada.submit("/queues/mail/pause", given)
        assert (answer.status, "Open the page again" in text_of(answer)) == (403, True)
    assert not (await client.queue_config("mail")).paused


async def test_a_user_sees_and_does_what_the_roles_of_the_token_allow(
    guarded: GuardedConsole, client: AsyncClient
) -> None:
    reads = guarded.behind_proxy("ada", guarded.tokens.make("reader", Role.READ, speaks_for_others=True))
    assert "need the role operate" in text_of(await reads.get("/queues/mail", accept=HTML))
    assert (await reads.presses("/queues/mail/pause")).status == 403
    assert not (await client.queue_config("mail")).paused


@pytest.mark.parametrize("proxies", [[], ["10.0.0.0/8"], ["::1"], ["127.0.0.2"]])
async def test_a_name_from_another_address_is_ignored(
    guarded: GuardedConsole, token: str, proxies: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    person = guarded.behind_proxy("ada", token, proxies=proxies)
    for _ in range(3):
        assert (await person.get("/", accept=HTML)).status == 401
        assert (await person.get("/v1/queues")).status == 401
    ignored = [record for record in caplog.records if "was ignored" in record.message]
    assert len(ignored) == (1 if proxies else 0)
    assert all(record.host == "127.0.0.1" for record in ignored)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "added",
    [
        {USER_HEADER: "ada, eve"},
        {USER_HEADER: "ada,eve"},
        {USER_HEADER: "ada eve"},
        {USER_HEADER: "ada\teve"},
        {USER_HEADER: "ada;eve"},
        {USER_HEADER: '"ada"'},
        {USER_HEADER: "ada\r\nx: y"},
        {USER_HEADER: "ada\x00"},
        {USER_HEADER: "\u00e4da"},
        {USER_HEADER: "a" * 101},
        {USER_HEADER: " "},
        {USER_HEADER: "ada", USER_HEADER.lower(): "eve"},
        {USER_HEADER: "ada", USER_HEADER.lower(): "ada"},
        {USER_HEADER: "", USER_HEADER.lower(): "ada"},
    ],
    ids=repr,
)
async def test_what_is_no_name_or_two_names_is_refused(
    guarded: GuardedConsole, token: str, added: dict[str, str], core: Core
) -> None:
    """A proxy that appends its header to that of the client would let people choose their names."""
    person = ProxiedPerson(guarded.behind_proxy("ada", token).app, added)
    problem = await person.refused("GET", "/v1/queues")
    assert (problem["status"], problem["reason"]) == (400, "FORWARDED_USER_INVALID")
    for path in ("/", "/login"):
        assert (await person.get(path, accept=HTML)).status == 400
    assert (await person.submit("/queues/mail/pause", {})).status == 400
    assert await audited(core) == []


@pytest.mark.parametrize("user", ["ada", "ada@example.org", "CORP\\ada", "uid=ada", "a/b:c", "a" * 100])
async def test_names_as_proxies_have_them_are_shown(guarded: GuardedConsole, token: str, user: str) -> None:
    assert f"User{user}Token" in text_of(await guarded.behind_proxy(user, token).get("/", accept=HTML))


async def test_an_empty_name_is_none(guarded: GuardedConsole, token: str) -> None:
    assert (await guarded.behind_proxy("", token).get("/", accept=HTML)).status == 401


async def test_another_header_may_name_users(guarded: GuardedConsole, token: str) -> None:
    person = guarded.behind_proxy("ada", token, header="Remote-User")
    assert "Userada" in text_of(await person.get("/", accept=HTML))
    assert (await ProxiedPerson(person.app, {USER_HEADER: "ada"}).get("/", accept=HTML)).status == 401


async def test_a_token_in_the_request_counts_alone(ada: ProxiedPerson, guarded: GuardedConsole, core: Core) -> None:
    authorization = f"Bearer {guarded.tokens.make('ops', Role.OPERATE)}"
    await ada.ok("POST", "/v1/queues/mail/pause", authorization=authorization)
    assert await audited(core) == [("ops", "pauseQueue")]


async def test_a_session_of_another_person_does_not_count_for_a_user(
    ada: ProxiedPerson, token: str, guarded: GuardedConsole, core: Core
) -> None:
    """Also not with the same cookie."""
    admin = Person(ada.app)
    assert (await admin.logs_in(guarded.tokens.make("root", Role.ADMIN))).status == 303
    ada.cookies.update(admin.cookies)
    assert "UseradaTokenconsole" in text_of(await ada.get("/", accept=HTML))
    assert (await ada.submit("/queues/mail/pause", {"form-token": await admin.form_token()})).status == 403
    assert (await ada.presses("/queues/mail/pause")).status == 303
    assert await audited(core) == [("console for ada", "pauseQueue")]


async def test_a_user_can_not_log_in_with_a_token(ada: ProxiedPerson, guarded: GuardedConsole) -> None:
    answer = await ada.logs_in(guarded.tokens.make("root", Role.ADMIN))
    assert (answer.status, "you cannot log in as another user" in text_of(answer)) == (409, True)
    assert ada.set_cookies == []
    answer = await ada.get("/login?back=/failed", accept=HTML)
    assert (answer.status, answer.headers["location"]) == (303, "/failed")


async def test_people_without_the_header_log_in_as_before(ada: ProxiedPerson, guarded: GuardedConsole) -> None:
    person = Person(ada.app)
    assert (await person.get("/", accept=HTML)).status == 401
    assert (await person.logs_in(guarded.tokens.make("ops", Role.OPERATE))).status == 303
    assert (await person.get("/", accept=HTML)).status == 200


async def test_a_token_that_may_not_speak_for_others_is_warned_of_once(
    guarded: GuardedConsole, core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    person = guarded.behind_proxy("ada", guarded.tokens.make("ops", Role.OPERATE))
    assert (await person.presses("/queues/mail/pause")).status == 303
    assert await audited(core) == [("ops", "pauseQueue")]
    assert len([record for record in caplog.records if "will not name the users" in record.message]) == 1


async def test_a_token_that_the_servers_refuse_is_an_error_and_no_log_in(
    ada: ProxiedPerson, guarded: GuardedConsole
) -> None:
    guarded.tokens.revoke("console")
    answer = await ada.get("/", accept=HTML)
    assert (answer.status, "does not know the token" in text_of(answer)) == (401, True)


@pytest.mark.parametrize(
    ("networks", "host", "trusted"),
    [
        (["10.0.0.0/24"], "10.0.0.9", True),
        (["10.0.0.0/24"], "10.0.1.9", False),
        (["10.0.0.5"], "10.0.0.5", True),
        (["10.0.0.5"], "::ffff:10.0.0.5", True),
        (["fd00::/8"], "fd12::1", True),
        (["fe80::/10"], "fe80::1%eth0", True),
        (["10.0.0.5"], "", False),
        (["10.0.0.5"], "unix:", False),
        ([], "127.0.0.1", False),
    ],
)
def test_a_proxy_is_trusted_by_its_address(networks: list[str], host: str, trusted: bool) -> None:
    assert TrustedProxies(networks).trusts(host) is trusted


@pytest.mark.parametrize("text", ["", "proxy", "10.0.0.1/24", "0.0.0.0/0", "::/0", "10.0.0.0/33"])
def test_what_is_no_network_of_a_proxy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a network|every address"):
        network_of(text)


@pytest.mark.parametrize(
    "name", ["", "X Forwarded", "X_Forwarded_User", "Authorization", "cookie", "Host", "x" * 65, "X-\u00e4"]
)
def test_what_is_no_header_for_users_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a header"):
        checked_header(name)
