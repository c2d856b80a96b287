"""A worker process for tests that send signals. Writes notes to the file that the environment names."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import threading
import time

from pinlater.worker import Worker, WorkerSettings, current_job

GRACE_MS = int(os.environ.get("STUBBORN_GRACE_MS", "10000"))
worker = Worker(
    settings=WorkerSettings(
        grace_ms=GRACE_MS, wait_ms=500, backoff_first_ms=10, backoff_max_ms=100, retry_delay_ms=10, prefetch_max=0
    )
)


def note(what: str) -> None:
    with open(os.environ["STUBBORN_NOTES"], "a") as file:  # noqa: PTH123 - one line at a time, from any process
        file.write(f"{what} {current_job().attempt}\n")


def gate_is_open() -> bool:
    return os.path.exists(os.environ["STUBBORN_NOTES"] + ".gate")  # noqa: PTH110 - plain on purpose


@worker.task("q")
async def on_loop(name: str) -> None:
    note(f"began {name}")
    try:
        while not gate_is_open():
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        note(f"let go {name}")
        raise
    note(f"ended {name}")


@worker.task("q")
def in_thread(name: str) -> None:
    note(f"began {name}")
    while not gate_is_open():
        time.sleep(0.01)
    note(f"ended {name}")


@worker.task("q", process=True)
def in_process(name: str) -> None:
    program = subprocess.Popen(["sleep", "600"])
    note(f"process {os.getpid()} {program.pid}")
    note(f"began {name}")
    while not gate_is_open():
        time.sleep(0.01)
    note(f"ended {name}")


@worker.task("q")
async def deaf(name: str) -> None:
    note(f"began {name}")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@worker.task("q")
async def deaf_beside(name: str) -> None:
    note(f"began {name}")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.to_thread(threading.Event().wait)


@worker.task("q")
def close_everything(name: str) -> None:
    note(f"began {name}")
    if current_job().attempt == 1:
        os.closerange(3, 1_000)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    threading.current_thread().name = "main"
    worker.run()
