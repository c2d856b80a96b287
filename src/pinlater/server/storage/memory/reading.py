"""Scans: one page of one queue and state. Counts of what comes before a place."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.job import JobState
from pinlater.server.storage.memory.queue_state import QueueState
from pinlater.server.storage.values import JobKey, Page, PageRow, Place


def scan(queue: QueueState, page: Page, shard: str) -> list[PageRow]:
    """Newest first. With bodies the page ends once they exceed `max_bytes`, but one job always fits."""
    rows: list[PageRow] = []
    size_bytes = 0
    lines = [_line(queue, page, priority) for priority in page.priorities]
    for sort_ms, job_id, priority in heapq.merge(*lines, reverse=True):
        if len(rows) >= page.limit or (page.bodies and size_bytes > page.max_bytes):
            break
        job = queue.jobs[job_id]
        size_bytes += len(job.body)
        rows.append(PageRow(sort_ms, JobKey(page.queue, priority, job_id), job.shown(shard, body=page.bodies)))
    return rows


def _line(queue: QueueState, page: Page, priority: int) -> Iterator[tuple[int, int, int]]:
    """The (time, id, priority) of the jobs of one priority."""
    ms_max = ms_min = None
    if page.state is JobState.PENDING:
        ms_max, ms_min = (None, page.due_by_ms + 1) if page.future else (page.due_by_ms, None)
    keys = queue.in_state(page.state, priority)
    for sort_ms, job_id in keys.descending(below=page.after, ms_max=ms_max, ms_min=ms_min):
        yield sort_ms, job_id, priority


def count_ahead(queue: QueueState, place: Place) -> int:
    """By two searches in a sorted list for each priority."""
    higher = sum(
        queue.in_state(JobState.PENDING, priority).count_through((place.due_by_ms, I64_MAX))
        for priority in queue.priorities()
        if priority < place.priority
    )
    same = queue.in_state(JobState.PENDING, place.priority).count_through((place.run_after_ms, place.id - 1))
    return min(higher + same, place.limit)
