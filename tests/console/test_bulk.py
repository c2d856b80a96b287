"""Changes of many jobs in the background, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pinlater.client import AsyncClient, JobState
from tests.console.caller import Caller
from tests.console.pages.conftest import failed_job, stored

BULK = "/v1/queues/mail/bulk"


async def ended(caller: Caller, run_id: str) -> dict[str, Any]:
    """The run, once it has ended."""
    async with asyncio.timeout(30):
        while True:
            [run] = [one for one in (await caller.ok("GET", "/v1/bulk?queue=mail"))["runs"] if one["id"] == run_id]
            if run["ended_ms"] is not None:
                return dict(run)
            await asyncio.sleep(0.005)


async def test_a_preview_tells_what_a_run_then_changes(caller: Caller, client: AsyncClient) -> None:
    wanted = [await failed_job(client, "no disk") for _ in range(2)]
    other = await failed_job(client, "boom")
    preview = await caller.ok("GET", f"{BULK}/preview?error=no+disk")
    assert (preview["jobs"], preview["more"]) == (2, False)
    assert {one["descriptor"] for one in preview["samples"]} == set(wanted)
    run = await caller.ok("POST", BULK, {"action": "retry", "error": "no disk", "attempts": 2})
    assert (run["queue"], run["action"], run["filter"]["state"], run["filter"]["error"]) == (
        "mail",
        "retry",
        "failed",
        "no disk",
    )
    done = await ended(caller, run["id"])
    assert (done["state"], done["looked"], done["changed"], done["started_by"]) == ("done", 3, 2, "console")
    found = await client.lookup([*wanted, other])
    assert [found[name].state for name in (*wanted, other)] == [JobState.PENDING, JobState.PENDING, JobState.FAILED]


async def test_without_a_filter_a_preview_counts_all_jobs_due_or_not(caller: Caller, client: AsyncClient) -> None:
    for delay_ms in (0, 60_000):
        await stored(client)
        await caller.ok("POST", f"/v1/queues/mail/jobs?delay_ms={delay_ms}", None)
    preview = await caller.ok("GET", f"{BULK}/preview?state=pending")
    assert (preview["jobs"], preview["more"], len(preview["samples"])) == (4, False, 4)


@pytest.mark.parametrize(
    ("request_body", "field"),
    [
        ({"action": "retry", "state": "pending"}, "state"),
        ({"action": "cancel"}, "state"),
        ({"action": "burn"}, "action"),
        ({"action": "delete"}, "delete needs the state of the jobs: pending, in_progress, succeeded or failed"),
        ({"action": "delete", "state": "failed", "jobs_per_second": 0}, "jobs_per_second"),
        ({"action": "retry", "attempts": 0}, "attempts"),
        ({"action": "retry", "for_good": True}, "for_good"),
        ({"action": "restore"}, "action"),
    ],
)
async def test_what_can_not_be_done_is_refused(caller: Caller, request_body: dict[str, Any], field: str) -> None:
    answer = await caller.post(BULK, request_body)
    assert answer.status == 400
    assert field in answer.body.decode()
    assert (await caller.ok("GET", "/v1/bulk"))["runs"] == []


async def test_a_run_is_stopped_by_its_name(caller: Caller) -> None:
    run = await caller.ok("POST", BULK, {"action": "delete", "state": "failed"})
    stopped = await caller.ok("POST", f"{BULK}/stop", {"run": run["id"]})
    assert stopped["state"] in ("stopped", "done")
    assert (await caller.post(f"{BULK}/stop", {"run": "0123456789abcdef"})).status == 400


async def test_a_run_that_deletes_is_undone_by_its_name(caller: Caller, client: AsyncClient) -> None:
    name = await failed_job(client, "no disk")
    before = await client.lookup([name])
    run = await caller.ok("POST", BULK, {"action": "delete", "state": "failed"})
    run = await ended(caller, run["id"])
    assert run["undo_until_ms"] == run["started_ms"] + 86_400_000
    assert await client.lookup([name]) == {}
    undone = await caller.ok("POST", f"{BULK}/undo", {"run": run["id"], "jobs_per_second": 100.0})
    assert (undone["action"], undone["undoes"], undone["jobs_per_second"]) == ("restore", run["id"], 100.0)
    undone = await ended(caller, undone["id"])
    assert (undone["state"], undone["changed"], undone["undo_until_ms"]) == ("done", 1, None)
    assert await client.lookup([name]) == before
    assert (await caller.post(f"{BULK}/undo", {"run": "0123456789abcdef"})).status == 400


async def test_what_was_deleted_for_good_does_not_come_back(caller: Caller, client: AsyncClient) -> None:
    await failed_job(client, "no disk")
    run = await caller.ok("POST", BULK, {"action": "delete", "state": "failed", "for_good": True})
    run = await ended(caller, run["id"])
    assert (run["for_good"], run["changed"], run["undo_until_ms"]) == (True, 1, None)
    answer = await caller.post(f"{BULK}/undo", {"run": run["id"]})
    assert answer.status == 400
    assert "for good" in answer.body.decode()


async def test_the_list_names_the_shards_that_could_not_be_asked(caller: Caller, lost_shard: str) -> None:
    part = await caller.ok("GET", "/v1/bulk")
    assert (part["runs"], part["incomplete"], part["missing_shards"]) == ([], True, [lost_shard])


async def test_a_run_tells_how_far_it_is(caller: Caller, client: AsyncClient) -> None:
    await failed_job(client, "no disk")
    run = await caller.ok("POST", BULK, {"action": "delete", "state": "failed", "error": "no disk", "expected": 5})
    assert (run["expected"], run["percent"], run["left_ms"]) == (5, None, None)
    run = await ended(caller, run["id"])
    assert (run["to_look_at"], run["expected"], run["percent"], run["left_ms"]) == (1, 5, 100, None)
