"""The notes of commands about jobs that wait behind others of their ordering keys."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client import AckResult, AsyncClient, BehindKey, MovedJob, Outcome
from pinlater.client.errors import PinLaterError


async def behind_others(
    client: AsyncClient, queue: str, results: Sequence[AckResult] | Sequence[MovedJob]
) -> dict[str, str]:
    """Returns, by descriptor, why jobs that no worker holds did not change. A job is left out if it waits behind no other, or can't be
    looked up.
    """
    found: dict[str, str] = {}
    for result in results:
        if result.outcome is Outcome.STALE_CLAIM and not result.holder:
            try:
                behind = (await client.explain_job(queue, result.descriptor)).behind
            except PinLaterError:  # the caller must still learn what was changed
                return found
            if isinstance(behind, BehindKey):
                found[result.descriptor] = f"waits behind {behind.first} of its ordering key"
            elif behind is not None:
                found[result.descriptor] = f"waits for jobs on shard {behind.shard}"
    return found
