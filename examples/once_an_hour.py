"""Two machines start the same cron job. The unique key names the hour, so the report is enqueued once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

from pinlater import AsyncClient, Job, UniqueKey, UniqueScope

QUEUE = "hourly_reports"
HOUR_MS = 3_600_000


async def enqueue_report(client: AsyncClient, report: str, hour: str) -> bool:
    """Enqueues the report of this hour; False if it is there already."""
    key = UniqueKey(f"{report}-{hour}", UniqueScope.TIME, 2 * HOUR_MS)
    enqueued = await client.enqueue(QUEUE, [Job(hour.encode(), unique=key)])
    return not enqueued.existing


async def main() -> None:
    """As if cron had started it on two machines. A new name for the report lets you run the example twice in an hour."""
    report = f"report-{uuid4().hex[:8]}"
    hour = datetime.now(UTC).strftime("%Y-%m-%dT%H")
    async with AsyncClient() as client:
        await client.create_queue(QUEUE)
        for machine in ("first", "second"):
            new = await enqueue_report(client, report, hour)
            print(f"{machine} machine:", "enqueued" if new else "was there already")


if __name__ == "__main__":
    asyncio.run(main())
