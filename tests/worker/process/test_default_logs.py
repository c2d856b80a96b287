"""What `worker.run()` shows in a program that has set up no logging, and in one that has."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import pytest

from pinlater.client import AsyncClient, Job

PROGRAM = """
import logging, sys
from pinlater import Worker
{set_up}
worker = Worker(sys.argv[1])

@worker.task("q")
async def once() -> None:
    logging.getLogger("shop").info("a line of the program")
    {in_the_task}
    worker.request_stop()

@worker.task("q")
async def other() -> None: ...

worker.run()
"""


async def stderr_of(client: AsyncClient, set_up: str = "", in_the_task: str = "") -> str:
    await client.enqueue("q", [Job(b"{}", headers={"pinlater-task": "once"})])
    program = PROGRAM.format(set_up=set_up, in_the_task=in_the_task)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(client.servers[0]), stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await process.communicate()
    assert process.returncode == 0, stderr
    return stderr.decode()


async def test_without_logging_the_workers_own_lines_go_to_standard_error(client: AsyncClient) -> None:
    started, queue, succeeded, stopped = (await stderr_of(client)).splitlines()
    assert f" INFO    worker started servers={client.servers[0]} " in started
    assert queue.endswith(" INFO    queue q tasks=once,other")
    assert " INFO    once succeeded in " in succeeded
    assert " job=q:s" in succeeded
    assert " INFO    worker stopped " in stopped


async def test_a_logger_of_the_program_with_a_level_is_shown_with_time_and_job(client: AsyncClient) -> None:
    lines = (await stderr_of(client, "logging.getLogger('shop').setLevel('INFO')")).splitlines()
    (line,) = [line for line in lines if "a line of the program" in line]
    assert re.match(r"20\d\d-\S+Z INFO    a line of the program queue=q job=q:s\S+ attempt=1 task=once$", line)


async def test_a_warning_of_the_program_is_shown_with_the_job_and_a_line_below_the_level_is_not(
    client: AsyncClient,
) -> None:
    in_the_task = "logging.getLogger('shop').warning('out of stock')"
    lines = (await stderr_of(client, in_the_task=in_the_task)).splitlines()
    (line,) = [line for line in lines if "out of stock" in line]
    assert re.match(r"20\d\d-\S+Z WARNING out of stock queue=q job=q:s", line)
    assert "a line of the program" not in str(lines)


async def test_the_banner_lists_servers_and_tasks_as_arrays_in_json(client: AsyncClient) -> None:
    lines = (
        await stderr_of(client, "from pinlater.cli.worker_logs import log_to_stderr; log_to_stderr('json', 'info')")
    ).splitlines()
    started, queue = [json.loads(line) for line in lines[:2]]
    assert (started["servers"], queue["tasks"]) == ([str(client.servers[0])], ["once", "other"])


@pytest.mark.parametrize(
    "set_up",
    [
        "logging.basicConfig(level='ERROR')",
        "logging.getLogger('pinlater').addHandler(logging.NullHandler())",
        "logging.getLogger('pinlater').setLevel('ERROR')",
    ],
)
async def test_logging_that_the_program_has_set_up_stays(client: AsyncClient, set_up: str) -> None:
    assert await stderr_of(client, set_up) == ""


async def test_logging_that_a_task_sets_up_replaces_it(client: AsyncClient) -> None:
    lines = (await stderr_of(client, in_the_task="logging.warning('set up')")).splitlines()
    assert [line for line in lines if "stopped" in line or "set up" in line] == [
        "WARNING:root:set up",
        "INFO:pinlater.worker:worker stopped",
    ]


async def test_warnings_of_a_job_are_all_shown_though_they_are_the_same(client: AsyncClient) -> None:
    warn = '[logging.getLogger("pinlater.client").warning("keys ignored") for _ in range(3)]'
    shown = await stderr_of(client, in_the_task=warn)
    assert shown.count("keys ignored") == 3
