"""A page of another site that the operator's browser shows can't use the console."""

from __future__ import annotations

import pytest
from starlette.types import Receive, Scope, Send

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from tests.console.caller import Caller
from tests.console.pages.visitor import PageReader, PageVisitor

JOBS = "/v1/queues/mail/jobs"


@pytest.mark.parametrize("host", ["127.0.0.1:9998", "localhost", "[::1]:9998", "LOCALHOST:1"])
async def test_the_names_of_this_machine_are_accepted(caller: Caller, host: str) -> None:
    assert (await caller.get("/v1/queues", host=host)).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:9998", "", "[", "10.0.0.1"])
async def test_another_host_is_refused(caller: Caller, host: str) -> None:
    """A site may let its own name resolve to loopback; then its pages would be of the console's origin."""
    answer = await caller.get("/v1/queues", host=host)
    assert (answer.status, answer.json["field"]) == (421, "Host")


@pytest.mark.parametrize("told", [{"x_forwarded_proto": "https"}, {"forwarded": "for=203.0.113.9;proto=https"}])
async def test_a_proxy_with_tls_on_this_machine_may_use_any_name(caller: Caller, told: dict[str, str]) -> None:
    """Another site has no certificate with which a browser would take this machine for it."""
    for host in ("jobs.example", "jobs.example:443", "[2001:db8::7]"):
        assert (await caller.get("/v1/queues", host=host, **told)).status == 200
        page = f"https://{host.removesuffix(':443')}"
        assert (await caller.send("POST", JOBS, b"x", host=host, origin=page, **told)).status == 201


FORGED = {
    "x_forwarded_proto": "https",
    "x_forwarded_host": "localhost",
    "x_forwarded_for": "203.0.113.9",
    "x_forwarded_user": "ada",
    "forwarded": "for=203.0.113.9;host=localhost;proto=https",
    "accept": "text/html",
}


@pytest.mark.parametrize("proxies", [(), ("127.0.0.1",), ("10.0.0.5",)])
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:9998"},
        {"host": "evil.example:8080"},
        {"host": "evil.example:80"},
        {"host": "evil.example", "origin": "http://evil.example"},
        {"host": "evil.example", "origin": "null"},
        {"host": "evil.example", "x_forwarded_proto": "http", "forwarded": ""},
    ],
    ids=str,
)
async def test_a_site_whose_name_leads_to_this_machine_reads_and_changes_nothing_with_headers_of_a_proxy(
    client: AsyncClient, proxies: tuple[str, ...], headers: dict[str, str]
) -> None:
    """A page may send any header but `Host`, to which the browser adds the port of the console, and `Origin`. It has no TLS."""
    caller = Caller(Console(client, lambda: 0, LOOPBACK_NAMES, proxies=proxies, user_token=str).app)
    for path in ("/v1/queues", "/v1/queues/mail/jobs/count", "/v1/openapi.json"):
        answer = await caller.get(path, **{**FORGED, **headers})
        assert (answer.status, answer.json["field"]) == (421, "Host")
    assert (await caller.send("POST", JOBS, b"x", **{**FORGED, **headers})).status == 421
    assert (await client.count_jobs("mail")).jobs == 0


async def test_a_console_at_the_usual_port_can_not_tell_a_proxy_from_another_site(client: AsyncClient) -> None:
    app = Console(client, lambda: 0, LOOPBACK_NAMES).app

    async def at_port_80(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "server": ("127.0.0.1", 80)}, receive, send)

    assert (await Caller(at_port_80).get("/v1/queues", host="jobs.example", x_forwarded_proto="https")).status == 421


async def test_names_of_the_setting_are_accepted_and_no_others_whatever_a_proxy_says(client: AsyncClient) -> None:
    names = ("jobs.example",)
    for proxies in ((), ("127.0.0.1",)):
        caller = Caller(Console(client, lambda: 0, LOOPBACK_NAMES, proxies=proxies, names=names).app)
        for host in ("jobs.example", "JOBS.example:8443", "localhost:9998"):
            assert (await caller.get("/v1/queues", host=host)).status == 200
        refused = await caller.refused("GET", "/v1/queues", host="evil.example", x_forwarded_proto="https")
        assert (refused["status"], refused["field"]) == (421, "Host")
    only_own = Caller(Console(client, lambda: 0, LOOPBACK_NAMES, names=("localhost",)).app)
    assert (await only_own.refused("GET", "/v1/queues", host="jobs.example", x_forwarded_proto="https"))[
        "status"
    ] == 421
    refused = await caller.refused("GET", "/v1/queues", host="jobs.example", x_forwarded_host="evil.example")
    assert (refused["status"], refused["field"]) == (421, "X-Forwarded-Host")
    refused = await caller.refused("GET", "/v1/queues", host="jobs.example", forwarded="host=evil.example")
    assert (refused["status"], refused["field"]) == (421, "Forwarded")


