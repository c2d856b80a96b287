"""Unique keys make a periodic job safe to enqueue from two machines' cron: the key names the hour, so the report is made once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from pinlater import AsyncClient, Job, UniqueKey, UniqueScope

QUEUE = "reports"
HOUR_MS = 3_600_000


async def enqueue_report(client: AsyncClient, hour: str) -> bool:
    """Enqueues this hour's report; False where it was there already."""
    key = UniqueKey(f"report-{hour}", UniqueScope.TIME, 2 * HOUR_MS)
    enqueued = await client.enqueue(QUEUE, [Job(hour.encode(), unique=key)])
    return not enqueued.existing


async def main() -> None:
    """As if cron had started it on two machines."""
    hour = datetime.now(UTC).strftime("%Y-%m-%dT%H")
    async with AsyncClient() as client:
        await client.create_queue(QUEUE)
        for machine in ("first", "second"):
            new = await enqueue_report(client, hour)
            print(f"{machine} machine:", "enqueued" if new else "was there already")


if __name__ == "__main__":
    asyncio.run(main())
