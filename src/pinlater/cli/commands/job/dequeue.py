"""`pinlater job dequeue`, `peek` and `check-dequeue`: claim jobs, or show those that a dequeue would get."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import exits, notes, options, output
from pinlater.cli.call import ServerCall, WaitingServerCall
from pinlater.cli.queue_notes import is_paused
from pinlater.client import Ack, AsyncClient, Claim, ClaimedJob
from pinlater.client.errors import PinLaterError
from pinlater.domain.wording import counted

# The difference between the server's clock and ours, and the network, make a wait look a little shorter or longer.
_INEXACT_MS = 500
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to take.")]
_COLUMNS: output.Columns[ClaimedJob] = {
    "descriptor": lambda job: job.descriptor,
    "attempt": lambda job: job.attempt,
    "left": lambda job: job.attempts_remaining,
    "token": lambda job: job.token or None,
    "body": output.shown_body,
}


def dequeue(
    call: WaitingServerCall,
    queue: options.QueueName,
    limit: Limit = 1,
    wait: Annotated[str, typer.Option(help="How long to wait for a job, at most 60s.")] = "0",
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
) -> None:
    """Claim jobs and print them. A claim ends with `pinlater job ack`, with --ack, or when it times out. If the jobs can't all be printed,
    none is acked, and all go back to the queue.

    Example: pinlater job dequeue emails --limit 10 --wait 20s --ack
    """
    wait_ms = options.span_ms(wait, "--wait") or 0

    async def claim(client: AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        jobs = (await client.dequeue(queue, limit, wait_ms=wait_ms)).jobs
        waited_s = loop.time() - began
        if not jobs and waited_s * 1000 < wait_ms - _INEXACT_MS:
            notes.note(
                f"the server ended the wait after {waited_s:.1f} s, its longest unless it stops (jobs.max_wait_ms)"
            )
        try:
            if body_only:
                _print_bodies(jobs, b"\0" if null else b"\n" if limit > 1 or output.on_terminal() else b"")
            else:
                call.answer({"jobs": list(map(output.claimed_json, jobs))}, lambda: print_jobs(jobs))
            output.deliver()
        except OSError as error:
            output.fail_unprinted(error, await _given_back(client, queue, jobs))
        if ack and jobs:
            results = await client.ack(queue, [Ack(job.descriptor, token=job.token) for job in jobs])
            late = sum(not result.applied for result in results)
            if late:
                exits.fail(
                    f"{counted(late, 'job')} of these were not acked: the claims had ended before", exits.REFUSED
                )

    output.check_open("no job was claimed")
    call.ask(claim)


def peek(call: ServerCall, queue: options.QueueName, limit: Limit = 10) -> None:
    """Show the jobs that a dequeue would get. Claims none, and says if the queue is paused.

    Example: pinlater job peek emails --limit 3
    """
    jobs, paused = call.ask(lambda client: _dry_run(client, queue, limit))
    call.answer({"jobs": list(map(output.claimed_json, jobs)), "paused": paused}, lambda: print_jobs(jobs))
    _say_paused(call, paused)


def check_dequeue(call: ServerCall, queue: options.QueueName, limit: Limit = 1) -> None:
    """Say whether a dequeue would get jobs. Claims none, counts up to --limit, and says if the queue is paused.

    Example: pinlater job check-dequeue emails
    """
    jobs, paused = call.ask(lambda client: _dry_run(client, queue, limit))
    limit_reached = len(jobs) >= limit
    found = {"available": len(jobs), "limit_reached": limit_reached, "paused": paused}
    call.answer(
        {**found, "descriptors": [job.descriptor for job in jobs]},
        [f"Jobs available for dequeue: {'at least ' * limit_reached}{len(jobs)}"],
    )
    _say_paused(call, paused)


async def _dry_run(client: AsyncClient, queue: str, limit: int) -> tuple[Sequence[ClaimedJob], bool]:
    """Returns up to `limit` jobs, even if the queue is paused, and whether it is: a real dequeue is then refused, or waits."""
    dequeued = await client.dequeue(queue, limit, dry_run=True)
    return dequeued.jobs, await is_paused(client, queue)


def _say_paused(call: ServerCall, paused: bool) -> None:
    if paused and not call.json:
        notes.write("paused: a dequeue gets no jobs until `pinlater queue resume`")


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


def print_jobs(jobs: Sequence[ClaimedJob]) -> None:
    """Prints jobs with their bodies."""
    output.print_blocks(_COLUMNS, jobs)


def _print_bodies(jobs: Sequence[ClaimedJob], end: bytes) -> None:
    """Prints each body with `end`, without a second newline."""
    for job in jobs:
        output.print_bytes(job.body + (b"" if end == b"\n" and job.body.endswith(b"\n") else end))
