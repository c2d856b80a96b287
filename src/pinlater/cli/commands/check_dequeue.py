"""`pinlater check-dequeue`."""

from __future__ import annotations

from pinlater.cli import options, output
from pinlater.cli.commands.dequeue import Limit


def check_dequeue(
    queue: options.QueueName,
    limit: Limit = 1,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Say whether a dequeue would get jobs, without claiming any.

    Example: pinlater check-dequeue emails
    """
    shown = options.ask(server, timeout, lambda client: client.dequeue(queue, limit, dry_run=True))
    if json:
        output.print_json({"available": len(shown.jobs), "descriptors": [job.descriptor for job in shown.jobs]})
    else:
        output.print_lines([f"Jobs available for dequeue: {len(shown.jobs)}"])
