"""The original's client tool, run as people's old scripts run it: a process of its own against a real server."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable

import pytest

from bench.servers import PinLaterServer
from tests.promises.wire import FAILED, IN_PROGRESS, PENDING, SUCCEEDED, Wire

Tool = Callable[..., Awaitable[Process]]
RATE = re.compile(rb"QPS: \d+ Avg Latency \(ms\): [\d.]+")
END_S = 60.0


@pytest.fixture
def tool(server: PinLaterServer) -> Tool:
    """Starts the tool in a mode."""

    async def start(mode: str, *more: str) -> Process:
        where = ("--host", "127.0.0.1", "--port", str(server.port), "--mode", mode)
        command = (sys.executable, "-m", "pinlater", "client-tool", *where, *more)
        return await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE
        )

    return start


async def said(process: Process) -> list[bytes]:
    """Its output's lines, once it has ended well."""
    async with asyncio.timeout(END_S):
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    return out.splitlines()


async def acks(server: PinLaterServer) -> int:
    """How many ack calls the server has answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    writer.write(b"GET /stats.json HTTP/1.0\r\nHost: localhost\r\n\r\n")
    counters = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])["counters"]
    writer.close()
    return int(sum(counters.get(f"PinLaterService.{name}_requests", 0) for name in ("ackDequeuedJobs", "ackJobs")))


async def test_by_default_it_sends_one_query_of_one_job_named_task_and_a_number(
    tool: Tool, wire: Wire, queue: str
) -> None:
    [line] = await said(await tool("enqueue", "--queue", queue))
    assert RATE.fullmatch(line)
    [job] = (await wire.scan(queue, includeBody=True)).scannedJobs
    assert re.fullmatch(rb"task_-?\d+", job.body)
    assert job.jobDescriptor.split(":")[2] == "p1"


async def test_check_dequeue_is_a_dry_run_of_one(tool: Tool, wire: Wire, queue: str) -> None:
    assert await said(await tool("check_dequeue", "--queue", queue)) == [b"Jobs available for dequeue: 0"]
    await wire.enqueue(queue, b"a", b"b")
    assert await said(await tool("check_dequeue", "--queue", queue)) == [b"Jobs available for dequeue: 1"]
    assert (await wire.count(queue), await wire.count(queue, IN_PROGRESS)) == (2, 0)


async def test_a_dequeue_acks_in_a_second_call_with_the_percentage_asked_for(
    tool: Tool, wire: Wire, queue: str, server: PinLaterServer
) -> None:
    await wire.enqueue(queue, *[b"x"] * 4, numAttemptsAllowed=1)
    before = await acks(server)
    await said(await tool("dequeue", "--queue", queue, "--batch_size", "2"))
    assert (await wire.count(queue, SUCCEEDED), await wire.count(queue, PENDING)) == (2, 2)
    await said(await tool("dequeue", "--queue", queue, "--batch_size", "2", "--dequeue_success_percent", "0"))
    assert (await wire.count(queue, SUCCEEDED), await wire.count(queue, FAILED)) == (2, 2)
    assert await acks(server) - before == 2


async def test_without_an_end_it_goes_on_and_says_its_rate_once_a_second(tool: Tool, queue: str) -> None:
    process = await tool("enqueue", "--queue", queue, "--num_queries", "-1")
    assert process.stdout is not None
    async with asyncio.timeout(END_S):
        for _ in range(2):
            assert RATE.match(await process.stdout.readline())
        process.send_signal(signal.SIGINT)
        await process.communicate()


async def test_a_missing_host_port_or_mode_is_said_so(queue: str) -> None:
    command = (sys.executable, "-m", "pinlater", "client-tool", "--queue", queue)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    _, err = await process.communicate()
    assert process.returncode == 2
    assert b"--host" in err
