"""Creates a worker's queues when it starts, for `pinlater worker --create-queues`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TypeVar

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import CallerError, ServerUnreachable, WorldError
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker.settings import backoff_ms

_log = logging.getLogger("pinlater.worker")
T = TypeVar("T")


async def create_queues(run: WorkerRun, names: Collection[str]) -> None:
    """Creates the queues that don't exist, and logs their names.

    Retries until a server answers or the worker stops; raises what the caller must correct.
    """
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


async def _create(run: WorkerRun, names: Collection[str]) -> None:
    present = await _until_answered(run, lambda: _present(run.client))
    for name in names:
        await _until_answered(run, partial(run.client.create_queue, name))
    made = [] if present is None else [name for name in names if name not in present]
    if made:
        _log.info("created queues: %s", ", ".join(made))


async def _present(client: AsyncClient) -> Collection[str] | None:
    """The queues that exist; None if the server does not tell: the worker's token may not list them, for example."""
    try:
        return set(await client.queue_names())
    except CallerError:
        return None


async def _until_answered(run: WorkerRun, call: Callable[[], Awaitable[T]]) -> T:
    failures = 0
    while True:
        try:
            answer = await call()
        except WorldError as error:
            failures += 1
            if isinstance(error, ServerUnreachable):
                run.outage.goes_on(error, "create queues")
            elif failures == 1:
                _log.warning("can't create queues, retrying: %s", error)
        else:
            run.outage.ends()
            return answer
        delay_ms = backoff_ms(run.settings, failures, random.random())  # noqa: S311 - spreads load, guards nothing
        await asyncio.sleep(delay_ms / 1000)
