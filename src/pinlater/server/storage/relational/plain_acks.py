"""Which acks are plain: a success without a status, of a job at its first attempt. Each store finishes these by statements of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pinlater.server.storage.values import JobAck


class _Queue(Protocol):
    @property
    def queue_id(self) -> int: ...


class Split(NamedTuple):
    """`plain`: the ids of their jobs; `counts`: how many these are by queue and priority; `others`: the positions of the other acks."""

    plain: list[int]
    counts: dict[tuple[str, int], int]
    others: list[int]


def split(acks: Sequence[JobAck], claims: dict[int, tuple[Any, ...]], queues: Mapping[str, _Queue]) -> Split:
    """`claims`: by job id, (job id, queue id, priority, flags, token); those that are found are taken out."""
    plain: list[int] = []
    counts: dict[tuple[str, int], int] = {}
    others: list[int] = []
    for position, (key, succeeded, token, addition, *_) in enumerate(acks):
        queue_name, priority, job_id = key
        claim = claims.pop(job_id, None)
        if (
            claim is not None
            and succeeded
            and not addition
            and not claim[3]
            and claim[2] == priority
            and (token is None or token == claim[4])
            and (queue := queues.get(queue_name)) is not None
            and queue.queue_id == claim[1]
        ):
            plain.append(job_id)
            where = (queue_name, priority)
            counts[where] = counts.get(where, 0) + 1
        else:
            others.append(position)
    return Split(plain, counts, others)
