"""Chains of tasks, at the top of a module so that a child process can import them: a job enqueues the next one under a unique key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from pinlater.client import Client, UniqueKey, UniqueScope, _retries
from pinlater.worker import Worker
from pinlater.worker._enqueueing import enqueuer

LOOP, THREAD, PROCESS = "loop", "thread", "process"
_DEADLINE_MS = 150

worker = Worker("127.0.0.1:1")


class ImpatientClient(Client):
    def __init__(self, *servers: Any, **options: Any) -> None:
        super().__init__(*servers, timeout_ms=_DEADLINE_MS, **options)


@contextlib.contextmanager
def short_deadline() -> Iterator[None]:
    """The clients that tasks of this process open meanwhile have a deadline that an outage exceeds, and pause shortly between tries."""
    pauses = patch.multiple(_retries, _PAUSE_FIRST_S=0.01, _PAUSE_MAX_S=0.05)
    with pauses, patch.object(enqueuer, "Client", ImpatientClient):
        yield


def only_one(name: str) -> UniqueKey:
    return UniqueKey(name, UniqueScope.TIME, 3_600_000)


@worker.task("links")
async def link(name: str) -> None: ...


@worker.task("chains", attempts=1)
async def chain_on_loop() -> None:
    await link.using(unique=only_one(LOOP)).enqueue_async(LOOP)


@worker.task("chains", attempts=1)
def chain_in_thread() -> None:
    link.using(unique=only_one(THREAD)).enqueue(THREAD)


@worker.task("chains", attempts=1, process=True)
def chain_in_process() -> None:
    with short_deadline():
        link.using(unique=only_one(PROCESS)).enqueue(PROCESS)
