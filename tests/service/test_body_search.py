"""The processes that search bodies: bounded in number, time and cost, and gone when they are not needed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import psutil  # type: ignore[import-untyped]
import pytest
import pytest_asyncio
from msgspec.structs import replace

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import InvalidArgument, TooManyWaiting
from pinlater.domain.job import JobState
from pinlater.server.operations import body_search as searches_module
from pinlater.server.operations import body_search_process
from pinlater.server.operations.body_search import (
    PatternInvalid,
    SearchNotInstalled,
    SearchOutOfTime,
    SearchProcesses,
    SearchUnavailable,
)
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.wire.generated.structs import CountRequest, ScanRequest
from tests.assembly import open_core
from tests.service.conftest import ServiceUnderTest

DEADLINE_S = 30.0
# Minutes of work for RE2, which keeps track of 900 places at once where the letters follow no pattern.
COSTLY, COSTLY_BODY = b"a.{900}c", bytes(Random(1).choices(b"ab", k=8 * 1024 * 1024))
PENDING = CountRequest("q", JobState.PENDING)


@pytest_asyncio.fixture
async def searches() -> AsyncIterator[SearchProcesses]:
    made = SearchProcesses(processes_max=2, steps_max=10**15)
    yield made
    await made.close()


async def _until_gone(*process_ids: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while any(psutil.pid_exists(process_id) for process_id in process_ids):
            await asyncio.sleep(0.01)


async def _until_busy(searches: SearchProcesses) -> int:
    async with asyncio.timeout(DEADLINE_S):
        while not searches.process_ids:
            await asyncio.sleep(0.01)
    return searches.process_ids[0]


async def test_each_body_gets_its_answer_and_the_program_its_size(searches: SearchProcesses) -> None:
    compiled = await searches.search(b"b+", (), DEADLINE_S)
    assert compiled.program > 0
    assert not compiled.found
    searched = await searches.search(b"b+", [b"abc", b"", b"\xff", b"B", b"bb"], DEADLINE_S)
    assert list(searched.found) == [True, False, False, False, True]
    assert len(searches.process_ids) == 1, "a process serves one search after the other"


async def test_a_search_out_of_its_time_is_killed(searches: SearchProcesses) -> None:
    await searches.search(COSTLY, (), DEADLINE_S)
    [process_id] = searches.process_ids
    with pytest.raises(SearchOutOfTime):
        await searches.search(COSTLY, [COSTLY_BODY], 0.2)
    await _until_gone(process_id)
    assert list((await searches.search(b"x", [b"x"], DEADLINE_S)).found) == [True]


async def test_a_cancelled_search_is_killed(searches: SearchProcesses) -> None:
    searching = asyncio.create_task(searches.search(COSTLY, [COSTLY_BODY], DEADLINE_S))
    process_id = await _until_busy(searches)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    await _until_gone(process_id)


async def test_a_search_that_is_cancelled_while_its_process_begins_leaves_none(searches: SearchProcesses) -> None:
    search = asyncio.create_task(searches.search(b"b", (b"abc",), DEADLINE_S))
    async with asyncio.timeout(DEADLINE_S):
        while not searches.process_ids:
            await asyncio.sleep(0)  # each turn of the loop: it is known for one or two before it is connected
    [process_id] = searches.process_ids
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    assert not searches.process_ids
    await _until_gone(process_id)


async def test_a_process_whose_server_stands_still_is_ended_by_the_kernel(
    searches: SearchProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own timer is late here, as it is in a server that was stopped or killed."""
    monkeypatch.setattr(searches_module, "_ALARM_LATER_S", -DEADLINE_S + 0.2)
    with pytest.raises(SearchUnavailable):
        await searches.search(COSTLY, [COSTLY_BODY], DEADLINE_S)


async def test_there_are_never_more_processes_than_allowed(searches: SearchProcesses) -> None:
    found = await asyncio.gather(*(searches.search(b"%d" % n, [b"7"], DEADLINE_S) for n in range(20)))
    assert [n for n, searched in enumerate(found) if searched.found[0]] == [7]
    assert len(searches.process_ids) <= 2


async def test_a_process_that_died_is_replaced(searches: SearchProcesses) -> None:
    await searches.search(b"x", (), DEADLINE_S)
    [process_id] = searches.process_ids
    os.kill(process_id, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_S):
        while True:  # it may be asked before it is known to be dead
            try:
                assert list((await searches.search(b"x", [b"x"], DEADLINE_S)).found) == [True]
                break
            except SearchUnavailable:
                continue
    assert searches.process_ids != [process_id]


async def test_searches_beyond_the_bound_are_refused_at_once() -> None:
    searches = SearchProcesses(processes_max=1, steps_max=1_000)
    first = asyncio.create_task(searches.search(COSTLY, [COSTLY_BODY], DEADLINE_S, program=7_000))
    await asyncio.sleep(0)
    with pytest.raises(TooManyWaiting, match="regex_steps_in_flight_max"):
        await searches.search(b"x", [b"x" * 10], DEADLINE_S, program=1)
    first.cancel()
    await asyncio.wait([first])
    assert list((await searches.search(b"x", [b"x" * 2_000], DEADLINE_S, program=4)).found) == [True], "alone it may"
    await searches.close()


