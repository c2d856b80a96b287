"""A producer and a worker: thumbnails are made by a plain function in a thread, mails are sent by an async one.

The mail server refuses the first attempt of each, so each mail is retried; one address is hopeless and given up at once.
"""

from __future__ import annotations

import asyncio
import json

from pinlater import AsyncClient, ClaimedJob, Job, JobState, Reject, Worker, WorkerSettings

worker = Worker(settings=WorkerSettings(concurrency=4, retry_delay_ms=50))
done: list[str] = []
ENDED = (JobState.SUCCEEDED, JobState.FAILED)


@worker.handler("thumbnails")
def make_thumbnail(job: ClaimedJob) -> None:
    """Plain functions may block: each runs in a thread."""
    picture = json.loads(job.body)
    done.append(f"thumbnail of {picture['file']}")


@worker.handler("mails")
async def send_mail(job: ClaimedJob) -> None:
    """An exception fails the attempt, and the job comes back after a delay."""
    address = job.body.decode()
    if "@" not in address:
        raise Reject(f"not an address: {address}")
    if job.attempt == 1:
        raise ConnectionError("mail server is busy")
    done.append(f"mail to {address}")


async def main() -> None:
    """Enqueues, lets the worker run until all jobs have ended, and says what happened."""
    async with AsyncClient() as client:
        for queue in worker.queues:
            await client.create_queue(queue)
        pictures = [Job(json.dumps({"file": f"{n}.png"}).encode()) for n in range(3)]
        mails = [b"ada@example.org", b"grace@example.org", b"nobody"]
        jobs = [
            *(await client.enqueue("thumbnails", pictures)).descriptors,
            *(await client.enqueue("mails", mails)).descriptors,
        ]
        running = asyncio.create_task(worker.run_async(client=client))
        infos = (await client.lookup(jobs)).values()
        while any(info.state not in ENDED for info in infos):
            await asyncio.sleep(0.05)
            infos = (await client.lookup(jobs)).values()
        worker.request_stop()
        await running
    print(*sorted(done), sep="\n")
    print("given up:", *(info.error_text for info in infos if info.error_text.startswith("not an")))


if __name__ == "__main__":
    asyncio.run(main())
