"""Counts the bytes that the jobs of a claim take in an answer: their bodies and headers. `JOB_BYTES` covers the rest of each job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from pinlater.domain.job import HandedOutJob
from pinlater.server.storage.values import ClaimOrder

JOB_BYTES = 640
"""The most bytes of an answer that a job takes beside its body and headers: three times its descriptor, its claim token, and numbers."""
_BYTES_TOGETHER_MAX = attrgetter("bytes_together_max")
_LENGTHS_BYTES = 8  # bytes of a header: the lengths of its name and its value


def header_bytes(headers: Mapping[str, str] | None) -> int:
    """Returns how many bytes of an answer the headers of a job take."""
    if not headers:
        return 0
    return sum([_LENGTHS_BYTES + len(name.encode()) + len(value.encode()) for name, value in headers.items()])


def content_bytes(jobs: Iterable[HandedOutJob]) -> int:
    """Returns how many bytes of an answer the bodies and headers of these jobs take."""
    return sum([len(job.body) + (header_bytes(job.headers) if job.headers else 0) for job in jobs])


class BytesTogether:
    """How many bytes the orders of one claim may still hand out together: it hands out jobs while `left` is above 0, so the first job
    always fits, and the last may exceed the bound."""

    __slots__ = ("left",)

    def __init__(self, orders: Sequence[ClaimOrder]) -> None:
        self.left = min(map(_BYTES_TOGETHER_MAX, orders), default=0)
