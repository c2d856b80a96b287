"""Creates a worker's queues when it starts, for `pinlater worker --create-queues`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterable

from pinlater.client.errors import WorldError
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker.settings import backoff_ms

_log = logging.getLogger("pinlater.worker")


async def create_queues(run: WorkerRun, names: Iterable[str]) -> None:
    """Creates the queues that don't exist. Retries until a server answers or the worker stops; raises what the caller must correct."""
    failures = 0
    for name in names:
        while not run.stop.is_set():
            try:
                await run.client.create_queue(name)
                break
            except WorldError as error:
                failures += 1
                if failures == 1:
                    _log.warning("can't create queues, retrying: %s", error)
            delay_ms = backoff_ms(run.settings, failures, random.random())  # noqa: S311 - spreads load, guards nothing
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_ms / 1000):
                    await run.stop.wait()
