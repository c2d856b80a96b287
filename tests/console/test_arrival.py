"""What proxies say of host, scheme and path, and what counts of several values, of untrusted addresses and of garbage."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from tests.console.caller import Caller
from tests.console.pages.guarded import ProxiedPerson

NAMES = ("jobs.example", "2001:db8::7")
SPOOFED = {
    "x-forwarded-host": "jobs.example",
    "x-forwarded-proto": "https",
    "x-forwarded-prefix": "/jobs",
    "forwarded": "for=203.0.113.9;host=jobs.example;proto=https",
}


def behind(added: Mapping[str, str] = {}, proxies: tuple[str, ...] = ("127.0.0.1", "10.0.0.0/24")) -> ProxiedPerson:
    """A person before a console that trusts `proxies`; a proxy on this machine adds `added`. No request reaches a server."""
    return ProxiedPerson(
        Console(AsyncClient("127.0.0.1:1"), lambda: 0, LOOPBACK_NAMES, proxies=proxies, names=NAMES).app, added
    )


async def seen(person: Caller) -> str:
    """The address of the console, as it understands it: it says so where it refuses the page of another site."""
    problem = await person.refused("GET", "/v1/queues", origin="http://other.example")
    assert (problem["status"], problem["field"]) == (403, "Origin"), problem
    _, own = re.findall("'([^']*)'", problem["detail"])
    return str(own)


@pytest.mark.parametrize(
    ("added", "address"),
    [
        ({}, "http://127.0.0.1"),
        ({"host": "jobs.example:8443"}, "http://jobs.example:8443"),
        ({"x-forwarded-host": "jobs.example"}, "http://jobs.example"),
        ({"x-forwarded-host": "Jobs.Example:8443", "x-forwarded-proto": "HTTPS"}, "https://jobs.example:8443"),
        ({"x-forwarded-host": "[2001:db8::7]:8443"}, "http://[2001:db8::7]:8443"),
        ({"x-forwarded-prefix": "/jobs"}, "http://127.0.0.1/jobs"),
        ({"x-forwarded-prefix": "/jobs/"}, "http://127.0.0.1/jobs"),
        ({"x-forwarded-prefix": "/"}, "http://127.0.0.1"),
        ({"x-forwarded-prefix": "/a.b/c~d"}, "http://127.0.0.1/a.b/c~d"),
        ({"x-forwarded-host": "", "x-forwarded-proto": "", "x-forwarded-prefix": "", "forwarded": ""}, "http://127.0.0.1"),
        ({"forwarded": "host=jobs.example;proto=https"}, "https://jobs.example"),
        ({"forwarded": 'For="[2001:db8::9]:47011"; Host="jobs.example:8443" ;PROTO=https;by=_proxy'}, "https://jobs.example:8443"),
        ({"forwarded": "for=203.0.113.9;host=jobs.example:8443"}, "http://jobs.example:8443"),
        ({"forwarded": "host=jobs.example", "x-forwarded-proto": "https", "x-forwarded-prefix": "/j"}, "https://jobs.example/j"),
        ({"forwarded": "for=203.0.113.9;host=JOBS.example", "x-forwarded-host": "jobs.example", "x-forwarded-for": "203.0.113.9"}, "http://jobs.example"),
    ],
    ids=str,
)  # fmt: skip
async def test_a_trusted_proxy_says_where_people_find_the_console(added: dict[str, str], address: str) -> None:
    assert await seen(behind(added)) == address


@pytest.mark.parametrize(
    ("added", "address"),
    [
        # One proxy that appends its own to what the client has sent.
        ({"x-forwarded-for": "1.2.3.4, 203.0.113.9", "x-forwarded-host": "localhost, jobs.example"}, "http://jobs.example"),
        ({"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https, http"}, "http://127.0.0.1"),
        ({"x-forwarded-proto": "https, http"}, "http://127.0.0.1"),
        ({"x-forwarded-for": "203.0.113.9", "x-forwarded-prefix": "/evil, /jobs"}, "http://127.0.0.1/jobs"),
        ({"forwarded": "for=1.2.3.4;host=localhost, for=203.0.113.9;host=jobs.example"}, "http://jobs.example"),
        # Two proxies, of which the first one says what the client used.
        ({"x-forwarded-for": "203.0.113.9, 10.0.0.5", "x-forwarded-host": "jobs.example, localhost"}, "http://jobs.example"),
        ({"x-forwarded-for": "203.0.113.9, 10.0.0.5", "x-forwarded-proto": "https, http"}, "https://127.0.0.1"),
        ({"x-forwarded-for": "203.0.113.9, 10.0.0.5", "x-forwarded-proto": "https"}, "https://127.0.0.1"),
        ({"x-forwarded-for": "203.0.113.9, 10.0.0.5:80", "x-forwarded-prefix": "/a, /b"}, "http://127.0.0.1/a/b"),
        ({"x-forwarded-for": "6.6.6.6, 203.0.113.9, 10.0.0.5", "x-forwarded-host": "localhost, jobs.example, 127.0.0.1"}, "http://jobs.example"),
        ({"forwarded": "for=203.0.113.9;host=jobs.example;proto=https, for=10.0.0.5;host=localhost;proto=http"}, "https://jobs.example"),
        ({"forwarded": "for=203.0.113.9, for=10.0.0.5;host=jobs.example"}, "http://jobs.example"),
        # The second one is not trusted.
        ({"x-forwarded-for": "203.0.113.9, 10.0.1.5", "x-forwarded-host": "localhost, jobs.example"}, "http://jobs.example"),
    ],
    ids=str,
)  # fmt: skip
async def test_of_several_values_that_of_the_trusted_proxy_nearest_to_the_client_counts(
    added: dict[str, str], address: str
) -> None:
    assert await seen(behind(added)) == address


@pytest.mark.parametrize("proxies", [(), ("10.0.0.0/24",), ("127.0.0.2",)])
async def test_headers_from_an_address_that_is_not_trusted_do_not_count(proxies: tuple[str, ...]) -> None:
    """But one: without a trusted proxy, one on this machine may say that it has TLS."""
    assert await seen(behind(SPOOFED, proxies)) == ("http" if proxies else "https") + "://127.0.0.1"
    garbage = dict.fromkeys([*SPOOFED, "x-forwarded-for", "x-forwarded-user"], '";,<garbage>\u00e4')
    assert await seen(behind(garbage, proxies)) == "http://127.0.0.1"


@pytest.mark.parametrize(
    "text",
    ["<script>", "http://jobs.example", "jobs.example/x", "a b", "jobs.example:", "jobs.example:99999", "[::1", "[zz]",
     "user@jobs.example", "\u00e4", "'\"", "x" * 300, "jobs.example;", "::1"],
)  # fmt: skip
async def test_a_host_that_is_none_is_refused_by_name(text: str) -> None:
    await refused_by_name("X-Forwarded-Host", text)
    await refused_by_name("Forwarded", f'host="{text}"' if '"' not in text else f"host={text}")


@pytest.mark.parametrize("text", ["gopher", "https:", "http https", "on", "\u00e4", "javascript"])
async def test_a_scheme_that_is_none_is_refused_by_name(text: str) -> None:
    await refused_by_name("X-Forwarded-Proto", text)
    await refused_by_name("Forwarded", f'proto="{text}"')


@pytest.mark.parametrize(
    "text",
    ["jobs", "//evil.example", "/\\evil.example", "/a//b", "/..", "/a/../b", "/./a", "/a b", "/a?b", "/a#b", "/%2e%2e", "/a;b",
     "https://evil.example", "/\u00e4", '/"><script>', "/" + "x" * 300],
)  # fmt: skip
async def test_a_path_that_is_none_is_refused_by_name(text: str) -> None:
    await refused_by_name("X-Forwarded-Prefix", text)


@pytest.mark.parametrize("text", ["<script>", "localhost", "1.2.3", "1.2.3.4:x:y", "[1.2.3.4", "\u00e4", "a" * 300])
async def test_an_address_that_is_none_is_refused_by_name(text: str) -> None:
    await refused_by_name("X-Forwarded-For", text)
    await refused_by_name("Forwarded", f'for="{text}"')


@pytest.mark.parametrize(
    "text",
    ["garbage", "=x", "host=", ";;;", "host=a host=b", "host=a;host=b", 'host="a', 'host="a\\', "h\u00e4st=a", "a=b" + ";a=b" * 9_000,
     '"' * 30_000, "\\" * 30_000, "a=" + '"\\' * 15_000],
    ids=lambda text: text[:20],
)  # fmt: skip
async def test_what_rfc_7239_does_not_allow_is_refused_by_name(text: str) -> None:
    await refused_by_name("Forwarded", text)


async def refused_by_name(header: str, text: str) -> None:
    problem = await behind({header: text}).refused("GET", "/v1/queues")
    assert (problem["status"], problem["reason"], problem["field"]) == (400, "FORWARDED_HEADER_INVALID", header)


async def test_what_is_wrong_is_a_page_for_people_with_its_style() -> None:
    person = behind({"x-forwarded-prefix": "//evil.example"})
    assert (await person.get("/static/style.css")).status == 200
    assert (await person.page("/static/none", 404)).links
    page = await person.page("/queues/mail", 400)
    assert "The header X-Forwarded-Prefix of the proxy is wrong: '//evil.example' is not a path" in page.text


@pytest.mark.parametrize(
    ("header", "text", "forwarded"),
    [
        ("X-Forwarded-Host", "localhost", "host=jobs.example"),
        ("X-Forwarded-Host", "jobs.example:80", "host=jobs.example"),
        ("X-Forwarded-Proto", "http", "proto=https"),
        ("X-Forwarded-For", "203.0.113.9", "for=203.0.113.8"),
        ("X-Forwarded-For", "203.0.113.9", 'for="[2001:db8::1]"'),
    ],
)
async def test_two_headers_that_say_different_things_are_refused_by_name(
    header: str, text: str, forwarded: str
) -> None:
    """A proxy that sets one of them and passes on the other one lets clients choose."""
    problem = await behind({header: text, "forwarded": forwarded}).refused("GET", "/v1/queues")
    assert (problem["status"], problem["reason"], problem["field"]) == (400, "FORWARDED_HEADERS_DIFFER", header)
    assert "Forwarded" in problem["detail"]
