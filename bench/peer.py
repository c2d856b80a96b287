"""A peer, measured in the same run: Dramatiq on a Redis of this machine, which keeps jobs in memory and flushes nothing.

Its settings are the best that were found on two cores: a process for each core, eight threads each, a thousand messages fetched
ahead, no middleware. Where Redis or Dramatiq is missing there is nothing to measure, and the row says so.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.benchmark_run import BODY, QUEUE

PROCESSES, THREADS, PREFETCH = len(os.sched_getaffinity(0)), 8, 1_000
SETTINGS = (
    f"{PROCESSES} processes, {THREADS} threads each, {PREFETCH} fetched ahead, no middleware; Redis without persistence"
)
_LOOK_SECONDS = 0.005
_WAIT_SECONDS_MAX = 120.0
_MESSAGES_A_PIPELINE = 1_000


def missing() -> str:
    """Why the peer can't be measured here; '' where it can."""
    if _redis_server() is None:
        return "no redis-server"
    lacking = [name for name in ("dramatiq", "redis") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(lacking)} not installed (scripts/install bench)" if lacking else ""


def _redis_server() -> str | None:
    return shutil.which("redis-server") or shutil.which("redis-server", path="/usr/sbin:/usr/local/bin")


def rate(folder: Path, count: int) -> float:
    """Jobs a second of a prefilled queue of `count`, from the first one done to the last one removed from Redis."""
    with _redis(folder) as (redis, url):
        _fill(redis, url, count)
        environment = {**os.environ, "REDIS_URL": url, "dramatiq_queue_prefetch": str(PREFETCH)}
        command = [sys.executable, "-m", "dramatiq", "bench.dramatiq_tasks", "-p", str(PROCESSES), "-t", str(THREADS)]
        with (folder / "dramatiq.log").open("wb") as log:
            workers = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            try:
                return _drained(redis, workers, count)
            finally:
                workers.terminate()
                workers.wait()


def _drained(redis: Any, workers: subprocess.Popen[bytes], count: int) -> float:
    deadline, pause = time.monotonic() + _WAIT_SECONDS_MAX, threading.Event()
    began, first = 0.0, count
    while left := redis.hlen(f"dramatiq:{QUEUE}.msgs"):
        if left < first and not began:
            began, first = time.monotonic(), left
        if workers.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Dramatiq left {left} of {count} jobs; see dramatiq.log")
        pause.wait(_LOOK_SECONDS)
    return (first if began else count) / max(_LOOK_SECONDS, time.monotonic() - began)


def _fill(redis: Any, url: str, count: int) -> None:
    """As Dramatiq's own enqueue does it, but many at a time."""
    os.environ["REDIS_URL"] = url
    from bench.dramatiq_tasks import noop

    body = BODY.decode()
    for start in range(0, count, _MESSAGES_A_PIPELINE):
        pipeline = redis.pipeline(transaction=False)
        for _ in range(min(_MESSAGES_A_PIPELINE, count - start)):
            key = str(uuid4())
            message = noop.message(body).copy(options={"redis_message_id": key})
            pipeline.hset(f"dramatiq:{QUEUE}.msgs", key, message.encode())
            pipeline.rpush(f"dramatiq:{QUEUE}", key)
        pipeline.execute()


@contextmanager
def _redis(folder: Path) -> Iterator[tuple[Any, str]]:
    """A Redis of our own, without snapshots or a log, and a client of it."""
    import redis

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with (folder / "redis.log").open("wb") as log:
        server = subprocess.Popen([str(_redis_server()), *options], stdout=log, stderr=subprocess.STDOUT)
    client = redis.Redis(port=port)
    try:
        _wait_until_it_answers(client, server)
        yield client, f"redis://127.0.0.1:{port}/0"
    finally:
        client.close()
        server.terminate()
        server.wait()


def _wait_until_it_answers(client: Any, server: subprocess.Popen[bytes]) -> None:
    import redis

    deadline, pause = time.monotonic() + 10, threading.Event()
    while True:
        try:
            client.ping()
        except redis.exceptions.ConnectionError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("redis-server did not start; see redis.log") from error
            pause.wait(_LOOK_SECONDS)
        else:
            return