async def test_a_refusal_is_a_page_for_people_that_names_header_and_setting(console: Console) -> None:
    """Its style and links lead to the console at a root and below a path, of which the console knows nothing."""
    visitor = PageVisitor(console.app)
    answer = await visitor.get("/queues/mail?tab=failed", accept="text/html", host="jobs.example:8080")
    text = PageReader(answer.body.decode()).text
    assert answer.status == 421
    assert "The header Host has 'jobs.example:8080', which is not a name of this console" in text
    assert "add 'jobs.example' to the setting console_names (--name)" in text
    assert b'<link rel="stylesheet" href="../static/style.css?' in answer.body
    assert b'<a href="../failed">' in answer.body
    assert (await visitor.get("/static/style.css", host="jobs.example:8080")).status == 200
    page = "http://jobs.example"
    answer = await visitor.submit("/queues/mail/pause", origin=page)
    text = PageReader(answer.body.decode()).text
    assert answer.status == 403
    assert (
        f"The header Origin says that a page of '{page}' made this request, and the header Host that the console is"
        in text
    )
    assert "console_trusted_proxies (--trusted-proxy)" in text
    assert b'<a href="../../failed">' in answer.body


async def test_a_browser_over_tls_may_say_where_a_form_comes_from_instead_of_a_proxy(caller: Caller) -> None:
    """No page can write the header, and over TLS or on this machine each browser sends it."""
    headers = {"origin": "https://jobs.example", "host": "127.0.0.1:9998"}
    assert (await caller.send("POST", "/queues/mail/pause", b"", sec_fetch_site="same-origin", **headers)).status == 303
    for site in ("same-site", "cross-site", "none", "garbage"):
        answer = await caller.send("POST", "/queues/mail/pause", b"", sec_fetch_site=site, **headers)
        assert (answer.status, answer.json["reason"]) == (403, "CROSS_SITE_REQUEST")


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("jobs.example", "https://jobs.example"),
        ("jobs.example:443", "https://jobs.example"),
        ("jobs.example:80", "http://jobs.example"),
        ("JOBS.example:8443", "https://jobs.example:8443"),
        ("[2001:DB8::7]:8443", "https://[2001:db8::7]:8443"),
    ],
)
async def test_a_form_of_the_consoles_own_page_is_accepted_however_host_and_port_are_written(
    client: AsyncClient, host: str, origin: str
) -> None:
    caller = Caller(Console(client, lambda: 0, None).app)
    assert (await caller.send("POST", "/queues/mail/pause", b"", host=host, origin=origin)).status == 303
    for other in (
        "https://jobs.example:9",
        "http://jobs.example.evil",
        "https://",
        "jobs.example",
        f"{origin}:1",
        "\u00e4",
    ):
        assert (await caller.send("POST", "/queues/mail/pause", b"", host=host, origin=other)).status == 403


async def test_an_open_console_accepts_any_host(client: AsyncClient) -> None:
    caller = Caller(Console(client, lambda: 0, None).app)
    assert (await caller.get("/v1/queues", host="jobs.example")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8000"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
async def test_a_request_of_another_sites_page_is_refused(caller: Caller, headers: dict[str, str]) -> None:
    answer = await caller.send("POST", JOBS, b"x", content_type="text/plain", **headers)
    assert (answer.status, answer.json["reason"]) == (403, "CROSS_SITE_REQUEST")
    assert (await caller.ok("GET", f"{JOBS}/count"))["jobs"] == 0


async def test_a_form_without_the_header_that_names_its_page_is_told_so(caller: Caller) -> None:
    """As a program sends it, which is no page of another site."""
    for path in ("/", "/queues/mail/pause"):
        answer = await caller.send("POST", path, b"")
        assert (answer.status, answer.json["reason"], answer.json["field"]) == (403, "ORIGIN_REQUIRED", "Origin")
        assert "Origin is missing" in answer.json["detail"]


async def test_a_page_of_the_console_itself_is_accepted(caller: Caller) -> None:
    headers = {"host": "localhost:9998", "origin": "http://localhost:9998", "sec_fetch_site": "same-origin"}
    assert (await caller.send("POST", JOBS, b"x", **headers)).status == 201


async def test_every_answer_is_data_that_nothing_keeps(caller: Caller) -> None:
    for answer in (await caller.get("/v1/queues"), await caller.get("/nothing"), await caller.get("/", host="x")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert "access-control-allow-origin" not in answer.headers
