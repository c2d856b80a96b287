"""Failed attempts in groups."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

from pinlater.client._many_failures import QUEUES_A_CALL, ManyGroups, failures_of_many
from pinlater.client.values import QueueStats
from pinlater.console import costs
from pinlater.console.endpoint import ApiCall, endpoint
from pinlater.console.endpoints.fields import AnswerShape, Moment, Nothing, RequestShape, doc
from pinlater.console.endpoints.forms import like
from pinlater.domain.failures import GROUPS_MAX, QUEUES_MAX

GROUPS_OF_ALL_MAX = 1_000
"""Of an answer for all queues."""


class FailuresQuery(RequestShape, frozen=True, kw_only=True):
    """Selects queues."""

    queue: Annotated[
        Sequence[str],
        doc("A queue; may be repeated. Without it: all queues that the caller may see.", max_length=QUEUES_MAX),
    ] = ()


class FailureGroupItem(AnswerShape, frozen=True, kw_only=True):
    """Failed attempts that look alike."""

    queue: str
    name: Annotated[
        str, doc("16 hexadecimal digits. All zeros: failures of the groups beyond the number that is kept.")
    ]
    task: str
    error_type: str
    pattern: Annotated[str, doc("The first line of the error, with `…` for numbers, names in quotes and addresses.")]
    failures: Annotated[int, doc("Attempts that failed since `first_ms`.")]
    first_ms: int
    last_ms: int
    sample: Annotated[str, doc("The job that failed last. It may have been deleted since.")]
    hours: Annotated[Sequence[int], doc("Failures in each of the last 24 hours, oldest first.")]
    muted_until_ms: Annotated[int, doc("Until when an operator has muted the group; 0 if it is not muted.")]


class MuteRequest(RequestShape, frozen=True, kw_only=True):
    """What to mute or unmute."""

    group: Annotated[str, doc("The name of the group.", pattern="^[0-9a-f]{16}$")]
    until_ms: Annotated[
        Moment | None,
        doc("At most 30 days ahead, which is also the default. A time in the past, such as 0, ends the mute."),
    ] = None


class FailuresAnswer(AnswerShape, frozen=True, kw_only=True):
    """Groups, those with the most failures of the last 24 hours first, and muted ones last."""

    groups: Sequence[FailureGroupItem]
    left_out: Annotated[int, doc("Groups of all queues beyond the first 1,000.")]
    incomplete: Annotated[bool, doc("A shard was unreachable, so its failures are missing.")]


def _cost(call: ApiCall[FailuresQuery, Nothing]) -> int:
    """As many groups as a shard keeps of each queue. For all queues: those of the answer, and those of one call."""
    queues = len(call.query.queue)
    return costs.of_groups(queues * GROUPS_MAX if queues else GROUPS_OF_ALL_MAX + QUEUES_A_CALL * GROUPS_MAX)


@endpoint("GET", "/v1/failures", calls="failures, queue_stats", cost=_cost)
async def get_failures(call: ApiCall[FailuresQuery, Nothing]) -> FailuresAnswer:
    """Returns the failed attempts of some queues, or of all, in groups that look alike, as the servers count them for 30 days. Reads no
    jobs. Without `queue` it answers at most 1,000 groups of all queues that the caller may see."""
    if call.query.queue:
        found = await call.client.failures(*call.query.queue)
        return like(FailuresAnswer, found, left_out=0)
    stats = await call.client.queue_stats()
    failing = sorted(queue.queue for queue in stats if _has_failed(queue))
    groups: ManyGroups = await failures_of_many(call.client, failing, GROUPS_OF_ALL_MAX)
    return like(FailuresAnswer, groups, incomplete=groups.incomplete or any(queue.incomplete for queue in stats))


def _has_failed(queue: QueueStats) -> bool:
    """Whether an attempt has ever failed, or a claim timed out: only then there may be groups."""
    return any(counts.failed_total or counts.retried_total for counts in queue.counts)


@endpoint("POST", "/v1/queues/{queue}/failures/mute", calls="mute_failures", status=HTTPStatus.NO_CONTENT)
async def mute_failures(call: ApiCall[Nothing, MuteRequest]) -> None:
    """Mutes a group of failures of the queue: it is listed last, and its failures still count."""
    await call.client.mute_failures(call.queue, call.body.group, until_ms=call.body.until_ms)
