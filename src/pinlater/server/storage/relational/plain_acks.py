"""Which acks are plain: a success without a status, of a job at its first attempt. Each store finishes these by statements of its own.

A job with an ordering key may have a plain ack, too; then the next one of its key becomes ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pinlater.server.storage.record import HAS_ORDER
from pinlater.server.storage.values import JobAck

_NO_CLAIM = (None,) * 5


class _QueueWithId(Protocol):
    @property
    def queue_id(self) -> int: ...


class Split(NamedTuple):
    """`plain`: the ids of their jobs; `counts`: how many these are by queue and priority; `others`: the positions of the other acks.

    `ordered`: the ids of plain ones with ordering keys.
    """

    plain: list[int]
    counts: dict[tuple[str, int], int]
    others: list[int]
    ordered: list[int]


def split(acks: Sequence[JobAck], claims: dict[int, tuple[Any, ...]], queues: Mapping[str, _QueueWithId]) -> Split:
    """`claims`: by job id, (job id, queue id, priority, flags, token); the function removes those that it finds."""
    plain: list[int] = []
    counts: dict[tuple[str, int], int] = {}
    others: list[int] = []
    ordered: list[int] = []
    for position, (key, succeeded, token, addition, *_) in enumerate(acks):
        queue_name, priority, job_id = key
        _, queue_id, claim_priority, flags, claim_token = claims.pop(job_id, _NO_CLAIM)
        if (
            queue_id is not None
            and succeeded
            and not addition
            and (not flags or flags == HAS_ORDER)
            and claim_priority == priority
            and (token is None or token == claim_token)
            and (queue := queues.get(queue_name)) is not None
            and queue.queue_id == queue_id
        ):
            plain.append(job_id)
            if flags:
                ordered.append(job_id)
            where = (queue_name, priority)
            counts[where] = counts.get(where, 0) + 1
        else:
            others.append(position)
    return Split(plain, counts, others, ordered)
