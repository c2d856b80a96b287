"""A worker whose servers are away for longer than its claims."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest

from pinlater.client import AsyncClient, JobState
from pinlater.worker import Worker, current_job
from tests.databases.proxy import Proxy
from tests.worker.conftest import eventually
from tests.worker.test_worker import FAST, running, state_of


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_checkpoint_that_waits_for_longer_than_its_claim_ends_as_a_lost_claim(
    server: str, client: AsyncClient, caplog: pytest.LogCaptureFixture, in_thread: bool
) -> None:
    """The job is given out again, and the log says in one line what became of the first attempt."""
    went = threading.Event()
    attempts: list[int] = []
    async with Proxy(server) as proxy, AsyncClient(proxy.address) as of_worker:
        worker = Worker(of_worker, settings=FAST)

        @worker.task("q", attempts=5, claim_timeout=2)
        async def on_loop() -> None:
            attempts.append(current_job().attempt)
            if current_job().attempt == 1:
                await asyncio.to_thread(went.wait, 30)
                await current_job().checkpoint_async({})

        @worker.task("q", attempts=5, claim_timeout=2)
        def on_thread() -> None:
            attempts.append(current_job().attempt)
            if current_job().attempt == 1:
                went.wait(30)
                current_job().checkpoint({})

        task = on_thread if in_thread else on_loop
        [descriptor] = (await client.enqueue("q", [task.job()])).descriptors
        async with running(worker):
            await eventually(lambda: attempts)
            proxy.refuse()
            proxy.cut()
            went.set()
            timed_out = await eventually(lambda: state_of(client, descriptor, JobState.PENDING))
            proxy.accept()
            info = await eventually(lambda: state_of(client, descriptor, JobState.SUCCEEDED))
    assert (timed_out.attempts_remaining, attempts[0]) == (4, 1)
    assert (info.attempts[0].outcome, info.attempts[-1].outcome) == ("timed_out", "succeeded")
    assert (worker.counts.lost >= 1, worker.counts.failed) == (True, 0)
    lost = [record.getMessage() for record in caplog.records if "claim lost" in record.getMessage()]
    assert re.search(r"claim lost.*: (?:it timed out|\S+ holds the job now|the job has ended: .*)$", lost[0])
