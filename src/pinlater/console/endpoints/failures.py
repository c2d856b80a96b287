"""Failed attempts in groups."""

from __future__ import annotations

from pinlater.client._many_failures import ManyGroups, failures_of_many
from pinlater.client.values import QueueStats
from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import like
from pinlater.console.shapes.failures import FailureGroupItem, FailuresAnswer, FailuresQuery, MuteRequest
from pinlater.console.shapes.fields import Nothing

GROUPS_OF_ALL_MAX = 1_000
"""Of an answer for all queues."""


async def get_failures(call: ApiCall[FailuresQuery, Nothing]) -> FailuresAnswer:
    """Returns the failed attempts of some queues, or of all, in groups that look alike, as the servers count them for 30 days. Reads no
    jobs. Without `queue` it answers at most 1,000 groups of all queues that the caller may see."""
    if call.query.queue:
        found = await call.client.failures(*call.query.queue)
        return _answer(ManyGroups(found.groups, 0, found.incomplete))
    stats = await call.client.queue_stats()
    failing = sorted(queue.queue for queue in stats if _has_failed(queue))
    groups = await failures_of_many(call.client, failing, GROUPS_OF_ALL_MAX)
    return _answer(groups._replace(incomplete=groups.incomplete or any(queue.incomplete for queue in stats)))


def _has_failed(queue: QueueStats) -> bool:
    """Whether an attempt has ever failed, or a claim timed out: only then there may be groups."""
    return any(counts.failed_total or counts.retried_total for counts in queue.counts)


def _answer(found: ManyGroups) -> FailuresAnswer:
    return FailuresAnswer(
        groups=[like(FailureGroupItem, group) for group in found.groups],
        left_out=found.left_out,
        incomplete=found.incomplete,
    )


async def mute_failures(call: ApiCall[Nothing, MuteRequest]) -> None:
    """Mutes a group of failures of the queue: it comes last then, and its failures still count."""
    await call.client.mute_failures(call.queue, call.body.group, until_ms=call.body.until_ms)
