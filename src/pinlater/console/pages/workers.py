"""Workers: who asks for jobs and who holds some, those in trouble first; and the jobs that lose their workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pinlater.client.errors import UnknownMethod
from pinlater.client.workers import SILENT_MS
from pinlater.console.endpoints.failures import FailuresQuery, get_failures
from pinlater.console.endpoints.fields import QueuesQuery
from pinlater.console.endpoints.queues import get_stats
from pinlater.console.endpoints.workers import WorkerItem, WorkerProcessItem, WorkersAnswer, get_workers
from pinlater.console.pages.api import Api
from pinlater.console.pages.failed import GroupRow, group_row
from pinlater.console.pages.page import PageCall, PageView
from pinlater.console.pages.queue_figures import figures_of
from pinlater.domain.failures import CLAIM_TIMED_OUT, PROCESS_DIED, QUEUES_MAX

ROWS, PROCESSES, GROUPS = 200, 5, 10
_LOSES_WORKERS = frozenset({CLAIM_TIMED_OUT, PROCESS_DIED})
"""Types of the errors of attempts whose worker, or whose process of a worker, was lost."""


class WorkerRow(NamedTuple):
    """A worker. `processes`: the last heard; `more`: how many others there are. `shared`: several processes with its source were heard
    lately, so that a claimed job may belong to any of them."""

    worker: WorkerItem
    processes: Sequence[WorkerProcessItem]
    more: int
    shared: bool


async def show(call: PageCall) -> PageView:
    """Shows the page. Makes one call to each server, one for each queue with running jobs, up to ten, and two for the groups of
    failures.
    """
    answer, suspects = await call.api.shared(_read)
    workers = [_row(worker) for worker in answer.workers[:ROWS]]
    return PageView("Workers", workers=workers, answer=answer, suspects=suspects)


async def _read(api: Api) -> tuple[WorkersAnswer, Sequence[GroupRow]]:
    return await api.ask(get_workers, query=QueuesQuery()), await _suspects(api)


def _row(worker: WorkerItem) -> WorkerRow:
    present = [each for each in worker.processes if each.heard_ms is not None and each.heard_ms < SILENT_MS]
    shown = worker.processes[:PROCESSES]
    return WorkerRow(worker, shown, len(worker.processes) - len(shown), len(present) > 1)


async def _suspects(api: Api) -> Sequence[GroupRow]:
    """Returns the groups, those with the most failures first; none from servers that do not count them."""
    queues = [figures_of(queue) for queue in (await api.ask(get_stats, query=QueuesQuery())).queues]
    queues.sort(key=lambda queue: (-queue.failed - queue.running, queue.name))
    if not queues:
        return ()
    try:
        found = await api.ask(get_failures, query=FailuresQuery(queue=[one.name for one in queues[:QUEUES_MAX]]))
    except UnknownMethod:
        return ()
    rows = [group_row(group) for group in found.groups if group.error_type in _LOSES_WORKERS]
    rows.sort(key=lambda row: (-row.today, -row.group.last_ms))
    return [row for row in rows[:GROUPS] if row.today]
