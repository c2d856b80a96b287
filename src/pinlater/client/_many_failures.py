"""Groups of failures of any number of queues: some queues in a call, because the groups of more may not fit one answer."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import NamedTuple

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import QueueNotFound
from pinlater.client.values import FailureGroup

# Groups of a hundred queues with the longest texts are more than one answer holds.
QUEUES_A_CALL = 20


class ManyGroups(NamedTuple):
    """Groups, those with the most failures of the last 24 hours first, and muted ones last. `left_out`: how many there are beyond the bound
    of the caller. `incomplete`: a shard was unreachable."""

    groups: Sequence[FailureGroup]
    left_out: int
    incomplete: bool


async def failures_of_many(client: AsyncClient, queues: Sequence[str], groups_max: int | None = None) -> ManyGroups:
    """The groups of these queues. One that does not exist any more is left out."""
    groups: list[FailureGroup] = []
    left_out, incomplete = 0, False
    for start in range(0, len(queues), QUEUES_A_CALL):
        try:
            found = await client.failures(*queues[start : start + QUEUES_A_CALL])
        except QueueNotFound:
            if len(queues) == 1:
                raise
            continue  # the only queue of this call was deleted meanwhile
        incomplete |= found.incomplete
        groups += found.groups
        kept = len(groups) if groups_max is None else min(len(groups), groups_max)
        left_out += len(groups) - kept
        groups = nsmallest(kept, groups, key=_rank)
    return ManyGroups(groups, left_out, incomplete)


def _rank(group: FailureGroup) -> tuple[bool, int, int]:
    return group.muted_until_ms > 0, -sum(group.hours), -group.last_ms
