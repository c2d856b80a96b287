"""For operators: recycling, probes, metrics, and log lines that name their job."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import os
import random
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pinlater.client import AsyncClient, Job, JobState
from pinlater.testing import RealServer
from pinlater.worker import (
    Ending,
    JobContext,
    JobFields,
    Middleware,
    Worker,
    current_job,
)
from pinlater.worker.counts import TaskCounts
from tests.databases.ports import free_port
from tests.worker import set_up_tasks
from tests.worker.conftest import eventually, idle_worker
from tests.worker.test_worker import FAST, running, state_of

ROOT = Path(__file__).parents[3]


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def asked(port: int, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(ask, port, path)


# --- recycling ------------------------------------------------------------------------------------------------------------
async def test_a_worker_ends_after_its_number_of_jobs_and_the_rest_waits_for_the_next(client: AsyncClient) -> None:
    worker = Worker(client, settings=replace(FAST, recycle_jobs_max=7))

    @worker.task("q")
    async def run(body: bytes) -> None: ...

    await client.enqueue("q", [b"x"] * 10)
    await asyncio.wait_for(worker.run_async(), 20)
    assert (worker.counts.claimed, worker.counts.succeeded) == (7, 7)
    assert worker.recycled == "7 jobs claimed"
    assert await client.count("q", JobState.PENDING) == 3


@pytest.mark.parametrize(
    ("limit", "said"), [({"recycle_age_ms": 50}, "s old"), ({"recycle_memory_bytes_max": 1}, "bytes in memory")]
)
async def test_an_idle_worker_ends_at_its_age_and_memory_limits(
    client: AsyncClient, limit: dict[str, Any], said: str
) -> None:
    worker = idle_worker(client, settings=replace(FAST, **limit))
    await asyncio.wait_for(worker.run_async(), 20)
    assert said in worker.recycled


async def test_a_recycled_worker_lets_its_jobs_finish(client: AsyncClient) -> None:
    worker = Worker(client, settings=replace(FAST, recycle_jobs_max=1))
    may_end = asyncio.Event()

    @worker.task("q")
    async def slow() -> None:
        await may_end.wait()

    placed = await slow.enqueue_async()
    task = asyncio.create_task(worker.run_async())
    await eventually(lambda: worker.recycled)
    worker.request_stop()  # the first signal: it stops already, and must not skip its grace time
    may_end.set()
    await asyncio.wait_for(task, 20)
    assert await state_of(client, placed.descriptor, JobState.SUCCEEDED)


@pytest.mark.parametrize(("spread", "jobs"), [(0.0, 20), (0.5, 19), (0.999, 19), (1.0, 18)])
async def test_processes_that_start_together_do_not_end_together(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch, spread: float, jobs: int
) -> None:
    """A random part of up to a tenth lowers each limit."""
    worker = Worker(client, settings=replace(FAST, recycle_jobs_max=20, recycle_age_ms=600_000))

    @worker.task("q")
    async def run(body: bytes) -> None: ...

    await client.enqueue("q", [b"x"] * 30)
    monkeypatch.setattr(random, "random", lambda: spread)
    await asyncio.wait_for(worker.run_async(), 20)
    assert (worker.counts.claimed, worker.recycled) == (jobs, f"{jobs} jobs claimed")


# --- probes ---------------------------------------------------------------------------------------------------------------
async def test_probes_are_answered_while_a_task_blocks_the_loop(client: AsyncClient) -> None:
    port = free_port()
    worker = Worker(client, settings=replace(FAST, health_port=port, stuck_ms=300))
    blocked, may_end = threading.Event(), threading.Event()

    @worker.task("q")
    async def block() -> None:
        blocked.set()
        may_end.wait(30)

    seen: list[tuple[int, str]] = []

    def watch() -> None:
        blocked.wait(30)
        while not seen or seen[-1][0] == 200:
            seen.append(ask(port, "/healthz"))
        may_end.set()

    watching = threading.Thread(target=watch)
    async with running(worker):
        await eventually(lambda: answered(port, "/readyz", 200))
        watching.start()
        await block.enqueue_async()
        await eventually(lambda: answered(port, "/healthz", 200) if may_end.is_set() else None)
    watching.join()
    assert seen[0] == (200, "ok\n")
    assert seen[-1][0] == 503
    assert "the event loop has been blocked for" in seen[-1][1]


async def answered(port: int, path: str, status: int) -> str:
    """The text, once it answers with that status."""
    with contextlib.suppress(OSError):
        found, text = await asked(port, path)
        return text if found == status else ""
    return ""


async def test_functions_that_hold_all_slots_make_a_worker_unhealthy(client: AsyncClient) -> None:
    port = free_port()
    worker = Worker(client, settings=replace(FAST, health_port=port, stuck_ms=1))
    may_end = threading.Event()

    @worker.task("q", concurrency=1, time_limit=0.05, attempts=1)
    def hang() -> None:
        may_end.wait(30)

    await hang.enqueue_async()
    async with running(worker):
        said = await eventually(lambda: answered(port, "/healthz", 503))
        assert said == "queue q: functions that don't end hold all slots\n"
        await eventually(lambda: counts_abandoned(port, 1))
        may_end.set()
        await eventually(lambda: answered(port, "/healthz", 200))


async def counts_abandoned(port: int, number: int) -> bool:
    return f"\npinlater_worker_functions_left_behind {number}\n" in (await asked(port, "/metrics"))[1]


async def test_a_worker_is_ready_while_it_claims_and_not_while_it_stops(client: AsyncClient) -> None:
    port = free_port()
    worker = Worker(client, settings=replace(FAST, health_port=port))
    may_end = asyncio.Event()

    @worker.task("q")
    async def slow() -> None:
        await may_end.wait()

    await slow.enqueue_async()
    task = asyncio.create_task(worker.run_async())
    await eventually(lambda: answered(port, "/readyz", 200))
    await eventually(lambda: worker.counts.running)
    worker.request_stop()
    assert await asked(port, "/readyz") == (503, "stopping\n")
    assert (await asked(port, "/healthz"))[0] == 200
    may_end.set()
    await asyncio.wait_for(task, 20)
    with pytest.raises(OSError):
        await asked(port, "/healthz")


async def test_a_worker_without_its_server_is_healthy_but_not_ready() -> None:
    port = free_port()
    worker = idle_worker("127.0.0.1:1", settings=replace(FAST, health_port=port))
    async with running(worker):
        assert await eventually(lambda: answered(port, "/readyz", 503)) == "queue q: no answer from the server\n"
        assert (await asked(port, "/healthz"))[0] == 200
        await eventually(lambda: worker.counts.claim_errors)


async def test_the_endpoint_refuses_unknown_requests(client: AsyncClient) -> None:
    port = free_port()
    worker = idle_worker(client, settings=replace(FAST, health_port=port))
    async with running(worker):
        await eventually(lambda: answered(port, "/healthz?x=1", 200))
        assert (await asked(port, "/"))[0] == 404
        assert (await asyncio.to_thread(ask, port, "/healthz", "POST"))[0] == 405
        assert await asyncio.to_thread(ask, port, "/healthz", "HEAD") == (200, "")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 20_000)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert (await asked(port, "/healthz"))[0] == 200


async def test_silent_connections_keep_no_probe_out(client: AsyncClient) -> None:
    port = free_port()
    worker = idle_worker(client, settings=replace(FAST, health_port=port))
    async with running(worker):
        await eventually(lambda: answered(port, "/healthz", 200))
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for reader, writer in silent[::3]:
            with contextlib.suppress(ConnectionError):
                writer.write(b"GET /healthz HTTP/1.1\r\n")
            del reader
        assert [(await asked(port, "/healthz"))[0] for _ in range(50)] == [200] * 50
        with contextlib.suppress(ConnectionError):
            assert await silent[0][0].read() == b""  # the oldest one has made place
        for _, writer in silent:
            writer.close()


async def test_a_health_port_in_use_is_an_error_at_the_start(client: AsyncClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        worker = idle_worker(client, settings=replace(FAST, health_port=taken.getsockname()[1]))
        with pytest.raises(OSError, match=r"--health-port \d+ .*address already in use"):
            await worker.run_async()


async def test_a_heartbeat_client_that_cant_be_made_is_an_error_at_the_start() -> None:
    class OutOfFiles(AsyncClient):
        def unopened_copy(self) -> NoReturn:
            raise OSError(24, "Too many open files")

    async with OutOfFiles("127.0.0.1:1") as client:
        with pytest.raises(OSError, match="Too many open files"):
            await idle_worker(client, settings=replace(FAST, health_port=free_port())).run_async()


# --- metrics --------------------------------------------------------------------------------------------------------------
async def test_a_probe_makes_no_page_of_metrics(client: AsyncClient) -> None:
    """A page of many tasks takes time, in which the same thread sends no heartbeats."""

    class Read(dict[tuple[str, str], TaskCounts]):
        times = 0

        def copy(self) -> dict[tuple[str, str], TaskCounts]:
            self.times += 1
            return super().copy()

    port = free_port()
    worker = idle_worker(client, settings=replace(FAST, health_port=port))
    worker.counts.by_task = read = Read()
    async with running(worker):
        for path, times in (("/healthz", 0), ("/readyz", 0), ("/metrics", 1)):
            await eventually(partial(answered, port, path, 200))
            assert read.times == times


async def test_metrics_count_by_queue_task_and_outcome(client: AsyncClient) -> None:
    port = free_port()
    worker = Worker(client, settings=replace(FAST, health_port=port))

    @worker.task("q", attempts=1)
    async def run(fail: bool) -> None:
        if fail:
            raise ValueError

    await run.enqueue_many_async([run.job(False), run.job(False), run.job(True)])
    await client.enqueue("q", [Job(b"", headers={"pinlater-task": "newer"})])
    async with running(worker):
        await eventually(
            lambda: (worker.counts.succeeded, worker.counts.failed, worker.counts.unknown_tasks) == (2, 1, 1)
        )
        _, page = await asked(port, "/metrics")
    found = {
        (sample.name, sample.labels.get("outcome", "")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels.get("task", "run") == "run"
    }
    assert found["pinlater_worker_jobs_total", "succeeded"] == 2
    assert found["pinlater_worker_jobs_total", "failed"] == 1
    assert found["pinlater_worker_job_duration_seconds_count", ""] == 3
    assert found["pinlater_worker_unknown_tasks_total", ""] == 1
    assert found["pinlater_worker_jobs_claimed_total", ""] == 4
    assert found["pinlater_worker_slots", ""] == FAST.concurrency
    assert found["pinlater_worker_memory_bytes", ""] > 1_000_000
    names = [*re.findall(r"^# HELP (\S+)", page, re.MULTILINE), "pinlater_worker_process_starts_total"]
    assert len(names) > 15
    reference = (ROOT / "docs/reference/metrics.md").read_text()
    assert [name for name in names if f"`{name}`" not in reference] == []


async def test_stopped_attempts_are_counted_by_their_reason(client: AsyncClient) -> None:
    told: list[str] = []

    class Telling(Middleware):
        def after(self, job: JobContext, ending: Ending) -> None:
            told.append(f"{job.task} {ending.kind.value}")

    worker = Worker(client, settings=replace(FAST, grace_ms=1), middleware=[Telling()])
    may_end = threading.Event()

    @worker.task("q", time_limit=0.05, attempts=1)
    async def too_long() -> None:
        await asyncio.Event().wait()

    @worker.task("q")
    def in_thread() -> None:
        may_end.wait(30)

    await too_long.enqueue_async()
    await in_thread.enqueue_async()
    async with running(worker):
        await eventually(lambda: worker.counts.failed == 1 and worker.counts.running == 1)
    may_end.set()
    assert sorted(told) == ["in_thread given back", "too_long failed"]
    ended = {
        task: {kind.value: n for kind, n in counts.ended.items()} for (_, task), counts in worker.counts.by_task.items()
    }
    assert ended == {"too_long": {"failed": 1}, "in_thread": {"given back": 1}}


# --- logs -----------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def captured(outside: str | None = None) -> Iterator[list[logging.LogRecord]]:
    """All log records, with the fields of jobs."""
    records: list[logging.LogRecord] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Keeping()
    handler.addFilter(JobFields(outside))
    logging.getLogger().addHandler(handler)
    try:
        yield records
    finally:
        logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_log_lines_of_tasks_name_their_job(client: AsyncClient, in_thread: bool) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    worker = Worker(client, settings=FAST)

    async def on_loop() -> None:
        logging.getLogger("somebody.else").warning("here")

    def threaded() -> None:
        logging.getLogger("somebody.else").warning("here")

    task = worker.task("q", name="talk")(threaded if in_thread else on_loop)
    placed = await task.using(headers={"traceparent": trace}).enqueue_async()
    with captured() as records:
        logging.getLogger("somebody.else").warning("outside")
        async with running(worker):
            await eventually(lambda: worker.counts.succeeded)
    (here,) = [vars(record) for record in records if record.getMessage() == "here"]
    assert {name: here[name] for name in ("queue", "job", "task", "attempt", "trace")} == {
        "queue": "q", "job": placed.descriptor, "task": "talk", "attempt": 1, "trace": trace,
    }  # fmt: skip
    (outside,) = [vars(record) for record in records if record.getMessage() == "outside"]
    assert "job" not in outside


async def test_a_job_does_not_see_context_variables_of_earlier_jobs(client: AsyncClient) -> None:
    from contextvars import ContextVar

    left: ContextVar[str] = ContextVar("left", default="")
    worker = Worker(client, settings=replace(FAST, concurrency=1))
    seen: list[str] = []

    @worker.task("q")
    async def leave() -> None:
        seen.append(left.get())
        left.set(current_job().descriptor)

    await leave.enqueue_many_async([leave.job() for _ in range(5)])
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == 5)
    assert seen == [""] * 5


def test_formats_that_need_a_value_outside_of_jobs_get_one() -> None:
    record = logging.makeLogRecord({"msg": "x", "queue": "mine"})
    assert JobFields("-").filter(record)
    assert logging.Formatter("%(queue)s %(job)s %(message)s").format(record) == "mine - x"


async def test_child_processes_are_set_up_before_their_first_job(client: AsyncClient, tmp_path: Path) -> None:
    worker, told = set_up_tasks.worker, tmp_path / "told"
    await client.enqueue("q", [set_up_tasks.tell.job(str(told))])
    task = asyncio.create_task(worker.run_async(client=client, settings=FAST, child_setup=set_up_tasks.set_up_first))
    await eventually(lambda: worker.counts.succeeded)
    worker.request_stop()
    await asyncio.wait_for(task, 20)
    done, _, process_id = told.read_text().partition(" in ")
    assert done == "by the command, by the worker"
    assert int(process_id) != os.getpid()


# --- heartbeats -----------------------------------------------------------------------------------------------------------
async def test_failing_heartbeats_are_shown_while_a_job_runs(tmp_path: Path) -> None:
    port = free_port()
    with RealServer(tmp_path) as server:
        async with AsyncClient(server.address) as client:
            await client.create_queue("q")
            worker = Worker(client, settings=replace(FAST, health_port=port))
            may_end = asyncio.Event()

            @worker.task("q")
            async def slow() -> None:
                await may_end.wait()

            await slow.using(claim_timeout=1).enqueue_async()
            async with running(worker):
                await eventually(lambda: worker.counts.running)
                server.kill()
                await eventually(lambda: metric(port, "pinlater_worker_heartbeats_failing 1"), 30)
                server.start()
                may_end.set()
                await eventually(lambda: metric(port, "pinlater_worker_heartbeats_failing 0"), 30)
            assert worker.counts.claim_errors


async def metric(port: int, line: str) -> bool:
    return f"\n{line}\n" in (await asked(port, "/metrics"))[1]
