"""`pinlater job count`."""

from __future__ import annotations

from pinlater.cli import options, output
from pinlater.client import AsyncClient, JobCount
from pinlater.client.errors import UnknownMethod


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
    """Count jobs. The output says `incomplete` if a shard is unreachable.

    Example: pinlater job count emails --state failed
    """
    options.check_future(state, future)
    found = options.ask(
        server, timeout, lambda c: count_jobs(c, queue, state, priority=priority, future=future, regex=regex)
    )
    if json:
        counted = {"queue": queue, "state": state.name, "future": future}
        output.print_json({**counted, "count": found.jobs, "incomplete": found.incomplete})
        return
    output.print_lines([str(found.jobs)])
    if found.incomplete:
        output.warn_incomplete()


async def count_jobs(
    client: AsyncClient,
    queue: str,
    state: options.State,
    *,
    priority: int | None = None,
    future: bool = False,
    regex: str | None = None,
) -> JobCount:
    """Returns the number of jobs. An original server does not say if a shard is unreachable."""
    try:
        return await client.count_jobs(queue, state.wire, priority=priority, future=future, regex=regex)
    except UnknownMethod:
        return JobCount(await client.count(queue, state.wire, priority=priority, future=future, regex=regex))
