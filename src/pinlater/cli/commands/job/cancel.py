"""`pinlater job cancel`."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.cli import notes, options, output
from pinlater.cli.commands.job.ack import exit_unless_applied, print_results_json
from pinlater.cli.each_queue import change_each_queue
from pinlater.client import AckResult, AsyncClient, JobInfo, Outcome
from pinlater.client.errors import PinLaterError


def cancel(
    descriptors: options.Descriptors,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Cancel unfinished jobs. They become failed, with status `cancelled`. Exit code 1 if any was not cancelled.

    The worker that runs a job learns of it with its next heartbeat or ack; the command names that worker.

    Example: pinlater job cancel emails:s1:p1:42
    """

    async def change(client: AsyncClient, queue: str, names: Sequence[str]) -> Sequence[AckResult]:
        return await _with_holders(client, await client.cancel(queue, names))

    found = change_each_queue(server, timeout, descriptors, change)
    found.show(lambda results: _print(results, json))
    exit_unless_applied(found.done)


def _print(results: Sequence[AckResult], as_json: bool) -> None:
    if as_json:
        print_results_json(results)
        return
    output.print_text([f"{_CANCELS[result.outcome]} {result.descriptor}" for result in results])
    for result in results:
        if result.applied and result.holder:
            notes.write(
                f"{result.descriptor} runs on {output.source_of(result.holder) or 'a worker'} until that learns of it: "
                "with its next heartbeat, within a third of the claim timeout, or ack"
            )


async def _with_holders(client: AsyncClient, results: Sequence[AckResult]) -> list[AckResult]:
    """Returns the results. The results of cancelled jobs name the worker that had claimed the job, unless the jobs can't be looked up."""
    cancelled = [result.descriptor for result in results if result.applied]
    try:
        jobs = await client.lookup(cancelled) if cancelled else {}
    except PinLaterError:  # the caller must still learn what was cancelled
        jobs = {}
    return [_with_holder(result, jobs.get(result.descriptor) if result.applied else None) for result in results]


def _with_holder(result: AckResult, job: JobInfo | None) -> AckResult:
    last = job.attempts[-1] if job is not None and job.attempts else None
    if job is None or last is None or last.outcome != "cancelled" or last.ended_at_ms != job.finished_at_ms:
        return result  # no worker held it
    return result._replace(holder=last.claimed_by, held_since_ms=last.claimed_at_ms)


_CANCELS = {
    Outcome.APPLIED: "cancelled",
    Outcome.ALREADY_FINAL: "had finished before:",
    Outcome.STALE_CLAIM: "not cancelled:",
    Outcome.NOT_FOUND: "no such job:",
    Outcome.ERROR: "not cancelled:",
}
