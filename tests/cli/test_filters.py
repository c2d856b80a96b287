"""The table of filters on the command line."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

from pinlater.client import AsyncClient, BulkAction, BulkOrder, BulkRun, BulkRunList, BulkState, JobFilter, JobState
from pinlater.client._filtered_jobs import wait_for_end
from pinlater.client.errors import ServerUnreachable
from pinlater.client.values import Scanned
from pinlater.domain.bulk import BULKS_OF_QUEUE_MAX
from tests.cli.conftest import Pinlater
from tests.filter_table import EMPTY_CASES, FILTER_CASES, WRONG_CASES, fail_jobs, options_of


def failed(pinlater: Pinlater, queue: str) -> dict[str, str]:
    async def fail() -> dict[str, str]:
        async with AsyncClient(pinlater.address) as client:
            return await fail_jobs(client, queue)

    return asyncio.run(fail())


def test_list_count_and_dry_runs_find_the_jobs_of_the_same_options(pinlater: Pinlater, queue: str) -> None:
    names = failed(pinlater, queue)
    for words, wanted in FILTER_CASES:
        chosen = (queue, *options_of(words), "--json")
        of_state = (*chosen, "--state", "failed")
        jobs = pinlater.ok("job", "list", *of_state).json["jobs"]
        assert "".join(sorted(names[job["descriptor"]] for job in jobs)) == wanted, words
        assert pinlater.ok("job", "count", *of_state).json["count"] == len(wanted), words
        for command in (
            ("job", "delete", *of_state),
            ("job", "retry", *chosen, "--cancelled"),
            ("bulk", "start", *chosen, "--action", "retry", "--cancelled"),
        ):
            assert pinlater.ok(*command, "--dry-run").json["jobs"] == len(wanted), (command, words)
    assert pinlater.ok("job", "count", queue, "--state", "failed").out == "5\n"


def test_a_wrong_filter_is_refused_by_each_command(pinlater: Pinlater, queue: str) -> None:
    for words in WRONG_CASES:
        for command in (("list", "--state", "failed"), ("count",), ("delete", "--state", "failed"), ("retry",)):
            done = pinlater("job", command[0], queue, *command[1:], *options_of(words))
            assert done.code in {1, 2}, (command, words)
            assert done.err, (command, words)


def test_an_empty_value_is_refused_and_names_its_option_so_that_an_unset_variable_deletes_nothing(
    pinlater: Pinlater, queue: str
) -> None:
    names = failed(pinlater, queue)
    for words in EMPTY_CASES:
        done = pinlater("job", "delete", queue, "--state", "failed", *options_of(words))
        assert done.code == 2, words
        assert "must not be empty" in done.err, words
        assert f"--{next(iter(words))}" in done.err, words
    assert pinlater.ok("job", "count", queue, "--state", "failed").out == f"{len(names)}\n"


def test_a_delete_by_a_filter_says_how_to_undo_it(pinlater: Pinlater, queue: str) -> None:
    names = failed(pinlater, queue)
    done = pinlater("job", "delete", queue, "--state", "failed", "--task", "send")
    assert (done.code, done.out) == (0, "deleted 3 jobs\n")
    assert "for a day, `pinlater bulk undo " in done.err
    run = done.err.split("`")[1].split()[-1]
    pinlater("bulk", "undo", queue, run)
    while len(pinlater.ok("job", "list", queue, "--state", "failed", "--json").json["jobs"]) < len(names):
        pass
    gone = pinlater.ok("job", "delete", queue, "--state", "failed", "--task", "send", "--for-good", "--json").json
    assert gone == {"deleted": 3, "incomplete": False, "more": False}


def test_a_job_that_another_caller_retries_after_it_was_found_is_neither_deleted_nor_retried(
    pinlater: Pinlater, queue: str
) -> None:
    names = failed(pinlater, queue)
    scan = AsyncClient.scan

    async def scan_before_a_retry(asking: AsyncClient, of_queue: str, **asked: Any) -> Scanned:
        page = await scan(asking, of_queue, **asked)
        await asking.run_jobs(of_queue, [job.descriptor for job in page.jobs])
        return page

    with patch.object(AsyncClient, "scan", scan_before_a_retry):
        gone = pinlater("job", "delete", queue, "--state", "failed", "--task", "send", "--for-good", "--json")
        again = pinlater("job", "retry", queue, "--task", "bill", "--delay", "1h", "--json")
    assert (gone.json["deleted"], again.json["retried"]) == (0, 0)
    assert pinlater.ok("job", "count", queue, "--state", "pending").out == f"{len(names) - 1}\n"


def test_a_dry_run_shows_no_more_jobs_than_the_limit(pinlater: Pinlater, queue: str) -> None:
    failed(pinlater, queue)
    for command in (("delete", queue, "--state", "failed"), ("retry", queue, "--cancelled")):
        shown = pinlater.ok("job", *command, "--task", "send", "--limit", "2", "--dry-run", "--json").json
        assert (shown["jobs"], len(shown["samples"])) == (2, 2)


def test_a_dry_run_without_a_filter_shows_no_newest_jobs_where_the_oldest_are_changed(
    pinlater: Pinlater, queue: str
) -> None:
    failed(pinlater, queue)
    for limit, samples in ((2, 0), (5, 5)):
        command = ("job", "delete", queue, "--state", "failed", "--limit", str(limit), "--dry-run", "--json")
        assert len(pinlater.ok(*command).json["samples"]) == samples


BY_TASK = ("--state", "failed", "--task", "send", "--json")


def test_a_delete_whose_run_is_stopped_is_incomplete(pinlater: Pinlater, queue: str) -> None:
    failed(pinlater, queue)
    start = AsyncClient.start_bulk_run

    async def start_and_stop(asking: AsyncClient, order: BulkOrder) -> BulkRun:
        run = await start(asking, order._replace(jobs_per_second=0.5))
        return await asking.stop_bulk_run(queue, run.id)

    with patch.object(AsyncClient, "start_bulk_run", start_and_stop):
        done = pinlater("job", "delete", queue, *BY_TASK)
    assert done.json["deleted"] < 3
    assert done.json["incomplete"]
    assert "was stopped before its end" in done.err


def test_a_delete_names_its_run_at_once_and_in_the_error_if_the_servers_can_not_be_asked_how_far_it_is(
    pinlater: Pinlater, queue: str
) -> None:
    failed(pinlater, queue)

    async def no_answer(_: AsyncClient, *queues: str) -> BulkRunList:
        raise ServerUnreachable(f"no server answers for {queues}")

    with patch.object(AsyncClient, "list_bulk_runs", no_answer):
        done = pinlater("job", "delete", queue, *BY_TASK)
    [run] = pinlater.ok("bulk", "list", queue, "--json").json["runs"]
    told, error = done.err.splitlines()
    assert f"run {run['id']} deletes the jobs" in told
    assert f"bulk run {run['id']} continues" in error
    assert done.code != 0


def test_a_delete_ends_when_the_servers_no_longer_have_its_run(pinlater: Pinlater, queue: str) -> None:
    failed(pinlater, queue)

    async def no_run(_: AsyncClient, *queues: str) -> BulkRunList:
        return BulkRunList([], missing_shards=queues[1:])

    with patch.object(AsyncClient, "list_bulk_runs", no_run):
        done = pinlater("job", "delete", queue, *BY_TASK)
    assert done.code == 1
    assert "its record is gone" in done.err


def test_a_delete_says_once_why_its_run_waits(pinlater: Pinlater, queue: str) -> None:
    failed(pinlater, queue)
    ask, waits = AsyncClient.list_bulk_runs, iter(range(2))

    async def run_waits(asking: AsyncClient, *queues: str) -> BulkRunList:
        found = await ask(asking, *queues)
        if next(waits, None) is None:
            return found
        [run] = found.runs
        return BulkRunList([run._replace(state=BulkState.RUNNING, ended_ms=None, detail="waits: s1 is unreachable")])

    with patch.object(AsyncClient, "list_bulk_runs", run_waits):
        done = pinlater("job", "delete", queue, *BY_TASK)
    assert (done.json["deleted"], done.err.count("s1 is unreachable")) == (3, 1)


def test_a_delete_that_is_one_run_too_many_says_how_to_delete_without_a_run(pinlater: Pinlater, queue: str) -> None:
    failed(pinlater, queue)

    async def start_runs() -> None:
        order = BulkOrder(queue, BulkAction.DELETE, JobFilter(JobState.FAILED, error_text="none has it"), max_jobs=1)
        async with AsyncClient(pinlater.address) as client:
            for _ in range(BULKS_OF_QUEUE_MAX):
                await wait_for_end(client, await client.start_bulk_run(order))

    asyncio.run(start_runs())
    done = pinlater("job", "delete", queue, *BY_TASK)
    assert done.code == 1
    assert "--for-good deletes without a bulk run" in done.err
    assert pinlater("bulk", "start", queue, "--action", "retry").code == 0  # it counts apart
