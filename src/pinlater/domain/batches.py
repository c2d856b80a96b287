"""Splits jobs into requests that every server accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
JOBS_MAX, BYTES_MAX = 500, 4 * 1024 * 1024


def batches(
    jobs: Iterable[T], size_of: Callable[[T], int], jobs_max: int = JOBS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[list[T]]:
    """Yields the jobs in batches, each within these bounds. A job that is too large for any goes alone, and the server refuses it."""
    batch: list[T] = []
    size = 0
    for job in jobs:
        if batch and (len(batch) == jobs_max or size + size_of(job) > bytes_max):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += size_of(job)
    if batch:
        yield batch
