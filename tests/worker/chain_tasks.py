"""Chains of tasks, at the top of a module so that a child process can import them: a job enqueues the next one under a unique key."""

from __future__ import annotations

from pinlater.client import UniqueKey, UniqueScope
from pinlater.worker import Worker

LOOP, THREAD, PROCESS = "loop", "thread", "process"

worker = Worker("127.0.0.1:1")


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
    link.using(unique=only_one(PROCESS)).enqueue(PROCESS)
