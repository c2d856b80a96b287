"""A long job that saves its progress: each checkpoint renews the claim and replaces the body with the remaining rows.

The first worker "crashes" half way. Its claim times out, and the second worker continues from the last checkpoint.
"""

from __future__ import annotations

import asyncio
import json

from pinlater import Ack, AsyncClient, ClaimedJob, Job
from pinlater.client import Checkpoint

QUEUE = "imports"
CLAIM_TIMEOUT_MS = 500


async def import_rows(client: AsyncClient, job: ClaimedJob, *, crash_at: int | None = None) -> list[int]:
    """Does the rows of the job, with a checkpoint after each; returns the rows that it did."""
    did: list[int] = []
    rows = json.loads(job.body)
    while rows:
        if rows[0] == crash_at:
            return did
        did.append(rows.pop(0))
        saved = await client.checkpoint(
            QUEUE, [Checkpoint(job.descriptor, token=job.token, new_body=json.dumps(rows).encode())]
        )
        if not saved[0].applied:
            return did  # another worker has the job now
    await client.ack(QUEUE, [Ack(job.descriptor, token=job.token)])
    return did


async def claim_one(client: AsyncClient) -> ClaimedJob:
    """The next job, as soon as there is one."""
    while True:
        dequeued = await client.dequeue(QUEUE, wait_ms=20_000)
        if dequeued.jobs:
            return dequeued.jobs[0]


async def main() -> None:
    """One job, two workers."""
    async with AsyncClient() as client:
        await client.create_queue(QUEUE)
        rows = json.dumps([1, 2, 3, 4, 5]).encode()
        await client.enqueue(QUEUE, [Job(rows, claim_timeout_ms=CLAIM_TIMEOUT_MS)])
        print("first worker did", await import_rows(client, await claim_one(client), crash_at=4))
        print("second worker did", await import_rows(client, await claim_one(client)))


if __name__ == "__main__":
    asyncio.run(main())
