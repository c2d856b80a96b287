"""The table of filters over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlencode

import pytest

from pinlater.client import Ack, AsyncClient, BulkOrder, BulkRun, BulkRunList, Job, JobState, UniqueKey
from pinlater.client.errors import ServerUnreachable
from pinlater.client.values import Scanned
from pinlater.domain.clock import ManualClock
from pinlater.domain.job import TASK_HEADER
from tests.console.caller import Caller
from tests.filter_table import FILTER_CASES, WRONG_CASES, fail_jobs, moments

JOBS = "/v1/queues/mail/jobs"


async def test_lists_counts_previews_and_dry_runs_find_the_jobs_of_a_filter(
    caller: Caller, client: AsyncClient, clock: ManualClock
) -> None:
    names = await fail_jobs(client, "mail")
    for words, wanted in FILTER_CASES:
        given = moments(words, clock.now_ms())
        query = urlencode({"state": "failed", **given}, doseq=True)
        found = (await caller.ok("GET", f"{JOBS}?{query}"))["jobs"]
        assert "".join(sorted(names[job["descriptor"]] for job in found)) == wanted, words
        assert (await caller.ok("GET", f"{JOBS}/count?{query}"))["jobs"] == len(wanted), words
        assert (await caller.ok("GET", f"/v1/queues/mail/bulk/preview?{query}"))["jobs"] == len(wanted), words
        dry = await caller.ok("DELETE", f"{JOBS}?{query}&dry_run=true")
        assert dry == {"jobs": len(wanted), "incomplete": False, "continuation": None, "run": None}, words
        retry = {"cancelled": True, "dry_run": True, **given}
        assert (await caller.ok("POST", f"{JOBS}/retry-failed", retry))["jobs"] == len(wanted), words
    assert all(job.state is JobState.FAILED for job in (await client.lookup(list(names))).values())


async def test_a_wrong_filter_is_refused_everywhere(caller: Caller, clock: ManualClock) -> None:
    for words in WRONG_CASES:
        given = moments(words, clock.now_ms())
        query = urlencode({"state": "failed", **given}, doseq=True)
        for method, path in (("GET", JOBS), ("GET", f"{JOBS}/count"), ("DELETE", JOBS)):
            assert (await caller.refused(method, f"{path}?{query}"))["status"] == 400, (path, words)
        assert (await caller.refused("POST", f"{JOBS}/retry-failed", given))["status"] == 400, words
        order = {"action": "retry", **given}
        assert (await caller.refused("POST", "/v1/queues/mail/bulk", order))["status"] == 400, words


async def test_an_empty_value_is_refused_and_names_its_field_so_that_an_unset_variable_deletes_nothing(
    caller: Caller, client: AsyncClient
) -> None:
    names = await fail_jobs(client, "mail")
    for word in ("group", "error", "regex"):
        refused = await caller.refused("DELETE", f"{JOBS}?state=failed&{word}=")
        assert (refused["status"], refused["field"], refused["detail"]) == (400, word, "must not be empty"), word
        await caller.refused("POST", f"{JOBS}/retry-failed", {word: ""})
    assert len(await client.lookup(list(names))) == len(names)


async def test_a_delete_by_a_filter_can_be_undone_unless_it_is_for_good(caller: Caller, client: AsyncClient) -> None:
    names = await fail_jobs(client, "mail")
    done = await caller.ok("DELETE", f"{JOBS}?state=failed&task=send&limit=2")
    assert (done["jobs"], done["incomplete"]) == (2, False)
    assert len(await client.lookup(list(names))) == 3
    undoing = await caller.ok("POST", "/v1/queues/mail/bulk/undo", {"run": done["run"]})
    while (await caller.ok("GET", "/v1/bulk?queue=mail"))["runs"][0]["ended_ms"] is None:
        pass
    assert undoing["undoes"] == done["run"]
    assert len(await client.lookup(list(names))) == 5
    gone = await caller.ok("DELETE", f"{JOBS}?state=failed&task=send&for_good=true")
    assert gone == {"jobs": 3, "incomplete": False, "continuation": None, "run": None}


async def test_a_job_that_another_caller_retries_after_it_was_found_is_neither_deleted_nor_retried(
    caller: Caller, client: AsyncClient
) -> None:
    names = await fail_jobs(client, "mail")
    scan = AsyncClient.scan

    async def scan_before_a_retry(asking: AsyncClient, queue: str, **asked: Any) -> Scanned:
        page = await scan(asking, queue, **asked)
        await client.run_jobs(queue, [job.descriptor for job in page.jobs])
        return page

    with patch.object(AsyncClient, "scan", scan_before_a_retry):
        gone = await caller.ok("DELETE", f"{JOBS}?state=failed&task=send&for_good=true")
        again = await caller.ok("POST", f"{JOBS}/retry-failed", {"task": ["bill"], "delay_ms": 60_000})
    assert (gone["jobs"], again["jobs"]) == (0, 0)
    assert len(await client.lookup(list(names))) == len(names)


async def test_a_delete_whose_run_is_stopped_is_incomplete(caller: Caller, client: AsyncClient) -> None:
    await fail_jobs(client, "mail")
    start = AsyncClient.start_bulk_run

    async def start_and_stop(asking: AsyncClient, order: BulkOrder) -> BulkRun:
        run = await start(asking, order._replace(jobs_per_second=2.0))
        return await asking.stop_bulk_run("mail", run.id)

    with patch.object(AsyncClient, "start_bulk_run", start_and_stop):
        done = await caller.ok("DELETE", f"{JOBS}?state=failed&task=send")
    assert done["incomplete"]


async def test_a_delete_names_its_run_though_the_servers_can_not_be_asked_how_far_it_is(
    caller: Caller, client: AsyncClient
) -> None:
    await fail_jobs(client, "mail")

    async def no_answer(_: AsyncClient, *queues: str) -> BulkRunList:
        raise ServerUnreachable(f"no server answers for {queues}")

    with patch.object(AsyncClient, "list_bulk_runs", no_answer):
        done = await caller.ok("DELETE", f"{JOBS}?state=failed&task=send")
    [run] = (await client.list_bulk_runs("mail")).runs
    assert (done["run"], done["incomplete"]) == (run.id, True)


async def test_a_delete_of_some_waiting_jobs_takes_due_ones_before_scheduled_ones_as_lists_show_them(
    caller: Caller, client: AsyncClient, clock: ManualClock
) -> None:
    headers = {TASK_HEADER: "send"}
    later = Job(b"", headers=headers, run_after_ms=clock.now_ms() + 3_600_000)
    stored = await client.enqueue("mail", [later, Job(b"", headers=headers), later])
    for left, limit in ((2, 1), (1, 1), (0, 10)):
        query = f"state=pending&task=send&limit={limit}"
        assert (await caller.ok("DELETE", f"{JOBS}?{query}"))["jobs"] == 1
        found = await client.lookup(stored.descriptors)
        assert len(found) == left
        assert stored.descriptors[1] not in found


async def test_a_change_by_a_filter_goes_on_where_the_one_before_ended(
    caller: Caller, client: AsyncClient, clock: ManualClock
) -> None:
    headers = {TASK_HEADER: "send"}
    later = Job(b"", headers=headers, run_after_ms=clock.now_ms() + 3_600_000)
    stored = await client.enqueue("mail", [later, Job(b"", headers=headers), later])
    kept: list[Sequence[str]] = []

    async def delete_none(_: AsyncClient, queue: str, names: Sequence[str], **asked: Any) -> int:
        kept.append(names)
        return 0

    query, after = f"{JOBS}?state=pending&task=send&limit=1&for_good=true", ""
    with patch.object(AsyncClient, "delete_jobs_by_descriptor", delete_none):
        while after is not None:
            assert quote(after) == after
            after = (await caller.ok("DELETE", f"{query}{after and '&continuation=' + after}"))["continuation"]
    due_first = [stored.descriptors[at] for at in (1, 2, 0)]
    assert kept == [[name] for name in due_first]


async def test_a_retry_passes_jobs_that_can_not_be_retried_by_its_continuation(
    caller: Caller, client: AsyncClient
) -> None:
    names = await fail_jobs(client, "mail")
    newest = Job(b"", headers={TASK_HEADER: "send"}, attempts_allowed=1, unique=UniqueKey("k"))
    [name] = (await client.enqueue("mail", [newest])).descriptors
    await client.dequeue("mail", 1)
    await client.ack("mail", [Ack(name, succeeded=False)])
    await client.enqueue("mail", [newest])
    asked = {"task": ["send"], "limit": 1}
    first = await caller.ok("POST", f"{JOBS}/retry-failed", asked)
    assert (await caller.ok("POST", f"{JOBS}/retry-failed", asked))["jobs"] == first["jobs"] == 0
    going_on = {**asked, "continuation": first["continuation"]}
    assert (await caller.ok("POST", f"{JOBS}/retry-failed", going_on))["jobs"] == 1
    assert len(await client.lookup(list(names))) == len(names)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"priority": 1},
        {"task": ["send"], "dry_run": True},
        *(
            {"task": ["send"], "continuation": wrong}
            for wrong in ("later.0", "later.-1", "-1", "", "null", "9" * 30 + ".1")
        ),
    ],
    ids=str,
)
async def test_a_continuation_that_can_not_be_followed_is_refused(
    caller: Caller, client: AsyncClient, clock: ManualClock, asked: dict[str, Any]
) -> None:
    scheduled = Job(b"", headers={TASK_HEADER: "send"}, run_after_ms=clock.now_ms() + 3_600_000)
    await client.enqueue("mail", [scheduled])
    assert (await caller.refused("POST", f"{JOBS}/retry-failed", {"continuation": "0", **asked}))["status"] == 400
    for state in ("failed", "pending") if asked.get("continuation") != "later.0" else ("failed",):
        query = urlencode({"state": state, "continuation": "0", "for_good": "task" in asked, **asked}, doseq=True)
        assert (await caller.refused("DELETE", f"{JOBS}?{query.lower()}"))["status"] == 400
    assert await client.count("mail", JobState.PENDING, future=True) == 1


async def test_the_samples_of_a_preview_are_found_though_the_first_jobs_that_a_call_compares_do_not_fit(
    caller: Caller, client: AsyncClient
) -> None:
    await fail_jobs(client, "mail")
    scan, first = AsyncClient.scan, iter([Scanned([], "0")])

    async def scan_without_jobs_first(asking: AsyncClient, queue: str, **asked: Any) -> Scanned:
        return next(first, None) or await scan(asking, queue, **asked)

    with patch.object(AsyncClient, "scan", scan_without_jobs_first):
        found = await caller.ok("GET", "/v1/queues/mail/bulk/preview?state=failed&task=send")
    assert (found["jobs"], len(found["samples"])) == (3, 3)
