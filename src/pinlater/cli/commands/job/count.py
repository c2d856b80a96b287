"""`pinlater job count`."""

from __future__ import annotations

from pinlater.cli import options, output
from pinlater.cli.filter_options import ChosenJobs, with_filter
from pinlater.client import AsyncClient, JobCount, JobFilter
from pinlater.client._filtered_jobs import count_all
from pinlater.client.errors import UnknownMethod


@with_filter
def count(
    queue: options.QueueName,
    chosen: ChosenJobs,
    state: options.StateOption = options.State.PENDING,
    future: options.Future = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Count jobs. The output says `incomplete` if a shard is unreachable.

    Example: pinlater job count emails --state failed
    """
    options.check_future(state, future)
    wanted = chosen.of(state.wire)
    found = options.ask(server, timeout, lambda client: count_jobs(client, queue, wanted, future=future))
    if json:
        counted = {"queue": queue, "state": state.name, "future": future}
        output.print_json({**counted, "count": found.jobs, "incomplete": found.incomplete})
        return
    output.print_lines([str(found.jobs)])
    if found.incomplete:
        output.warn_incomplete()


async def count_jobs(client: AsyncClient, queue: str, wanted: JobFilter, *, future: bool = False) -> JobCount:
    """Their number. An original server does not report whether a shard is unreachable."""
    try:
        return await count_all(client, queue, wanted, (future,))
    except UnknownMethod:
        if wanted.compares:
            raise
        state, priority, regex, *_ = wanted
        return JobCount(await client.count(queue, state, priority=priority, future=future, regex=regex))
