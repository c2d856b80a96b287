"""The warning of a task that blocks the worker's event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pinlater.client import AsyncClient
from pinlater.supervision.logs import count_repeats
from pinlater.testing import RealServer
from pinlater.worker import Worker
from pinlater.worker._process.control_channel import ControlChannel
from tests.worker.attempts.test_attempts import FAST
from tests.worker.conftest import eventually
from tests.worker.test_worker import running

DEADLINE_S = 30.0
ADVICE = (
    "Make the task a plain function (`def`), which runs in a thread, or await asyncio.to_thread(...) around what blocks"
)


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "the event loop has been blocked for" in record.getMessage()]


def block_until_warned(caplog: pytest.LogCaptureFixture) -> None:
    end = time.monotonic() + DEADLINE_S
    while not warnings(caplog) and time.monotonic() < end:
        time.sleep(0.01)


async def blocked_directly(block: Callable[[], None]) -> None:
    block()


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


@pytest.mark.parametrize(
    ("how", "who"),
    [
        (blocked_directly, "task resize of queue q"),
        (blocked_by_an_inner_coroutine, "task resize of queue q"),
        (blocked_in_a_child_task, "some task"),
    ],
)
async def test_a_task_that_blocks_the_event_loop_is_named_while_it_does(
    client: AsyncClient,
    caplog: pytest.LogCaptureFixture,
    how: Callable[[Callable[[], None]], Awaitable[None]],
    who: str,
) -> None:
    """Also if other jobs run on the loop. An asyncio task that a task starts does not say for which job it runs; its line does."""
    worker = Worker(client, settings=FAST)
    seen: list[logging.LogRecord] = []

    @worker.task("q")
    async def wait_for_others() -> None:
        await eventually(lambda: seen)

    @worker.task("q")
    async def resize() -> None:
        await eventually(lambda: worker.counts.running == 2)
        await how(lambda: block_until_warned(caplog))
        seen.extend(warnings(caplog))

    await wait_for_others.enqueue_async()
    await resize.enqueue_async()
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == 2, timeout_s=2 * DEADLINE_S)
    [record] = seen
    assert (record.levelname, record.getMessage()) == (
        "WARNING",
        f"the event loop has been blocked for 3s, now by {who}; other coroutines of this worker wait. {ADVICE}",
    )
    path, _, line = vars(record)["at"].rpartition(":")
    first = resize.function.__code__.co_firstlineno
    assert (path, first < int(line) < first + 6) == (__file__, who != "some task")


async def test_a_warning_of_the_same_task_is_shown_once_and_then_counted(client: AsyncClient) -> None:
    """Also if lines of its attempts come between."""
    shown: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.append(record)

    handler, logger, worker = Kept(), logging.getLogger("pinlater"), Worker(client, settings=FAST)
    count_repeats(handler)
    seen = logging.Handler()
    warned: list[str] = []
    seen.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]

    @worker.task("q")
    async def resize() -> None:
        before, end = len(warned), time.monotonic() + DEADLINE_S
        while len(warned) == before and time.monotonic() < end:
            time.sleep(0.01)  # noqa: ASYNC251 - that is the point

    logger.addHandler(handler)
    logging.getLogger("pinlater.worker.event_loop").addHandler(seen)
    try:
        await resize.enqueue_async()
        await resize.enqueue_async()
        async with running(worker):
            await eventually(lambda: worker.counts.succeeded == 2, timeout_s=2 * DEADLINE_S)
    finally:
        logger.removeHandler(handler)
        logging.getLogger("pinlater.worker.event_loop").removeHandler(seen)
    assert len(set(warned)) == 1
    assert len(warned) == 2
    assert len([record for record in shown if record.name == "pinlater.worker.event_loop"]) == 1


async def test_a_log_handler_that_blocks_the_event_loop_keeps_no_heartbeat_waiting(tmp_path: Path) -> None:
    """Meanwhile the supervisor dies and a job that can't start is given back, which the heartbeat thread logs, too."""
    supervisor, own_end = socket.socketpair()
    lock, emitted = threading.Lock(), threading.Event()

    class Blocked(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with lock:
                emitted.set()

    blocked, logger = Blocked(level=logging.WARNING), logging.getLogger("pinlater")
    with RealServer(tmp_path) as server:
        async with AsyncClient(server.address) as client:
            await client.create_queue("q")
            worker = Worker(client, settings=FAST)

            @worker.task("q", claim_timeout=0.6)
            async def write_to_a_slow_reader() -> None:
                with lock:
                    supervisor.close()
                    time.sleep(5)  # noqa: ASYNC251 - that is the point
                    assert not emitted.is_set()

            await write_to_a_slow_reader.enqueue_many_async([write_to_a_slow_reader.job()] * 2)
            logger.addHandler(blocked)
            try:
                await asyncio.wait_for(worker.run_async(control=ControlChannel(own_end.detach(), 0)), DEADLINE_S)
                assert await asyncio.to_thread(emitted.wait, DEADLINE_S)
            finally:
                logger.removeHandler(blocked)
    assert (worker.counts.succeeded, worker.counts.failed, worker.counts.lost) == (1, 0, 0)
    assert worker.counts.released >= 1


PROGRAM = """
import asyncio, logging, os, threading, time
from pinlater import Worker

real, ahead, said = time.monotonic, 0.0, []
time.monotonic = lambda: real() + ahead
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage().split(",")[0].rpartition(" ")[2])
logging.getLogger("pinlater.worker.event_loop").addHandler(handler)
worker = Worker("127.0.0.1:1")

@worker.task("q")
async def task() -> None: ...

loop = asyncio.new_event_loop()
running = loop.create_task(worker.run_async())
while not any(thread.name == "pinlater-heartbeats" for thread in threading.enumerate()):
    loop.run_until_complete(asyncio.sleep(0.01))
"""
GROWS = """
for ahead, lines in ((3, 1), (20, 1), (30, 2), (250, 2), (300, 3), (5_000, 3)):
    end = real() + 30
    while sum(line[0] != "(" for line in said) < lines and real() < end:
        time.sleep(0.01)
    time.sleep(0.6)  # for further lines
    said.append(f"({ahead})")
"""
IS_CLOSED = """
time.sleep(0.6)
loop.close()  # what the heartbeats have asked it for does not come any more
ahead = 100.0
time.sleep(1.5)
"""
IS_SUSPENDED = """
blocked_s = 1.0
while blocked_s > 0.9:  # it stood still for too many looks
    said.clear()
    loop.run_until_complete(asyncio.sleep(0.3))
    began = real()
    time.sleep(0.3)
    ahead += 100
    time.sleep(0.3)
    blocked_s = real() - began
    loop.run_until_complete(asyncio.sleep(0.3))
"""


@pytest.mark.parametrize(
    ("what", "told"),
    [(GROWS, "3s (3) (20) 30s (30) (250) 5m (300) (5000)"), (IS_CLOSED, ""), (IS_SUSPENDED, "")],
    ids=["a block that grows", "a closed loop, whose worker was abandoned", "a process that was suspended"],
)
async def test_a_block_is_told_after_3_s_30_s_and_5_min_and_a_loop_that_does_not_block_never(
    what: str, told: str
) -> None:
    """The program's loop stands while it does something else, and its clock is set forward. The heartbeats go on."""
    program = PROGRAM + what + "print(*said, flush=True)\nos._exit(0)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert (process.returncode, said.decode().strip()) == (0, told)
