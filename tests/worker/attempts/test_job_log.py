"""The log lines of a worker: its start, one line for each attempt, its stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import replace

import pytest

from pinlater.client import AsyncClient, JobState
from pinlater.testing import InProcessService
from pinlater.worker import Reject, Retry, Snooze, Worker
from tests.worker.attempts.test_attempts import FAST
from tests.worker.conftest import eventually
from tests.worker.test_worker import running, state_of


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[tuple[str, str]]:
    """Level and text of the worker's lines with that word."""
    records = [record for record in caplog.records if record.name == "pinlater.worker"]
    return [(record.levelname, record.getMessage()) for record in records if word in record.getMessage()]


async def test_a_success_is_one_line_at_info_and_its_start_one_at_debug(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pinlater.worker")
    worker = Worker(client, settings=FAST)

    @worker.task("q")
    async def send(to: str) -> None: ...

    await send.enqueue_async("ada")
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == 1)
    [started, ended] = lines(caplog, "send ")
    assert started == ("DEBUG", "send started")
    assert ended[0] == "INFO"
    assert ended[1].startswith("send succeeded in ")
    [record] = [record for record in caplog.records if "succeeded in" in record.getMessage()]
    assert (vars(record)["queue"], vars(record)["task"], vars(record)["attempt"]) == ("q", "send", 1)
    assert vars(record)["job"].startswith("q:s1:p1:")


