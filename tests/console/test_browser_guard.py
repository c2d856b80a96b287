"""A page of another site that the operator's browser shows can't use the console."""

from __future__ import annotations

import pytest

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from tests.console.caller import Caller

JOBS = "/v1/queues/mail/jobs"


@pytest.mark.parametrize("host", ["127.0.0.1:9998", "localhost", "[::1]:9998", "LOCALHOST:1"])
async def test_the_names_of_this_machine_are_accepted(caller: Caller, host: str) -> None:
    assert (await caller.get("/v1/queues", host=host)).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:9998", "", "[", "10.0.0.1"])
async def test_another_host_is_refused(caller: Caller, host: str) -> None:
    """A site may let its own name resolve to loopback; then its pages would be of the console's origin."""
    answer = await caller.get("/v1/queues", host=host)
    assert (answer.status, answer.json["field"]) == (421, "Host")


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
