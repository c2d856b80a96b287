"""The log lines with which a worker starts and stops."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from os import PathLike

from pinlater.client._servers import SERVERS_VARIABLE, same_servers
from pinlater.client.async_client import AsyncClient
from pinlater.domain.durations import duration_text
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._enqueueing.servers import WorkerServers
from pinlater.worker.registry import QueueTasks

_log = logging.getLogger("pinlater.worker")


def log_start(run: WorkerRun, queues: Mapping[str, QueueTasks], crons: int) -> None:
    """One line for the worker, and one for each queue with its tasks."""
    _log.info(
        "worker started",
        extra={
            "servers": list(map(str, run.client.servers)),
            "concurrency": run.settings.concurrency,
            "grace": duration_text(run.settings.grace_ms),
            **({"cron_entries": crons} if crons else {}),
        },
    )
    for name, queue in queues.items():
        at_most = {} if queue.concurrency is None else {"concurrency": queue.concurrency}
        _log.info("queue %s", name, extra={"tasks": list(queue.tasks), **at_most})


def log_unused_variable(servers: WorkerServers) -> None:
    """Warns if the environment names other servers than the worker's own code, whose servers count.

    Says nothing of a worker with a client: that may have its servers from the environment.
    """
    named = os.environ.get(SERVERS_VARIABLE)
    if not named or servers.given is None or isinstance(servers.given, AsyncClient) or callable(servers.given):
        return
    given = f"file:{servers}" if isinstance(servers.given, PathLike) else repr(servers)
    level = logging.INFO if same_servers(given, named) else logging.WARNING
    _log.log(level, "%s=%s is set but not used: the code names its servers, Worker(%r)", SERVERS_VARIABLE, named, given)


def warn_of_queues_without_tasks(without: Sequence[str], queues: Sequence[str]) -> None:
    """Settings of a queue that the worker can't consume are probably a typing mistake. `queues`: those that have tasks."""
    for name in without:
        near = get_close_matches(name, queues, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        _log.warning("queue %s: worker.queue() has no effect, since no task of this worker is on it%s", name, hint)


def log_stopping(run: WorkerRun) -> None:
    """What a stop waits for, and how to end the wait; nothing if no job runs."""
    running = run.slots.running
    if running and run.settings.grace_ms:
        _log.info(
            "stopping: waiting up to %s for %d running job%s; another Ctrl-C (or SIGTERM) stops at once",
            duration_text(run.settings.grace_ms), running, "" if running == 1 else "s",
        )  # fmt: skip


def log_stop(run: WorkerRun) -> None:
    """What the worker has done; functions that still run if there are any."""
    counts, functions = run.counts, run.abandoned_functions
    abandoned = {"abandoned_functions": functions} if functions else {}
    _log.info("worker stopped", extra={"succeeded": counts.succeeded, "failed": counts.failed, **abandoned})
