"""`pinlater delete-jobs`."""

from __future__ import annotations

from typing import Annotated

import typer

from pinlater.cli import options
from pinlater.cli.commands.retry_failed import Limit, print_number
from pinlater.client import AsyncClient


def delete_jobs(
    queue: options.QueueName,
    state: Annotated[options.State | None, typer.Option("--state", help="Jobs in this state.")] = None,
    descriptor: Annotated[
        list[str] | None, typer.Option("--descriptor", "-d", help="These jobs, in whatever state; may be repeated.")
    ] = None,
    priority: options.Priority = None,
    regex: options.Regex = None,
    limit: Limit = 1000,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Delete jobs of one state, or the jobs named by --descriptor; prints how many.

    Example: pinlater delete-jobs emails --state failed --regex 'example\\.org'
    """
    if (state is None) == (not descriptor):
        raise typer.BadParameter("give either --state or --descriptor")

    options.check_queue(queue, descriptor or [])

    async def ask(client: AsyncClient) -> int:
        if state is None:
            return await client.delete_jobs_by_descriptor(queue, descriptor or [])
        return await client.delete_jobs(queue, state.wire, priority=priority, regex=regex, limit=limit)

    print_number("deleted", options.ask(server, timeout, ask), json)
