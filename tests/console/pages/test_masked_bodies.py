"""Masked bodies over HTTP and on pages: each role against each endpoint and page, as the tables have them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import Any

import pytest
import pytest_asyncio

from pinlater.client import AsyncClient
from pinlater.console.endpoint import Endpoint
from pinlater.console.pages.routes import PAGES
from pinlater.console.routes import ENDPOINTS
from pinlater.domain.access import Role
from pinlater.domain.body_masks import BodyMasks
from pinlater.domain.clock import ManualClock
from pinlater.domain.refusals import Refusals
from pinlater.server.main.core import Core
from tests.console.pages.conftest import failed_job, guarded_console, stored
from tests.console.pages.guarded import GuardedConsole, Person, text_of

SECRET, SHOWN = "sesame", "addressee"
BODY = json.dumps({"card": {"number": SECRET}, "to": SHOWN}).encode()
EVERY_ROLE_BUT_ADMIN = [role for role in Role if role is not Role.ADMIN]
# What asks for bodies, or for jobs whose body has a text.
QUERIES: Mapping[str, str] = {
    "/v1/jobs/{descriptor}": "?bodies=true",
    "/v1/queues/{queue}/jobs": "?bodies=true",
    "/v1/queues/{queue}/jobs/count": f"?regex={SECRET[:3]}",
    "/v1/queues/{queue}/bulk/preview": f"?regex={SECRET[:3]}&state=pending",
    "/v1/search": f"?text={SECRET[:3]}",
    "/search": f"?text={SECRET[:3]}",
    "/find": "?text=mail",
    "/queues/{queue}": f"?tab=due&regex={SECRET[:3]}",
    "/queues/{queue}/bulk": f"?state=pending&regex={SECRET[:3]}",
}
REQUESTS: Mapping[str, Any] = {
    "/v1/queues/{queue}/jobs/dequeue": {"dry_run": True},
    "/v1/jobs/lookup": {"bodies": True},
}
LOOKS = [one for one in ENDPOINTS if one.method == "GET" or one.path in REQUESTS]


@pytest_asyncio.fixture(params=["queue", "field"])
async def masked(
    request: pytest.FixtureRequest, core: Core, clock: ManualClock
) -> AsyncIterator[tuple[GuardedConsole, bool]]:
    """A console whose server masks the queue `mail`, or a field; and whether it is the queue."""
    whole = request.param == "queue"
    masks = BodyMasks(["mail"]) if whole else BodyMasks(fields=["card.number"])
    passed = count(step=100)
    async with guarded_console(core, clock, masks) as guarded:
        guarded.control.refusals = Refusals(lambda: next(passed))  # delays nothing
        yield guarded, whole


async def quoted(client: AsyncClient, whole: bool) -> list[str]:
    """A job that waits, whose body has the secret; if whole bodies are masked, also one that has failed with an error that has it."""
    failed = [await failed_job(client, f"no card {SECRET}")] if whole else []
    return [await stored(client, BODY), *failed]


def paths_of(path: str, jobs: Sequence[str]) -> list[str]:
    named = jobs if "{descriptor}" in path else jobs[:1]
    return [path.format(queue="mail", descriptor=job) + QUERIES.get(path, "") for job in named]


@pytest.mark.parametrize("endpoint", LOOKS, ids=lambda one: f"{one.method} {one.path}")
async def test_no_endpoint_answers_a_body_that_the_role_may_not_see(
    masked: tuple[GuardedConsole, bool], client: AsyncClient, endpoint: Endpoint[Any, Any, Any]
) -> None:
    guarded, whole = masked
    jobs = await quoted(client, whole)
    request = REQUESTS.get(endpoint.path)
    if request is not None and "bodies" in request:
        request = {**request, "descriptors": jobs}
    for role in EVERY_ROLE_BUT_ADMIN:
        authorization = f"Bearer {guarded.tokens.make(role.value, role)}"
        body = b"" if request is None else json.dumps(request).encode()
        for path in paths_of(endpoint.path, jobs):
            answer = await guarded.person().send(endpoint.method, path, body, authorization=authorization)
            assert SECRET not in answer.body.decode(), role
            assert answer.status < 500, answer


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
async def test_no_page_shows_a_body_that_the_role_may_not_see(
    masked: tuple[GuardedConsole, bool], client: AsyncClient, page: Any
) -> None:
    guarded, whole = masked
    paths = paths_of(page.path, await quoted(client, whole))
    if page.path == "/jobs/{descriptor}":
        paths = [f"{path}?view={view}" for path in paths for view in ("json", "text", "hex")]
    for role in EVERY_ROLE_BUT_ADMIN:
        person = await guarded.logged_in(role.value, role)
        for path in paths:
            answer = await person.get(path, accept="text/html")
            shown = answer.body.decode()
            assert SECRET not in shown, role
            assert SECRET.encode().hex(" ") not in shown, role
            assert answer.status < 500, answer


async def test_jobs_of_a_group_are_found_though_their_errors_are_masked(
    core: Core, client: AsyncClient, clock: ManualClock
) -> None:
    """The console compares jobs itself; their texts do not tell it the group."""
    async with guarded_console(core, clock, BodyMasks(["mail"])) as guarded:
        failed = await failed_job(client, f"no card {SECRET}")
        headers = {"authorization": f"Bearer {guarded.tokens.make('reading', Role.READ)}"}
        person = guarded.person()
        [group] = (await person.ok("GET", "/v1/failures?queue=mail", **headers))["groups"]
        found = await person.ok("GET", f"/v1/queues/mail/jobs?state=failed&group={group['name']}", **headers)
    assert group["pattern"] == "[masked]"
    assert [(job["descriptor"], job["error_type"], job["error_text"]) for job in found["jobs"]] == [
        (failed, "ValueError", "[masked]")
    ]


async def reader(guarded: GuardedConsole) -> Person:
    return await guarded.logged_in("reader", Role.READ)


async def test_the_api_says_that_a_body_is_masked(masked: tuple[GuardedConsole, bool], client: AsyncClient) -> None:
    guarded, whole = masked
    job = await stored(client, BODY)
    expected = "" if whole else BODY.decode().replace(SECRET, "[masked]")
    for role, body, is_masked in ((Role.READ, expected, True), (Role.ADMIN, BODY.decode(), False)):
        headers = {"authorization": f"Bearer {guarded.tokens.make(role.value, role)}"}
        person = guarded.person()
        found = await person.ok("GET", f"/v1/jobs/{job}?bodies=true", **headers)
        [scanned] = (await person.ok("GET", "/v1/queues/mail/jobs?bodies=true", **headers))["jobs"]
        [looked_up] = (await person.ok("POST", "/v1/jobs/lookup", {"descriptors": [job], "bodies": True}, **headers))[
            "jobs"
        ]
        for shown in (found, scanned, looked_up):
            assert (shown["body"], shown["body_masked"]) == (body, is_masked)
        assert not (await person.ok("GET", f"/v1/jobs/{job}", **headers))["body_masked"]


async def test_a_worker_dequeues_whole_bodies_over_http(
    masked: tuple[GuardedConsole, bool], client: AsyncClient
) -> None:
    guarded, _ = masked
    await stored(client, BODY)
    headers = {"authorization": f"Bearer {guarded.tokens.make('worker', Role.WORK)}"}
    [job] = (await guarded.person().ok("POST", "/v1/queues/mail/jobs/dequeue", {}, **headers))["jobs"]
    assert (job["body"], job["body_masked"]) == (BODY.decode(), False)


async def test_a_masked_body_can_not_be_downloaded(masked: tuple[GuardedConsole, bool], client: AsyncClient) -> None:
    """A program would take it for the body."""
    guarded, _ = masked
    job = await stored(client, BODY)
    headers = {"authorization": f"Bearer {guarded.tokens.make('reading', Role.READ)}"}
    problem = await guarded.person().refused("GET", f"/v1/jobs/{job}/body", **headers)
    assert (problem["status"], problem["reason"]) == (403, "BODY_MASKED")
    person = await reader(guarded)
    assert (await person.get(f"/jobs/{job}/body", accept="text/html")).status == 403
    assert f"/jobs/{job}/body" not in (await person.page(f"/jobs/{job}")).links
    admin = await guarded.logged_in("admin", Role.ADMIN)
    answer = await admin.get(f"/jobs/{job}/body")
    assert (answer.body, answer.headers["content-disposition"]) == (BODY, "attachment")
    assert f"/jobs/{job}/body" in (await admin.page(f"/jobs/{job}")).links


async def test_the_page_of_a_job_says_that_its_body_is_masked(
    masked: tuple[GuardedConsole, bool], client: AsyncClient
) -> None:
    """It says no number of bytes."""
    guarded, whole = masked
    job = await stored(client, BODY)
    text = text_of(await (await reader(guarded)).get(f"/jobs/{job}", accept="text/html"))
    assert ("The body is masked" in text, "Parts of the body are masked" in text) == (whole, not whole)
    assert "bytes" not in text
    assert (SHOWN in text) is not whole
    admin = text_of(await (await guarded.logged_in("admin", Role.ADMIN)).get(f"/jobs/{job}", accept="text/html"))
    assert (SECRET in admin, "masked" in admin) == (True, False)


async def test_a_regex_in_masked_bodies_is_refused_with_a_reason(
    masked: tuple[GuardedConsole, bool], client: AsyncClient
) -> None:
    guarded, _ = masked
    await stored(client, BODY)
    headers = {"authorization": f"Bearer {guarded.tokens.make('ops', Role.OPERATE)}"}
    for method, path in (
        ("GET", f"/v1/queues/mail/jobs?regex={SECRET}"),
        ("GET", f"/v1/queues/mail/jobs/count?regex={SECRET}"),
        ("DELETE", f"/v1/queues/mail/jobs?state=pending&regex={SECRET}"),
    ):
        problem = await guarded.person().refused(method, path, **headers)
        assert (problem["status"], problem["reason"]) == (403, "BODIES_MASKED")
    text = text_of(await (await reader(guarded)).get(f"/queues/mail?tab=due&regex={SECRET}", accept="text/html"))
    assert "are masked for your roles" in text


async def test_a_search_says_which_bodies_it_has_not_looked_into(
    masked: tuple[GuardedConsole, bool], client: AsyncClient
) -> None:
    guarded, _ = masked
    await stored(client, BODY)
    headers = {"authorization": f"Bearer {guarded.tokens.make('reading', Role.READ)}"}
    found = await guarded.person().ok("GET", f"/v1/search?text={SECRET}", **headers)
    assert (found["jobs"], found["masked"], found["incomplete"]) == ([], ["mail"], False)
    text = text_of(await (await reader(guarded)).get(f"/search?text={SECRET}", accept="text/html"))
    assert "Bodies of mail are masked for your roles, and were not searched." in text
    admin = {"authorization": f"Bearer {guarded.tokens.make('admin', Role.ADMIN)}"}
    found = await guarded.person().ok("GET", f"/v1/search?text={SECRET}", **admin)
    assert ([one["where"] for one in found["jobs"]], found["masked"]) == (["body"], [])
