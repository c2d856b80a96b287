"""The table of filters on the command line."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

from pinlater.client import AsyncClient
from pinlater.client.values import Scanned
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
