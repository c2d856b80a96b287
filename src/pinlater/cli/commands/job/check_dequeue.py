"""`pinlater job check-dequeue`."""

from __future__ import annotations

from pinlater.cli import options, output
from pinlater.cli.commands.job.dequeue import Limit
from pinlater.cli.dry_run import dry_run, warn_paused


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
    dequeued, paused = options.ask(server, timeout, lambda client: dry_run(client, queue, limit))
    descriptors = [job.descriptor for job in dequeued.jobs]
    limit_reached = len(descriptors) >= limit
    if json:
        counted = {"available": len(descriptors), "limit_reached": limit_reached}
        output.print_json({**counted, "paused": paused, "descriptors": descriptors})
        return
    output.print_lines([f"Jobs available for dequeue: {'at least ' * limit_reached}{len(descriptors)}"])
    if paused:
        warn_paused()
