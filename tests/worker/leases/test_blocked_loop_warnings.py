"""The warning of a task that blocks the worker's event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from pinlater.client import AsyncClient
from pinlater.domain.clock import SystemClock
from pinlater.supervision.logs import count_repeats
from pinlater.worker import Worker
from pinlater.worker._leases import blocked_loop, unstarted_jobs
from pinlater.worker._leases.blocked_loop import BlockedLoopWarnings
from pinlater.worker._leases.leases import Leases
from pinlater.worker._leases.loop_watchdog import LoopWatchdog
from pinlater.worker._leases.renewals import Renewals
from pinlater.worker._leases.unstarted_jobs import UnstartedJobs
from tests.worker.attempts.test_attempts import FAST
from tests.worker.conftest import eventually
from tests.worker.test_worker import running

DEADLINE_S = 30.0
ADVICE = (
    "Make the task a plain function (`def`), which runs in a thread, or await asyncio.to_thread(...) around what blocks"
)


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "the event loop has been blocked for" in record.getMessage()]


def look(told: BlockedLoopWarnings, blocked_s: float) -> None:
    """A look of the heartbeats, and its warning, which another thread writes."""
    told.looked(blocked_s)
    _wait_for_warnings()


def _wait_for_warnings() -> None:
    for thread in threading.enumerate():
        if thread.name == blocked_loop.THREAD_NAME:
            thread.join(DEADLINE_S)


@pytest.fixture(autouse=True)
def no_earlier_warning() -> None:
    """The thread of an earlier test's warning may still be about to write it."""
    _wait_for_warnings()


def block_until_warned(caplog: pytest.LogCaptureFixture) -> None:
    end = time.monotonic() + DEADLINE_S
    while not warnings(caplog) and time.monotonic() < end:
        time.sleep(0.01)


async def blocked_in_a_child_task(block: Callable[[], None]) -> None:
    async def child() -> None:
        block()

    async with asyncio.TaskGroup() as group:
        group.create_task(child())


async def blocked_by_an_inner_coroutine(block: Callable[[], None]) -> None:
    async def inner() -> None:
        block()

    async with asyncio.timeout(None):
        await inner()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_loop, "_WARN_S", (1, 60))


@pytest.mark.usefixtures("soon")
async def test_a_task_that_blocks_the_event_loop_is_named_while_it_does(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if other jobs run on the loop."""
    worker = Worker(client, settings=FAST)
    seen: list[logging.LogRecord] = []

    @worker.task("q")
    async def wait_for_others() -> None:
        await eventually(lambda: seen)

    @worker.task("q")
    async def resize() -> None:
        await eventually(lambda: worker.counts.running == 2)
        block_until_warned(caplog)
        seen.extend(warnings(caplog))

    await wait_for_others.enqueue_async()
    await resize.enqueue_async()
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == 2, timeout_s=2 * DEADLINE_S)
    [record] = seen
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "the event loop has been blocked for 1s, now by task resize of queue q; other coroutines of this worker wait. "
        + ADVICE
    )
    path, _, line = vars(record)["at"].rpartition(":")
    first = resize.function.__code__.co_firstlineno
    assert (path, first < int(line) < first + 8) == (__file__, True)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("how", "who"),
    [
        (blocked_by_an_inner_coroutine, "task resize of queue q"),
        (blocked_in_a_child_task, "some task"),
    ],
)
async def test_code_that_blocks_the_event_loop_deep_within_a_task_is_found(
    client: AsyncClient,
    caplog: pytest.LogCaptureFixture,
    how: Callable[[Callable[[], None]], Awaitable[None]],
    who: str,
) -> None:
    """An asyncio task that a task starts does not say for which job it runs; its line does."""
    worker = Worker(client, settings=FAST)

    @worker.task("q")
    async def resize() -> None:
        await how(lambda: block_until_warned(caplog))

    await resize.enqueue_async()
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == 1, timeout_s=2 * DEADLINE_S)
    [record] = warnings(caplog)
    assert record.getMessage().startswith(f"the event loop has been blocked for 1s, now by {who};")
    assert vars(record)["at"].startswith(f"{__file__}:")


def test_one_block_is_told_as_it_grows_and_blocks_of_a_stopped_process_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = BlockedLoopWarnings(threading.get_ident())
    for blocked_s in (0, 0.25, 100, 0):  # the process was stopped: the loop ran as soon as it went on
        look(told, blocked_s)
    assert warnings(caplog) == []
    for tenths in range(0, 4_000, 3):
        look(told, tenths / 10)
    assert [record.getMessage().split(" for ")[1].split(",")[0] for record in warnings(caplog)] == ["3s", "30s", "5m"]


def test_an_event_loop_that_has_closed_is_not_told_as_blocked(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker was abandoned; heartbeats go on."""
    loop = asyncio.new_event_loop()
    now_s = 0.0
    watchdog = LoopWatchdog(loop, threading.Lock(), lambda: now_s)
    assert watchdog.blocked_s() == 0
    loop.close()
    monkeypatch.setattr(unstarted_jobs, "CHECK_S", 0.001)
    looks = 0

    def unread() -> list[object]:
        nonlocal now_s, looks
        now_s, looks = now_s + 100, looks + 1
        return []

    async def watch() -> None:
        clock = SystemClock()
        leases = Leases(clock)
        async with AsyncClient("127.0.0.1:1") as client:
            watching = asyncio.ensure_future(
                UnstartedJobs(leases, Renewals(leases, clock), watchdog, unread).give_back_until_cancelled(client)
            )
            await eventually(lambda: looks > 10)
            watching.cancel()

    now_s = 100.0
    asyncio.run(watch())
    for thread in threading.enumerate():
        if thread.name == blocked_loop.THREAD_NAME:
            thread.join(DEADLINE_S)
    assert warnings(caplog) == []


def test_a_log_handler_that_blocks_the_event_loop_does_not_keep_the_heartbeats_waiting() -> None:
    logger, told = logging.getLogger("pinlater"), BlockedLoopWarnings(threading.get_ident())
    lock, emitted = threading.Lock(), threading.Event()

    class Blocked(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with lock:
                emitted.set()

    blocked = Blocked()
    logger.addHandler(blocked)
    try:
        with lock:  # as the event loop, which waits for a slow reader of its log
            for blocked_s in (0, 1, 2, 2.5, 4):
                told.looked(blocked_s)
            assert not emitted.is_set()
        assert emitted.wait(DEADLINE_S)
    finally:
        logger.removeHandler(blocked)


def test_a_warning_of_the_same_task_is_shown_once_and_then_counted() -> None:
    """Also if lines of its attempts come between."""
    shown: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.append(record)

    handler, logger, told = Kept(), logging.getLogger("pinlater"), BlockedLoopWarnings(threading.get_ident())
    count_repeats(handler)
    logger.addHandler(handler)
    try:
        for _ in range(5):
            for blocked_s in (0, 1, 2, 2.5, 4):
                look(told, blocked_s)
            logging.getLogger("pinlater.worker").info("resize succeeded in 4s")
    finally:
        logger.removeHandler(handler)
    assert [record.levelname for record in shown if record.levelno >= logging.WARNING] == ["WARNING"]
