"""`pinlater job dequeue`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import exits, notes, options, output
from pinlater.client import Ack, AsyncClient, Claim, ClaimedJob, Dequeued
from pinlater.client.errors import PinLaterError
from pinlater.domain.wording import counted

# The difference between the server's clock and ours, and the network, make a wait look a little shorter or longer.
_INEXACT_MS = 500
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to take.")]


def dequeue(
    queue: options.QueueName,
    limit: Limit = 1,
    wait: Annotated[str, typer.Option("--wait", help="How long to wait for a job, at most 60s.")] = "0",
    ack: Annotated[bool, typer.Option("--ack", help="Ack the jobs as succeeded once they are printed.")] = False,
    body_only: Annotated[
        bool,
        typer.Option(
            "--body-only",
            help="Print nothing but the body, byte for byte. On a terminal, and with --limit above 1, end each body with a newline.",
        ),
    ] = False,
    null: Annotated[
        bool,
        typer.Option("--null", "-0", help="With --body-only: end each body with a zero byte instead, as for xargs -0."),
    ] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutAndWaitSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Claim jobs and print them. A claim ends with `pinlater job ack`, with --ack, or when it times out. If the jobs can't all be printed,
    none is acked, and all go back to the queue.

    Example: pinlater job dequeue emails --limit 10 --wait 20s --ack
    """
    wait_ms = options.span_ms(wait, "--wait") or 0

    async def claim(client: AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        dequeued = await client.dequeue(queue, limit, wait_ms=wait_ms)
        waited_s = loop.time() - began
        if not dequeued.jobs and waited_s * 1000 < wait_ms - _INEXACT_MS:
            notes.note(
                f"the server ended the wait after {waited_s:.1f} s, its longest unless it stops (jobs.max_wait_ms)"
            )
        try:
            if body_only:
                _print_bodies(dequeued.jobs, b"\0" if null else b"\n" if limit > 1 or output.on_terminal() else b"")
            else:
                print_jobs(dequeued, json)
            output.deliver()
        except OSError as error:
            output.fail_unprinted(error, await _given_back(client, queue, dequeued.jobs))
        if ack and dequeued.jobs:
            results = await client.ack(queue, [Ack(job.descriptor, token=job.token) for job in dequeued.jobs])
            late = sum(not result.applied for result in results)
            if late:
                exits.fail(
                    f"{counted(late, 'job')} of these were not acked: the claims had ended before", exits.REFUSED
                )

    output.check_open("no job was claimed")
    options.ask(server, timeout, claim, wait_for_servers=True)


async def _given_back(client: AsyncClient, queue: str, jobs: Sequence[ClaimedJob]) -> str:
    """Returns the outcome for jobs that could not be printed: they are due again at once, or when their claims time out."""
    if not jobs:
        return "no job was claimed"
    try:
        results = await client.release(queue, [Claim(job.descriptor, job.token) for job in jobs])
    except PinLaterError:
        results = []
    what = f"no job is acked: {counted(len(jobs), 'job')} of {queue} {'is' if len(jobs) == 1 else 'are'} due again"
    return f"{what} {'now' if results and all(each.applied for each in results) else 'when the claims time out'}"


def print_jobs(dequeued: Dequeued, as_json: bool) -> None:
    jobs = dequeued.jobs
    if as_json:
        output.print_json({"jobs": [output.claimed_json(job) for job in jobs]})
        return
    columns = ["descriptor", "attempt", "left", "token", "body"]
    rows = [
        (job.descriptor, job.attempt, job.attempts_remaining, job.token or None, output.shown_body(job)) for job in jobs
    ]
    output.print_blocks(columns, rows)


def _print_bodies(jobs: Sequence[ClaimedJob], end: bytes) -> None:
    """Prints each body with `end`, without a second newline."""
    for job in jobs:
        output.print_bytes(job.body + (b"" if end == b"\n" and job.body.endswith(b"\n") else end))
