"""The audit over HTTP."""

from __future__ import annotations

import pytest

from pinlater.client import AsyncClient
from pinlater.domain.clock import ManualClock
from tests.console.caller import Caller


async def test_changes_are_listed_newest_first_with_their_arguments(
    caller: Caller, client: AsyncClient, clock: ManualClock
) -> None:
    await client.pause_queue("mail")
    clock.advance(ms=1)
    await client.retry_failed("mail", priority=1, limit=7)
    answer = await caller.ok("GET", "/v1/audit")
    newest, oldest = answer["entries"]
    assert (newest["operation"], newest["arguments"]["limit"], newest["jobs"]) == ("retryFailedJobs", "7", 0)
    assert (oldest["operation"], oldest["queue"], oldest["arguments"], oldest["jobs"]) == (
        "pauseQueue",
        "mail",
        {},
        None,
    )
    assert {(one["who"], one["source"], one["outcome"]) for one in (newest, oldest)} == {("no token", "console", "ok")}
    assert (answer["continuation"], answer["incomplete"]) == (None, False)


async def test_filters_and_pages(caller: Caller, client: AsyncClient, clock: ManualClock) -> None:
    await client.create_queue("other")
    since_ms = clock.now_ms() + 1
    clock.advance(ms=1)
    await client.pause_queue("other")
    await client.pause_queue("mail")

    async def found(query: str) -> list[tuple[str, str]]:
        return [(one["operation"], one["queue"]) for one in (await caller.ok("GET", f"/v1/audit?{query}"))["entries"]]

    assert await found("queue=other") == [("pauseQueue", "other"), ("createQueue", "other")]
    assert await found("queue=other&operation=createQueue") == [("createQueue", "other")]
    assert await found(f"since_ms={since_ms}") == [("pauseQueue", "mail"), ("pauseQueue", "other")]
    assert await found(f"until_ms={since_ms}") == [("createQueue", "other")]
    assert await found("who=ops") == []
    first = await caller.ok("GET", "/v1/audit?limit=1")
    assert await found(f"limit=1&continuation={first['continuation']}") == [("pauseQueue", "other")]


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "since_ms=-1", "since_ms=x", "continuation=x", "other=1"])
async def test_wrong_queries_are_refused(caller: Caller, query: str) -> None:
    assert (await caller.refused("GET", f"/v1/audit?{query}"))["status"] == 400
