"""What a worker tells servers of itself, and how often."""

from __future__ import annotations

import os
import socket

from pinlater.client import AsyncClient, WorkerInfo, WorkerStatus, WorkingProcess, _job_calls
from pinlater.client._thrift import encode_request
from pinlater.domain.clock import ManualClock
from pinlater.version import __version__
from pinlater.worker import Worker, WorkerSettings
from pinlater.worker._leases.introduction import EVERY_S, Introduction, new_number, own_info
from tests.worker.conftest import eventually
from tests.worker.test_worker import running

INFO = WorkerInfo("python", "1.0.0", "host-1.example.org", 4_194_304, 16, 12, 1_795_000_000_000)


def test_all_of_it_is_said_with_the_first_request_of_a_topic_and_every_ten_seconds() -> None:
    clock = ManualClock()
    introduction = Introduction(7, INFO, lambda: 3, clock.monotonic)
    whole, brief = WorkingProcess(7, INFO._replace(running=3)), WorkingProcess(7)
    assert [introduction.about(topic) for topic in ("q", "q", "r", "q")] == [whole, brief, whole, brief]
    clock.advance(seconds=EVERY_S - 0.1)
    assert introduction.about("q") == brief
    clock.advance(seconds=0.1)
    assert [introduction.about(topic) for topic in ("q", "q", "r")] == [whole, brief, whole]


def test_a_process_has_a_number_of_its_own_and_says_where_it_runs() -> None:
    numbers = {new_number() for _ in range(100)}
    assert len(numbers) == 100
    assert all(0 < number < 2**31 for number in numbers)
    info = own_info(ManualClock(), 16)
    assert info[:6] == ("python", __version__, socket.gethostname(), os.getpid(), 16, 0)


def test_a_usual_request_is_seven_bytes_longer() -> None:
    def size(process: WorkingProcess | None) -> int:
        call = _job_calls.dequeue("q", 1, wait_ms=0, acks=None, dry_run=False, coverage=1.0, process=process)
        return len(encode_request("dequeueJobs", 1, "w", call.args))

    assert size(WorkingProcess(2**31 - 1)) - size(None) == 7
    assert size(WorkingProcess(1, INFO)) - size(None) <= 120


async def test_servers_know_a_worker_that_runs(client: AsyncClient) -> None:
    worker = Worker(client, settings=WorkerSettings(concurrency=5, wait_ms=50))

    @worker.task("q")
    async def task() -> None: ...

    await task.enqueue_async()
    async with running(worker):

        async def known() -> WorkerStatus | None:
            found = (await client.workers())[0].workers
            return next((each for each in found if each.queues and each.queues[0].handed_out), None)

        status = await eventually(known)
    assert status.process
    assert (status.source, status.info.library, status.info.pid) == ("test", "python", os.getpid())
    assert (status.info.concurrency, status.info.version) == (5, __version__)


async def test_a_worker_that_only_renews_its_claims_is_heard(client: AsyncClient) -> None:
    """All its slots are taken, so that it asks for no jobs."""
    await client.configure_queue("q", (await client.queue_config("q")).config._replace(claim_timeout_ms=600))
    worker = Worker(client, settings=WorkerSettings(concurrency=1, prefetch_max=0, grace_ms=0))

    @worker.task("q")
    async def task() -> None:
        await eventually(lambda: False, 60)

    await task.enqueue_async()
    async with running(worker):

        async def heard_after_the_claim() -> WorkerStatus | None:
            for status in (await client.workers())[0].workers:
                asked_ms = status.queues[0].asked_ms
                if status.heard_ms is not None and asked_ms is not None and asked_ms > status.heard_ms + 400:
                    return status
            return None

        status = await eventually(heard_after_the_claim)
    assert status.info is not None