async def test_a_success_is_logged_at_the_level_of_its_task(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A relay that runs every second would fill the log; its failures must still be seen."""
    caplog.set_level(logging.DEBUG, "pinlater.worker")
    worker = Worker(client, settings=FAST)

    @worker.task("q", attempts=1, log_level="debug")
    async def relay(fails: bool) -> None:
        if fails:
            raise Reject("no")

    await relay.enqueue_many_async([relay.job(False), relay.job(True)])
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == worker.counts.failed == 1)
    assert [level for level, _ in lines(caplog, "relay succeeded")] == ["DEBUG"]
    assert [level for level, _ in lines(caplog, "relay failed")] == ["ERROR"]


async def test_a_stop_says_what_it_waits_for(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """Else a first Ctrl-C seems to do nothing."""
    caplog.set_level(logging.INFO, "pinlater.worker")
    worker, may_end = Worker(client, settings=replace(FAST, grace_ms=20_000)), asyncio.Event()

    @worker.task("q")
    async def slow() -> None:
        await may_end.wait()

    await slow.enqueue_async()
    working = asyncio.create_task(worker.run_async(handle_signals=True))
    await eventually(lambda: worker.counts.running == 1)
    os.kill(os.getpid(), signal.SIGINT)
    await eventually(lambda: lines(caplog, "stopping"))
    may_end.set()
    await asyncio.wait_for(working, 20)
    [(level, text)] = lines(caplog, "stopping")
    assert (level, text) == (
        "INFO",
        "stopping: waiting up to 20s for 1 running job; another Ctrl-C (or SIGTERM) stops at once",
    )


async def test_a_failure_is_one_line_with_one_traceback_that_begins_with_the_task(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning while attempts are left, then an error."""
    worker = Worker(client, settings=FAST)

    def helper() -> None:
        raise ValueError("no such address")

    @worker.task("q", attempts=2)
    async def on_loop() -> None:
        helper()

    @worker.task("q", attempts=2)
    def in_thread() -> None:
        helper()

    await on_loop.enqueue_async()
    await in_thread.enqueue_async()
    async with running(worker):
        await eventually(lambda: worker.counts.failed == 4)
    for name in ("on_loop", "in_thread"):
        [first, last] = lines(caplog, name)
        assert first[0] == "WARNING"
        assert ", again in " in first[1]
        assert first[1].endswith(": ValueError: no such address")
        assert last[0] == "ERROR"
        assert ", gave up: ValueError: no such address" in last[1]
    for record in caplog.records:
        assert record.exc_info
        trace = record.exc_info[2]
        functions = []
        while trace is not None:
            functions.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        assert functions in (["on_loop", "helper"], ["in_thread", "helper"])


@pytest.mark.parametrize(
    ("raised", "level", "told"),
    [
        (
            ValueError("1 error in Signup\nmail\n  required"),
            "ERROR",
            "gave up: ValueError: 1 error in Signup; mail; required",
        ),
        (Reject("not mine"), "ERROR", "gave up: Reject: not mine"),
        (Snooze("1h"), "INFO", "again in 1h"),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_an_error_has_its_traceback_in_the_log_and_an_ending_that_the_task_chose_has_none(
    caplog: pytest.LogCaptureFixture, raised: Exception, level: str, told: str
) -> None:
    """An error whose first line says little is shown with the lines below."""
    caplog.set_level(logging.INFO, "pinlater.worker")
    worker = Worker()

    @worker.task("q", attempts=1)
    async def act() -> None:
        raise raised

    with InProcessService() as service, service.serving(worker):
        await act.enqueue_async()
        await service.run_until_idle(raise_errors=False)
    [line] = lines(caplog, "act ")
    assert (line[0], line[1].partition("s, ")[2]) == (level, told)
    assert any(record.exc_info for record in caplog.records) == isinstance(raised, ValueError)


async def test_a_retry_shows_its_delay_once_and_its_reason(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(client, settings=FAST)

    @worker.task("q", attempts=2)
    async def fetch(reason: str) -> None:
        raise Retry(after=0.01, reason=reason)

    await fetch.enqueue_async("")
    descriptor = (await fetch.enqueue_async("HTTP 429")).descriptor
    async with running(worker):
        await eventually(lambda: worker.counts.failed == 4)
    ends = sorted((level, text.partition("ms, ")[2]) for level, text in lines(caplog, "fetch "))
    assert ends == [
        ("ERROR", "gave up: Retry"),
        ("ERROR", "gave up: Retry: HTTP 429"),
        ("WARNING", "again in 10ms: Retry"),
        ("WARNING", "again in 10ms: Retry: HTTP 429"),
    ]
    info = await eventually(lambda: state_of(client, descriptor, JobState.FAILED))
    assert [attempt.error_text for attempt in info.attempts] == ["HTTP 429; again in 0.01 s", "HTTP 429"]


async def test_the_start_names_servers_queues_and_tasks_and_a_clean_stop_warns_of_nothing(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    worker = Worker(client, concurrency=7)
    worker.queue("q", concurrency=3)

    @worker.task("q")
    async def send() -> None: ...

    @worker.task("q", name="other")
    async def bill() -> None: ...

    async with running(worker):
        await send.enqueue_async()
        await eventually(lambda: worker.counts.succeeded == 1)
    found = {record.getMessage(): vars(record) for record in caplog.records if record.name == "pinlater.worker"}
    start = found["worker started"]
    assert (start["servers"], start["concurrency"], start["grace"]) == (list(map(str, client.servers)), 7, "30s")
    assert (found["queue q"]["tasks"], found["queue q"]["concurrency"]) == (["send", "other"], 3)
    assert (found["worker stopped"]["succeeded"], found["worker stopped"]["failed"]) == (1, 0)
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []
    assert worker.counts.claim_errors == 0


async def test_the_start_warns_of_settings_for_a_queue_without_tasks(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(client)
    worker.queue("mials", concurrency=3)
    worker.queue("other", weight=2)

    @worker.task("mails")
    async def send() -> None: ...

    await worker.create_queues_async()
    async with running(worker):
        await eventually(lambda: len(caplog.records) >= 2)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "queue mials: worker.queue() has no effect, since no task of this worker is on it; did you mean mails?",
        "queue other: worker.queue() has no effect, since no task of this worker is on it",
    ]


async def test_times_are_short(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pinlater.worker")
    texts = {0.012: "12ms", 1.5: "1.5s", 59.94: "59.9s", 60: "1m", 125: "2m 5s", 7205: "2h 5s", 7200: "2h"}
    worker = Worker()

    @worker.task("q")
    def put_off(seconds: float) -> Snooze:
        return Snooze(seconds)

    with InProcessService() as service, service.serving(worker):
        await put_off.enqueue_many_async([put_off.job(seconds) for seconds in texts])
        await service.run_until_idle()
    assert [text.rpartition(", again in ")[2] for _, text in lines(caplog, "put_off snoozed")] == list(texts.values())
