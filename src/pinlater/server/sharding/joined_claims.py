"""Claims that wait together: joined into one order for each queue, whose answer is distributed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError
from pinlater.server.sharding.joined import NOT_BEGUN, NotBegun
from pinlater.server.storage.values import ClaimCall, Claimed, ClaimOrder

# Bytes of bodies that one joined claim loads; a call for which there is no space is in the next one.
_CLAIM_BYTES_MAX = 64 * 1024 * 1024


class ClaimRequest(NamedTuple):
    """The request of one dequeue, from the operation to the lane. A lane joins the `call`s of its queue into one `ClaimOrder`.

    `coverage`: the share of the shards to look at; `wait_ms`: how long to wait for jobs. A lane needs neither. `search`: jobs may have
    bypassed the owner of the queue, so no store may rely on its memory. `through_priority`: as in `ClaimOrder`.
    """

    queue: str
    call: ClaimCall
    claim_timeout_ms: int
    coverage: float = 1.0
    wait_ms: int = 0
    search: bool = False
    through_priority: int | None = None


def orders_of(
    requests: Sequence[ClaimRequest], owns: Callable[[str], bool]
) -> tuple[dict[str, list[int]], list[ClaimOrder]]:
    """Returns the indices of each queue's requests, and an order for each queue.

    Requests whose `through_priority` is not that of the queue's first request are left out, for the next call: on MySQL, two orders for
    one queue would lock the same rows.
    Together they load no more bodies than a few large calls do. A call for one job takes it whatever its size, now or later.
    """
    queue, call, timeout_ms, _, _, search, through = requests[0]
    if len(requests) == 1 and call.max_bytes <= _CLAIM_BYTES_MAX:
        order = ClaimOrder(queue, [call], timeout_ms, _CLAIM_BYTES_MAX, owns(queue) and not search, through)
        return {queue: [0]}, [order]
    indices_by_queue: dict[str, list[int]] = {}
    for index, request in enumerate(requests):
        indices = indices_by_queue.setdefault(request.queue, [])
        if not indices or request.through_priority == requests[indices[0]].through_priority:
            indices.append(index)
    most_bytes = _CLAIM_BYTES_MAX // len(requests)
    return indices_by_queue, [
        ClaimOrder(
            queue,
            _within([requests[i].call for i in indices], most_bytes),
            requests[indices[0]].claim_timeout_ms,
            _CLAIM_BYTES_MAX,
            owns(queue) and not any([requests[i].search for i in indices]),  # noqa: C419 a list is quicker
            requests[indices[0]].through_priority,
        )
        for queue, indices in indices_by_queue.items()
    ]


def _within(calls: list[ClaimCall], most_bytes: int) -> list[ClaimCall]:
    """The calls, each with its share of the bytes that a joined claim may load."""
    return [
        call if call.limit == 1 or call.max_bytes <= most_bytes else ClaimCall(call.limit, call.holder, most_bytes)
        for call in calls
    ]


def share_out(
    requests: Sequence[ClaimRequest],
    indices_by_queue: dict[str, list[int]],
    results: Sequence[Claimed | PinLaterError],
    expired_jobs: Callable[[str, int], None],
) -> list[Claimed | PinLaterError | NotBegun]:
    """Returns the answer to each request, from those to the orders. Calls `expired_jobs` with the number of jobs of a queue that
    expired.
    """
    answers: list[Claimed | PinLaterError | NotBegun] = [NOT_BEGUN] * len(requests)
    make = tuple.__new__  # faster than calling the class
    for (queue, indices), result in zip(indices_by_queue.items(), results, strict=True):
        if isinstance(result, PinLaterError):
            for i in indices:
                answers[i] = result
            continue
        all_jobs, next_due_ms, expired, cut_short, head = result
        if expired:
            expired_jobs(queue, expired)
        for i, jobs in zip(indices, all_jobs, strict=True):
            if cut_short and not jobs and requests[i].call.limit > 0:
                answers[i] = NOT_BEGUN
            else:
                answers[i] = make(Claimed, ((jobs,), next_due_ms, 0, False, head))
    return answers
