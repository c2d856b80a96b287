"""`pinlater job peek`."""

from __future__ import annotations

from pinlater.cli import options, output
from pinlater.cli.commands.job.dequeue import Limit, print_jobs
from pinlater.cli.dry_run import dry_run, warn_paused


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
    dequeued, paused = options.ask(server, timeout, lambda client: dry_run(client, queue, limit))
    if json:
        output.print_json({"jobs": [output.claimed_json(job) for job in dequeued.jobs], "paused": paused})
        return
    print_jobs(dequeued, as_json=False)
    if paused:
        warn_paused()