async def test_all_processes_are_gone_after_the_close_and_no_search_begins(searches: SearchProcesses) -> None:
    searching = asyncio.create_task(searches.search(COSTLY, [COSTLY_BODY], DEADLINE_S))
    process_id = await _until_busy(searches)
    await searches.close()
    with pytest.raises(SearchUnavailable):
        await searching
    await _until_gone(process_id)
    with pytest.raises(SearchUnavailable):
        await searches.search(b"x", [b"x"], DEADLINE_S)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_process_that_begins_during_the_close_is_gone_after_it(
    searches: SearchProcesses, cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not its caller still waits for it."""
    begun: list[searches_module._SearchProcess] = []
    begins, may_begin = threading.Event(), threading.Event()

    def begin() -> searches_module._SearchProcess:
        begins.set()
        may_begin.wait(DEADLINE_S)
        begun.append(process())
        return begun[0]

    process = searches_module._SearchProcess
    monkeypatch.setattr(searches_module, "_SearchProcess", begin)
    searching = asyncio.create_task(searches.search(b"b", (b"abc",), DEADLINE_S))
    assert await asyncio.to_thread(begins.wait, DEADLINE_S)
    if cancelled:
        searching.cancel()
    closing = asyncio.create_task(searches.close())
    await asyncio.sleep(0)
    may_begin.set()
    await closing
    with pytest.raises(asyncio.CancelledError if cancelled else SearchUnavailable):
        await searching
    assert not psutil.pid_exists(begun[0].process_id)


async def test_idle_processes_end(searches: SearchProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches_module, "_IDLE_S", 0.01)
    await searches.search(b"x", [b"x"], DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        while searches.process_ids:
            await asyncio.sleep(0.01)


async def test_an_invalid_pattern_leaves_the_process_as_it_is(searches: SearchProcesses) -> None:
    await searches.search(b"x", (), DEADLINE_S)
    before = searches.process_ids
    for pattern in (b"(", b"\xff", rb"(\pL{30}|\pN{30}){30}"):
        with pytest.raises(PatternInvalid):
            await searches.search(pattern, [b"x"], DEADLINE_S)
    assert searches.process_ids == before


def test_a_process_that_may_not_lower_its_priority_searches_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under our systemd unit's filter of system calls it may not."""

    def refused(_: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "nice", refused)
    body_search_process.run_behind_the_server()


async def test_where_no_process_can_be_started_searches_are_refused_and_all_else_goes_on(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches_module, "_command", lambda: ["/nowhere/python"])
    await world.enqueue(b"x")
    with pytest.raises(SearchUnavailable, match="could not be started"):
        await world.service.job_queries.count(replace(PENDING, regex="x"))
    assert await world.service.job_queries.count(PENDING) == 1
    assert len((await world.dequeue(1)).jobs) == 1


async def test_without_its_package_a_search_is_refused_and_the_log_says_what_to_install(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A test server may run where only the SDK is installed. Callers get no path of the server's machine."""
    monkeypatch.setattr(searches_module, "find_spec", lambda _: None)
    with pytest.raises(SearchNotInstalled, match="needs google-re2") as raised:
        await world.service.job_queries.count(replace(PENDING, regex="x"))
    assert (raised.value.retryable, "/" in raised.value.message) == (False, False)
    (said,) = [vars(record) for record in caplog.records if "install" in vars(record)]
    assert re.fullmatch(r"pip install .*\[regex\]'", said["install"])
    assert await world.service.job_queries.count(PENDING) == 0


@asynccontextmanager
async def world_with(steps_max: int) -> AsyncIterator[ServiceUnderTest]:
    """A service where one search may take that number of steps."""
    clock = ManualClock()
    core = await open_core(MemoryShard(), clock=clock, jobs=JobSettings(regex_steps_max=steps_max))
    await core.service.queues.create_queue("q")
    yield ServiceUnderTest(clock, core.service, core.dispatcher, core.metrics, core.standstill)
    await core.close()


@pytest_asyncio.fixture
async def bounded() -> AsyncIterator[ServiceUnderTest]:
    async with world_with(1_000_000) as world:
        yield world


@pytest_asyncio.fixture
async def tightly_bounded() -> AsyncIterator[ServiceUnderTest]:
    async with world_with(1_000) as world:
        yield world


async def test_a_search_over_its_steps_is_refused_before_it_starts(bounded: ServiceUnderTest) -> None:
    world = bounded
    await world.enqueue(b"ab" * 400, b"ab" * 400)
    costly = replace(PENDING, regex="a.{900}c")
    for refused in (
        world.service.job_queries.count(costly),
        world.service.job_queries.scan(ScanRequest("q", JobState.PENDING, regex=costly.regex)),
    ):
        with pytest.raises(InvalidArgument, match=r"program of \d+ instructions.*regex_steps_max") as error:
            await refused
        assert error.value.detail == "REGEX_TOO_COSTLY"
    assert await world.service.job_queries.count(replace(PENDING, regex="ab")) == 2


async def test_a_paged_scan_gets_what_its_budget_allows_and_goes_on_from_there(
    tightly_bounded: ServiceUnderTest,
) -> None:
    """Newest first: three cheap bodies, one that costs more than a request may, one cheap one."""
    world = tightly_bounded
    world.clock.advance(ms=10)
    for body in (b"e", b"a" * 900, b"c", b"b", b"a"):
        await world.enqueue(body)
        world.clock.advance(ms=10)
    every = ScanRequest("q", JobState.PENDING, regex="[abce]+", paged=True, bodies=True)
    page = await world.service.job_queries.scan(every)
    assert [job.body for job in page.jobs] == [b"a", b"b", b"c"]
    assert page.incomplete
    with pytest.raises(InvalidArgument, match="regex_steps_max"):
        await world.service.job_queries.scan(replace(every, continuation=page.continuation))
