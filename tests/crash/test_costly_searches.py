"""Regexes that would take minutes, sent to a real server: it goes on serving, and ends them."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import psutil  # type: ignore[import-untyped]
import pytest

from pinlater import Ack, AsyncClient, JobState, Outcome
from pinlater.client.errors import CallerError
from pinlater.testing.real_server import RealServer

pytestmark = pytest.mark.crash

DEADLINE_S = 60.0
# Of CPU. A process that starts and compiles the pattern takes less.
_SEARCHING_S = 1.0
# Each body takes RE2 ten seconds and more: it keeps track of 900 places at once where the letters follow no pattern.
PATTERN, BODY, JOBS = "a.{900}c", bytes(Random(1).choices(b"ab", k=1024 * 1024)), 8
BUDGETS = ("--set", "jobs.regex_steps_max=1000000000000000", "--set", "jobs.regex_steps_in_flight_max=1000000000000000")
LONG = (*BUDGETS, "--set", "jobs.regex_time_budget_ms=1h")


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.01)


def _children(server: RealServer) -> list[psutil.Process]:
    return list(psutil.Process(server.process_id).children(recursive=True))


async def _healthy(server: RealServer) -> bool:
    def get() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/healthz", timeout=DEADLINE_S) as answer:
            return bool(answer.status == 200)

    return await asyncio.to_thread(get)


async def _costly_jobs(client: AsyncClient) -> None:
    for queue in ("attacked", "quiet"):
        await client.create_queue(queue)
    for _ in range(JOBS):
        await client.enqueue("attacked", [BODY])


async def _work(client: AsyncClient, server: RealServer, rounds: int) -> None:
    """Jobs go through the server and its health is answered, again and again."""
    for number in range(rounds):
        await client.enqueue("quiet", [b"job %d" % number])
        [job] = (await client.dequeue("quiet", 1)).jobs
        [acked] = await client.ack("quiet", [Ack(job.descriptor, token=job.token)])
        assert acked.outcome is Outcome.APPLIED
        assert await _healthy(server)


def _attack(client: AsyncClient, attack: str) -> Coroutine[object, object, object]:
    if attack == "scan":
        return client.scan("attacked", JobState.PENDING, regex=PATTERN)
    if attack == "count":
        return client.count("attacked", JobState.PENDING, regex=PATTERN)
    return client.delete_jobs("attacked", JobState.PENDING, regex=PATTERN)


@pytest.mark.parametrize("attack", ["scan", "count", "delete"])
async def test_claims_and_health_are_answered_while_searches_last(tmp_path: Path, attack: str) -> None:
    """All the work must end before the first of the searches does, so the test depends on no clock."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(RealServer(tmp_path, *LONG))
        client = await stack.enter_async_context(AsyncClient(server.address))
        await _costly_jobs(client)
        attacks = []
        for _ in range(6):
            attacker = await stack.enter_async_context(AsyncClient(server.address, timeout_ms=3_600_000))
            attacks.append(asyncio.create_task(_attack(attacker, attack)))
        await _until(lambda: len(_children(server)) == 2)
        await _work(client, server, 25)
        assert not any(search.done() for search in attacks)
        assert len(_children(server)) == 2, "as many as jobs.regex_processes_max"
        for search in attacks:
            search.cancel()
        await asyncio.wait(attacks)
        await _work(client, server, 1)
        assert await client.count("attacked", JobState.PENDING) == JOBS


async def test_a_search_is_ended_when_its_time_is_over(tmp_path: Path) -> None:
    with RealServer(tmp_path, *BUDGETS) as server:
        async with AsyncClient(server.address, timeout_ms=120_000) as client:
            await _costly_jobs(client)
            for attack in ("scan", "count", "delete"):
                with pytest.raises(CallerError) as error:
                    await _attack(client, attack)
                assert error.value.detail == "REGEX_TOO_COSTLY"
            assert await client.count("attacked", JobState.PENDING) == JOBS


async def test_a_search_over_its_steps_is_refused_before_a_body_is_searched(tmp_path: Path) -> None:
    with RealServer(tmp_path) as server:
        async with AsyncClient(server.address, timeout_ms=120_000) as client:
            await _costly_jobs(client)
            with pytest.raises(CallerError, match="regex_steps_max") as error:
                await _attack(client, "count")
            assert "after 0 bodies" in str(error.value)


async def test_a_search_ends_with_its_caller(tmp_path: Path) -> None:
    with RealServer(tmp_path, *LONG) as server:
        async with AsyncClient(server.address) as client:
            await _costly_jobs(client)
        gone = await AsyncClient(server.address, timeout_ms=3_600_000).open()
        search = asyncio.create_task(_attack(gone, "scan"))
        await _until(lambda: bool(_children(server)))
        [process] = _children(server)
        await _until(lambda: process.cpu_times().user > _SEARCHING_S)  # one without work may stay for a minute
        search.cancel()
        await asyncio.wait([search])
        await gone.close()
        await _until(lambda: not process.is_running())


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_search_processes_end_with_their_server(tmp_path: Path, end: str) -> None:
    """The kernel ends the process of a killed server in the middle of a search when its time is over."""
    time_s = "3600s" if end == "stop" else "3s"
    with RealServer(tmp_path, *BUDGETS, "--set", f"jobs.regex_time_budget_ms={time_s}") as server:
        async with AsyncClient(server.address, timeout_ms=3_600_000) as client:
            await _costly_jobs(client)
            search = asyncio.create_task(_attack(client, "scan"))
            await _until(lambda: bool(_children(server)))
            [process] = _children(server)
            if end == "stop":
                search.cancel()
                await asyncio.to_thread(server.stop)
            else:
                await asyncio.to_thread(server.kill)
                search.cancel()
            await asyncio.wait([search])
        await _until(lambda: not process.is_running())
