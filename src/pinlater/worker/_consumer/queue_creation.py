"""Creates a worker's queues when it starts, for `pinlater worker --create-queues`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable

from pinlater.client.errors import WorldError
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker.settings import backoff_ms

_log = logging.getLogger("pinlater.worker")


async def create_queues(run: WorkerRun, names: Iterable[str]) -> None:
    """Creates the queues that don't exist. Retries until a server answers or the worker stops; raises what the caller must correct."""
    creating = asyncio.create_task(_create(run, names))
    stopping = asyncio.create_task(run.stop.wait())
    try:
        await asyncio.wait({creating, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if creating.done():
            creating.result()
    finally:
        creating.cancel()
        stopping.cancel()
        await asyncio.gather(creating, stopping, return_exceptions=True)


async def _create(run: WorkerRun, names: Iterable[str]) -> None:
    failures = 0
    for name in names:
        while True:
            try:
                await run.client.create_queue(name)
                break
            except WorldError as error:
                failures += 1
                if failures == 1:
                    _log.warning("can't create queues, retrying: %s", error)
            delay_ms = backoff_ms(run.settings, failures, random.random())  # noqa: S311 - spreads load, guards nothing
            await asyncio.sleep(delay_ms / 1000)
