"""Groups of failures, and what is done with the jobs of one, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.client import Ack, AsyncClient
from pinlater.console.endpoints import failures
from pinlater.domain.access import Role
from pinlater.domain.clock import ManualClock
from pinlater.server.main.core import Core
from tests.console.caller import Caller
from tests.console.pages.conftest import failed_job, guarded_console, stored

JOBS = "/v1/queues/mail/jobs"


async def groups(caller: Caller, query: str = "queue=mail") -> list[dict[str, Any]]:
    answer = await caller.ok("GET", f"/v1/failures?{query}")
    assert not answer["incomplete"]
    found: list[dict[str, Any]] = answer["groups"]
    return found


async def test_failures_that_look_alike_are_one_group(caller: Caller, client: AsyncClient, clock: ManualClock) -> None:
    await failed_job(client, "no file 1")
    newest = await failed_job(client, "no file 22\n  in line 7")
    await failed_job(client, "no file 1", "KeyError")
    [one, other] = sorted(await groups(caller), key=lambda group: -group["failures"])
    now_ms = clock.now_ms()
    name = one.pop("name")
    assert len(name) == 16
    assert one == {
        "queue": "mail",
        "task": "",
        "error_type": "ValueError",
        "pattern": "no file …",
        "failures": 2,
        "first_ms": now_ms,
        "last_ms": now_ms,
        "sample": newest,
        "hours": [0] * 23 + [2],
        "muted_until_ms": 0,
    }
    assert other["error_type"] == "KeyError"
    found = await caller.ok("GET", f"{JOBS}?state=failed&group={name}")
    assert len(found["jobs"]) == 2
    assert await groups(caller, "queue=mail&queue=none") == await groups(caller)


async def fail_in(client: AsyncClient, queue: str, *errors: str) -> None:
    """Creates the queue, with a failed job for each error."""
    await client.create_queue(queue)
    for error in errors:
        await stored(client, queue=queue)
        [job] = (await client.dequeue(queue, 1)).jobs
        await client.ack(queue, [Ack(job.descriptor, False, token=job.token, final=True, error_text=error)])


async def test_without_a_queue_the_groups_of_all_queues_are_answered(
    caller: Caller, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with the most failures first, whatever call of a server told them; a queue in which nothing has failed is not asked for."""
    assert await groups(caller, "") == []
    for number in range(25):
        await fail_in(client, f"q{number:02}", "boom", *["late"] * (number == 22))
    [found] = [await caller.ok("GET", "/v1/failures")]
    assert (found["left_out"], found["incomplete"], len(found["groups"])) == (0, False, 26)
    assert [(group["queue"], group["pattern"]) for group in found["groups"] if group["pattern"] == "late"] == [
        ("q22", "late")
    ]
    await fail_in(client, "zz", "no", "no")
    monkeypatch.setattr(failures, "GROUPS_OF_ALL_MAX", 3)
    cut = await caller.ok("GET", "/v1/failures")
    assert (cut["left_out"], len(cut["groups"])) == (24, 3)
    assert (cut["groups"][0]["queue"], cut["groups"][0]["failures"]) == ("zz", 2)


async def test_an_attempt_that_is_retried_counts_among_the_groups_of_all_queues(
    caller: Caller, client: AsyncClient
) -> None:
    """Its job is in no FAILED state."""
    await stored(client)
    [job] = (await client.dequeue("mail", 1)).jobs
    await client.ack("mail", [Ack(job.descriptor, succeeded=False, token=job.token, error_text="boom")])
    assert [group["pattern"] for group in await groups(caller, "")] == ["boom"]


async def test_a_caller_with_a_token_for_some_queues_gets_the_groups_of_these(
    core: Core, client: AsyncClient, clock: ManualClock
) -> None:
    async with guarded_console(core, clock) as guarded:
        await failed_job(client, "boom")
        await fail_in(client, "other", "secret")
        token = guarded.tokens.make("reading", Role.READ, queues=("mail",))
        found = await guarded.person().ok("GET", "/v1/failures", authorization=f"Bearer {token}")
    assert [group["queue"] for group in found["groups"]] == ["mail"]


@pytest.mark.parametrize(("query", "status"), [("queue=", 404), ("queue=none", 404)])
async def test_a_wrong_request_is_refused(caller: Caller, query: str, status: int) -> None:
    assert (await caller.get(f"/v1/failures?{query}")).status == status
