"""A producer and a worker: a plain function in a thread makes thumbnails, an async function sends mails.

The mail server refuses the first attempt of each mail, so each is retried. One address is wrong, and its mail is given up at once.
"""

from __future__ import annotations

import asyncio

from pinlater import AsyncClient, JobState, Reject, Worker, current_job
from pinlater.worker import constant

worker = Worker(concurrency=4, retry=constant(0.05))
done: list[str] = []
ENDED = (JobState.SUCCEEDED, JobState.FAILED)


@worker.task("thumbnails")
def make_thumbnail(file: str, width: int = 200) -> None:
    """Plain functions may block: each runs in a thread."""
    done.append(f"thumbnail of {file}, {width} wide")


@worker.task("mails", attempts=3)
async def send_mail(to: str) -> None:
    """An exception fails the attempt, and the job comes back after a delay."""
    if "@" not in to:
        raise Reject(f"not an address: {to}")
    if current_job().attempt == 1:
        raise ConnectionError("mail server is busy")
    done.append(f"mail to {to}")


async def main() -> None:
    """Enqueues jobs, runs the worker until all have ended, and prints what happened."""
    async with AsyncClient() as client:
        mails = ["ada@example.org", "grace@example.org", "example.org"]
        placed = [
            *await make_thumbnail.enqueue_many_async(make_thumbnail.job(f"{number}.png") for number in range(3)),
            *await send_mail.enqueue_many_async(send_mail.job(to) for to in mails),
        ]
        jobs = [one.descriptor for one in placed]
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
