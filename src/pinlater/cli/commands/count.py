"""`pinlater count`."""

from __future__ import annotations

from pinlater.cli import options, output
from pinlater.client import AsyncClient


def count(
    queue: options.QueueName,
    state: options.StateOption = options.State.PENDING,
    priority: options.Priority = None,
    future: options.Future = False,
    regex: options.Regex = None,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Count jobs.

    Example: pinlater count emails --state failed
    """

    async def ask(client: AsyncClient) -> int:
        return await client.count(queue, state.wire, priority=priority, future=future, regex=regex)

    number = options.ask(server, timeout, ask)
    if json:
        output.print_json({"queue": queue, "state": state.name, "future": future, "count": number})
    else:
        output.print_lines([str(number)])
