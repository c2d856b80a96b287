"""`pinlater peek`."""

from __future__ import annotations

from pinlater.cli import options
from pinlater.cli.commands.dequeue import Limit, print_jobs


def peek(
    queue: options.QueueName,
    limit: Limit = 10,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show the jobs that a dequeue would get, without claiming them.

    Example: pinlater peek emails --limit 3
    """
    print_jobs(options.ask(server, timeout, lambda client: client.dequeue(queue, limit, dry_run=True)), json)
