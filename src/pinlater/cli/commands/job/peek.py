"""`pinlater job peek` and `pinlater job check-dequeue`: show the jobs that a dequeue would get."""

from __future__ import annotations

from typing import NamedTuple

from pinlater.cli import notes, options, output
from pinlater.cli.commands.job.dequeue import Limit, print_jobs
from pinlater.cli.queue_notes import is_paused
from pinlater.client import AsyncClient, Dequeued


def peek(
    queue: options.QueueName,
    limit: Limit = 10,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show the jobs that a dequeue would get. Claims none, and says if the queue is paused.

    Example: pinlater job peek emails --limit 3
    """
    dequeued, paused = options.ask(server, timeout, lambda client: _dry_run(client, queue, limit))
    if json:
        output.print_json({"jobs": [output.claimed_json(job) for job in dequeued.jobs], "paused": paused})
        return
    print_jobs(dequeued, as_json=False)
    _say_paused(paused)


def check_dequeue(
    queue: options.QueueName,
    limit: Limit = 1,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Say whether a dequeue would get jobs. Claims none, counts up to --limit, and says if the queue is paused.

    Example: pinlater job check-dequeue emails
    """
    dequeued, paused = options.ask(server, timeout, lambda client: _dry_run(client, queue, limit))
    descriptors = [job.descriptor for job in dequeued.jobs]
    limit_reached = len(descriptors) >= limit
    if json:
        counted = {"available": len(descriptors), "limit_reached": limit_reached}
        output.print_json({**counted, "paused": paused, "descriptors": descriptors})
        return
    output.print_lines([f"Jobs available for dequeue: {'at least ' * limit_reached}{len(descriptors)}"])
    _say_paused(paused)


class _DryRun(NamedTuple):
    """`paused`: a real dequeue is refused, or waits, until the queue is resumed."""

    dequeued: Dequeued
    paused: bool


async def _dry_run(client: AsyncClient, queue: str, limit: int) -> _DryRun:
    """Returns up to `limit` jobs, even if the queue is paused."""
    dequeued = await client.dequeue(queue, limit, dry_run=True)
    return _DryRun(dequeued, await is_paused(client, queue))


def _say_paused(paused: bool) -> None:
    if paused:
        notes.write("paused: a dequeue gets no jobs until `pinlater queue resume`")
